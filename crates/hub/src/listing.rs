//! The files of a repository at one commit, as the hub's interface lists them.

use serde::Deserialize;

use crate::Error;
use crate::Sum;
use crate::reference::{is_commit, is_path};

/// A repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
    /// The files, in the hub's order.
    pub files: Vec<RemoteFile>,
}

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteFile {
    /// The path within the repository, with `/` between its parts.
    pub path: String,
    /// Bytes, as listed.
    pub size: u64,
    /// The sum of the content, if the hub lists one.
    pub sum: Option<Sum>,
}

#[derive(Deserialize)]
struct Reply {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the reply to `/api/models/ORG/REPO/revision/REVISION?blobs=true` from `url`.
    ///
    /// # Errors
    /// If the reply is not such a listing, or a path leads out of the repository.
    pub fn read(body: &[u8], url: &str) -> Result<Listing, Error> {
        let unreadable = |reason: String| Error::Reply { url: url.to_owned(), reason };
        let reply: Reply = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
        if !is_commit(&reply.sha) {
            return Err(unreadable(format!("{:?} is not a commit", reply.sha)));
        }
        let files = reply.siblings.into_iter().map(|file| {
            if !is_path(&file.rfilename) {
                return Err(Error::Path(file.rfilename));
            }
            let sum = match &file.lfs {
                Some(lfs) => {
                    let invalid = || unreadable(format!("the SHA-256 of {:?} is not valid", file.rfilename));
                    Some(Sum::sha256(&lfs.sha256).ok_or_else(invalid)?)
                }
                None => file.blob.as_deref().and_then(Sum::git),
            };
            let size = file.lfs.map(|lfs| lfs.size).or(file.size).unwrap_or(0);
            Ok(RemoteFile { path: file.rfilename, size, sum })
        });
        Ok(Listing { files: files.collect::<Result<_, _>>()?, commit: reply.sha })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(file: &str, sha256: &str) -> String {
        let commit = "c".repeat(40);
        let file = serde_json::json!(file);
        format!(
            r#"{{"sha":"{commit}","siblings":[{{"rfilename":{file},"size":7,"lfs":{{"sha256":"{sha256}","size":7}}}}]}}"#
        )
    }

    #[test]
    fn a_listing_has_sizes_and_sums() {
        let read = Listing::read(listing("a/b.gguf", &"A".repeat(64)).as_bytes(), "").expect("it is a listing");
        let file = RemoteFile { path: "a/b.gguf".into(), size: 7, sum: Sum::sha256(&"a".repeat(64)) };
        assert_eq!(read, Listing { commit: "c".repeat(40), files: vec![file] });
    }

    #[test]
    fn hostile_listings_are_refused() {
        for path in ["../x.gguf", "/x.gguf", "a/../../x", "a\\b", "C:x", "a//b", "", ".", "a/./b", "a\u{0}b", "a ./b"] {
            let read = Listing::read(listing(path, &"a".repeat(64)).as_bytes(), "");
            assert!(matches!(&read, Err(Error::Path(found)) if found == path), "{path:?}: {read:?}");
        }
        for sum in ["", "../../x", &"g".repeat(64), &"a".repeat(63)] {
            assert!(matches!(Listing::read(listing("x", sum).as_bytes(), ""), Err(Error::Reply { .. })), "{sum}");
        }
        for body in ["", "{}", "[]", r#"{"sha":"../x","siblings":[]}"#] {
            assert!(matches!(Listing::read(body.as_bytes(), ""), Err(Error::Reply { .. })), "{body}");
        }
    }
}
