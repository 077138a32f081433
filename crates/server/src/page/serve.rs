//! Answers requests for the page's files.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::assets::{Asset, Bytes};
use crate::blocking::blocking;
use crate::error::{ApiError, refuse};
use crate::state::App;

/// Where the files are; the page itself is at `/`.
const FOLDER: &str = "/page/";
/// Base addresses of programs, which lead to the page.
pub(crate) const BASES: [&str; 2] = ["/v1", "/v1/"];
/// The first of [`super::assets::ASSETS`].
const INDEX: &str = "index.html";

/// Whether a path is one of the page, which has nothing that a key protects.
pub(crate) fn has(path: &str) -> bool {
    if BASES.contains(&path) {
        return true;
    }
    let name = if path == "/" { Some(INDEX) } else { path.strip_prefix(FOLDER) };
    name.is_some_and(|name| find(name).is_some())
}

/// `/`.
pub(crate) async fn index(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Response {
    file(&app, INDEX, &uri, &headers).await
}

/// `/page/NAME`.
pub(crate) async fn named(State(app): State<App>, Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    file(&app, &name, &uri, &headers).await
}

fn find(name: &str) -> Option<&'static Asset> {
    super::assets::all().find(|asset| asset.name == name)
}

async fn file(app: &App, name: &str, uri: &Uri, headers: &HeaderMap) -> Response {
    let Some(asset) = find(name) else {
        let message = format!("there is nothing at {}; the page is at /", uri.path());
        return refuse(ApiError::new(StatusCode::NOT_FOUND, message), uri, headers);
    };
    // Of a client that decompresses, the tag is another one, because the bytes are (RFC 9110, section 8.8.3.3).
    let zipped = match asset.bytes {
        Bytes::Gzip(bytes) if accepts_gzip(headers) => Some(bytes),
        _ => None,
    };
    let tag = if zipped.is_some() { asset.tag().replacen('"', "\"gz-", 1) } else { asset.tag().to_owned() };
    let common = [
        (header::ETAG, tag.clone()),
        (header::VARY, "accept-encoding".to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::CONTENT_SECURITY_POLICY, super::policy::policy(&app.options.mcp_origins)),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, asset.kind)];
    if let Some(bytes) = zipped {
        return (common, kind, [(header::CONTENT_ENCODING, "gzip")], Body::from(bytes)).into_response();
    }
    let broken = |error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{}: {error}", asset.name));
    match blocking(move || asset.bytes.read().map_err(broken)).await {
        Ok(bytes) => (common, kind, bytes).into_response(),
        Err(error) => refuse(error, uri, headers),
    }
}

/// Whether a client decompresses: it names `gzip`, and not with a weight of 0 (RFC 9110, section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings =
        lists.flat_map(|list| list.split(',')).map(|coding| coding.split_once(';').unwrap_or((coding, "")));
    codings.any(|(name, weight)| {
        let weight = weight.trim().trim_start_matches("q=").trim();
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse() != Ok(0.0_f32)
    })
}

/// Whether the client has the file with this tag (RFC 9110, section 13.1.2, compares weakly).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::assets::ASSETS;
    use super::*;

    /// Every file of the folder is served, once, but for the notes on vendored files.
    #[test]
    fn the_table_has_every_file() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut folders = vec![root.clone()];
        let mut found = HashSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(found.insert(path.strip_prefix(&root).expect("inside").display().to_string())),
                }
            }
        }
        let served: HashSet<String> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
        assert_eq!(served.len(), ASSETS.len());
        let left: Vec<&String> = found.symmetric_difference(&served).filter(|name| !name.ends_with(".md")).collect();
        assert!(left.is_empty() && served.len() > 10, "{left:?}");
    }

    #[test]
    fn ranges_are_those_of_the_sampler() {
        let module = String::from_utf8(find("ranges.js").expect("made").bytes.read().expect("plain")).expect("text");
        assert!(module.contains("  top_p: [1.1754943508222875e-38, 1e0],\n"), "{module}");
        assert_eq!(module.lines().count(), gristmill_engine::SETTINGS.len() + 2);
    }

    #[test]
    fn every_file_is_as_in_the_folder() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        for asset in ASSETS {
            let file = std::fs::read(root.join(asset.name)).expect("a file");
            assert!(asset.bytes.read().expect("compressed bytes") == file, "{}", asset.name);
        }
    }

    #[test]
    fn clients_that_decompress_are_known_by_their_header() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().expect(value))]))
        };
        for value in ["gzip", "gzip, deflate, br", "br;q=1.0, GZIP;q=0.5"] {
            assert!(accepts(value), "{value}");
        }
        for value in ["", "identity", "br, zstd", "gzip;q=0", "gzip; q=0.000, br"] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn paths_of_the_page() {
        assert!(has("/") && has("/v1") && has("/page/main.js") && has("/page/vendor/marked.esm.js"));
        for path in ["/page/", "/page", "/page/../main.js", "/v1/models", "/page/README.md", ""] {
            assert!(!has(path), "{path}");
        }
    }
}
