//! Images of messages: how callers send them, and their pixels.
//!
//! A parser reads the parts of a content into a [`Said`], and pushes each image to [`Images`] in the order of the
//! conversation. The pixels are decoded on a thread that may wait, before the conversation is rendered.

use std::fmt;
use std::sync::Arc;

use axum::http::Uri;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use gristmill_engine::ChatImage;
use gristmill_engine::template::{Message, Role};
use gristmill_engine::vision::{Detail, Limits, Picture, Processor};

use crate::content::shortened;
use crate::error::ApiError;
use crate::host::HostPattern;
use crate::models::ServedModel;

/// Some clients leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes of all images of a request that are fetched. Images in the request itself are limited by its body.
const MOST_FETCHED: u64 = 64 << 20;

/// What requests may have of images.
#[derive(Debug, Clone)]
pub struct ImageOptions {
    /// The limits of each image.
    pub limits: Limits,
    /// Images of a request.
    pub count: usize,
    /// Fetches images by their URLs; `None` refuses URLs that are not `data:` URLs.
    pub fetch: Option<ImageFetch>,
}

impl Default for ImageOptions {
    fn default() -> ImageOptions {
        ImageOptions { limits: Limits::default(), count: 64, fetch: None }
    }
}

/// Fetches images of some hosts by their URLs.
#[derive(Clone)]
pub struct ImageFetch {
    hosts: Vec<HostPattern>,
    fetch: Arc<FetchFn>,
}

type FetchFn = dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync;

impl ImageFetch {
    /// Fetches URLs of these hosts by this function. It returns the bytes, or why there are none. It may block, keeps its
    /// own limits of time and bytes, and connects to no address of a private network.
    pub fn new(
        hosts: Vec<HostPattern>,
        fetch: impl Fn(&str) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    ) -> ImageFetch {
        ImageFetch { hosts, fetch: Arc::new(fetch) }
    }

    fn bytes(&self, url: &str) -> Result<Vec<u8>, String> {
        let uri = url.parse::<Uri>().ok();
        let host = uri.as_ref().and_then(Uri::host);
        match host {
            Some(host) if self.hosts.iter().any(|listed| listed.allows(host)) => (self.fetch)(url),
            Some(host) => Err(format!(
                "images of the host {:?} are not fetched; send the image as a data: URL, or start the server with \
                 --allow-image-urls {}",
                shortened(host),
                shortened(host)
            )),
            None => Err("the URL is not valid; write a data: URL, or https://HOST/PATH".to_owned()),
        }
    }
}

impl fmt::Debug for ImageFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageFetch").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// An image as a caller sent it.
#[derive(Debug, Clone)]
pub(crate) struct ImagePart {
    /// The path of the field in the request.
    at: String,
    source: Source,
    detail: Detail,
}

#[derive(Debug, Clone, PartialEq)]
enum Source {
    Base64(String),
    Url(String),
}

/// The images of a conversation, in the order of its messages.
#[derive(Debug)]
pub(crate) struct Images {
    /// Why the model reads no images.
    refusal: Option<String>,
    list: Vec<ImagePart>,
}

impl Images {
    /// For a conversation with this model.
    pub(crate) fn of(model: &ServedModel) -> Images {
        Images { refusal: model.engine.processor().err().map(|error| error.to_string()), list: Vec::new() }
    }

    /// For a conversation with a model that reads none.
    #[cfg(test)]
    pub(crate) fn none() -> Images {
        Images { refusal: Some("the model x reads no images".to_owned()), list: Vec::new() }
    }

    /// Whether the model reads images.
    pub(crate) fn are_read(&self) -> bool {
        self.refusal.is_none()
    }

    /// An image of the address `url`; `at` is the path of the field, and `detail` is OpenAI's.
    pub(crate) fn url(&mut self, at: String, url: String, detail: Option<&str>) -> Result<(), ApiError> {
        let detail = match detail {
            None | Some("auto" | "high" | "original") => Detail::High,
            Some("low") => Detail::Low,
            Some(other) => {
                let message = format!("{:?} is no detail; use low, high or auto", shortened(other));
                let part = at.rsplit_once('.').map_or(&*at, |(part, _)| part);
                return Err(ApiError::param(format!("{part}.detail"), message));
            }
        };
        let source = match url.strip_prefix("data:") {
            Some(rest) => Source::Base64(of_data_url(rest, &at)?.to_owned()),
            None => Source::Url(url),
        };
        self.push(ImagePart { at, source, detail })
    }

    /// An image in base64.
    pub(crate) fn base64(&mut self, at: String, data: String) -> Result<(), ApiError> {
        self.push(ImagePart { at, source: Source::Base64(data), detail: Detail::High })
    }

    fn push(&mut self, part: ImagePart) -> Result<(), ApiError> {
        if let Some(refusal) = &self.refusal {
            return Err(ApiError::param(part.at, refusal.clone()).with_code("unsupported"));
        }
        self.list.push(part);
        Ok(())
    }

    pub(crate) fn into_list(self) -> Vec<ImagePart> {
        self.list
    }
}

/// The base64 of a `data:` URL, without its start.
fn of_data_url<'u>(rest: &'u str, at: &str) -> Result<&'u str, ApiError> {
    let (kind, data) = rest.split_once(',').unwrap_or((rest, ""));
    match kind.to_ascii_lowercase().ends_with(";base64") {
        true => Ok(data),
        false => Err(ApiError::param(at, "the data: URL is not in base64; write data:image/png;base64,…")),
    }
}

/// Prepares the images for the model of an engine. It blocks: an image takes milliseconds. The pixels of one image at a
/// time are in memory, and none if all images together have too many tokens for the `context`.
pub(crate) fn prepared(
    parts: &[ImagePart],
    options: &ImageOptions,
    processor: &Processor,
    context: usize,
) -> Result<Vec<ChatImage>, ApiError> {
    if let Some(part) = parts.get(options.count) {
        let message = format!(
            "the request has {} images; at most {} are accepted (--max-images); send fewer",
            parts.len(),
            options.count
        );
        return Err(ApiError::param(part.at.clone(), message));
    }
    // Agents send one screenshot several times. An index is that of the first part that is the same.
    let first = |index: usize| parts[..index].iter().position(|before| before.is_same(&parts[index])).unwrap_or(index);
    let mut files = Vec::with_capacity(parts.len());
    let mut fetched = 0;
    let mut tokens = 0;
    for (index, part) in parts.iter().enumerate() {
        let bytes = if first(index) == index { part.bytes(options)? } else { Vec::new() };
        fetched += if matches!(part.source, Source::Url(_)) { bytes.len() as u64 } else { 0 };
        if fetched > MOST_FETCHED {
            let message = format!("the images of URLs have more than {MOST_FETCHED} bytes together; send fewer");
            return Err(part.wrong(&message));
        }
        files.push(bytes);
        let size = Picture::size_of(&files[first(index)], &options.limits).map_err(|error| part.wrong(&error))?;
        tokens += processor.layout(size, part.detail).tokens();
        if tokens > context {
            let message = format!(
                "the images up to this one have {tokens} tokens, and the context holds {context}; send fewer or smaller \
                 ones, or use the detail low"
            );
            return Err(part.wrong(&message).with_code("context_length_exceeded"));
        }
    }
    let mut read: Vec<ChatImage> = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let image = match first(index) {
            before if before < index => read[before].clone(),
            _ => {
                let picture = Picture::decode(&files[index], &options.limits).map_err(|error| part.wrong(&error))?;
                ChatImage::new(processor, &picture, part.detail)
            }
        };
        read.push(image);
    }
    Ok(read)
}

impl ImagePart {
    fn is_same(&self, other: &ImagePart) -> bool {
        self.source == other.source && self.detail == other.detail
    }

    fn wrong(&self, what: &dyn fmt::Display) -> ApiError {
        ApiError::param(self.at.clone(), format!("{}: {what}", self.at))
    }

    /// The bytes of the file.
    fn bytes(&self, options: &ImageOptions) -> Result<Vec<u8>, ApiError> {
        match (&self.source, &options.fetch) {
            (Source::Base64(data), _) => {
                let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let wrong = |error| self.wrong(&format!("the image is not valid base64 ({error})"));
                BASE64.decode(data).map_err(wrong)
            }
            (Source::Url(_), None) => {
                let message = "images are not fetched from URLs here; send the image in the request, as a data: URL or in \
                               base64, or start the server with --allow-image-urls HOST";
                Err(self.wrong(&message).with_code("unsupported"))
            }
            (Source::Url(url), Some(fetch)) => fetch.bytes(url).map_err(|error| self.wrong(&error)),
        }
    }
}

/// What a message says: texts, with places of images between them. Texts in a row are joined by line ends.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) images: Vec<usize>,
    ends_with_text: bool,
}

impl Said {
    /// Adds a text.
    pub(crate) fn push(&mut self, text: &str) {
        if self.ends_with_text {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.ends_with_text = true;
    }

    /// Adds the place of an image.
    pub(crate) fn image(&mut self) {
        self.images.push(self.text.len());
        self.ends_with_text = false;
    }

    /// Adds a text at the start.
    pub(crate) fn prefix(&mut self, text: &str) {
        self.text.insert_str(0, text);
        self.images.iter_mut().for_each(|at| *at += text.len());
    }

    /// The message of a role.
    pub(crate) fn message(self, role: Role) -> Message {
        Message { images: self.images, ..Message::new(role, self.text) }
    }
}

impl From<String> for Said {
    fn from(text: String) -> Said {
        Said { text, images: Vec::new(), ends_with_text: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_engine::vision::{Kind, Size};

    #[test]
    fn texts_are_joined_and_images_are_between_them() {
        let mut said = Said::default();
        said.push("a");
        said.push("b");
        said.image();
        said.image();
        said.push("c");
        said.push("");
        assert_eq!((said.text.as_str(), said.images.as_slice()), ("a\nbc\n", &[3, 3][..]));
        said.prefix("Error: ");
        let message = said.message(Role::Tool);
        assert_eq!((message.text.as_str(), message.images.as_slice()), ("Error: a\nbc\n", &[10, 10][..]));
    }

    fn read(parts: &[ImagePart], options: &ImageOptions) -> Result<Vec<ChatImage>, String> {
        let processor = Kind::Lfm2Vl.processor();
        prepared(parts, options, &processor, 200)
            .map_err(|error| format!("{:?}: {}", error.param.unwrap_or_default(), error.message))
    }

    const GIF: &str = "R0lGODdhAQABAIAAAP8AAAAAACwAAAAAAQABAAACAkQBADs=";

    #[test]
    fn images_are_decoded_within_limits() {
        let mut images = Images { refusal: None, list: Vec::new() };
        for (data, detail) in [(GIF, None), (GIF.trim_end_matches('='), Some("low")), ("R0lGODdhAQABAIAA", None)] {
            images.url("m[0].image_url.url".to_owned(), format!("data:image/gif;base64,{data}"), detail).unwrap();
        }
        images.base64("m[1].source.data".to_owned(), "R0lG\nODdh*".to_owned()).unwrap();
        images.url("m[2].image_url".to_owned(), "https://a.example/b.png".to_owned(), None).unwrap();
        let list = images.into_list();
        let options = ImageOptions::default();
        let found = read(&list[..2], &options).unwrap();
        let red = Picture::new(Size { width: 1, height: 1 }, vec![255, 0, 0]).expect("a pixel");
        let processor = Kind::Lfm2Vl.processor();
        let expected = [Detail::High, Detail::Low].map(|detail| ChatImage::new(&processor, &red, detail));
        assert!(found == expected);
        // 64 tokens each, in a context of 200.
        assert_eq!(read(&vec![list[0].clone(); 3], &options).unwrap().len(), 3);
        let error = read(&vec![list[0].clone(); 4], &options).unwrap_err();
        assert!(error.contains("the images up to this one have 256 tokens, and the context holds 200"), "{error}");
        let small = ImageOptions { limits: Limits { bytes: 10, ..Limits::default() }, ..options.clone() };
        let few = ImageOptions { count: 1, ..options.clone() };
        let fetching = |host: &str| {
            let fetch = ImageFetch::new(vec![host.parse().unwrap()], |url| Err(format!("{url} is away")));
            ImageOptions { fetch: Some(fetch), ..options.clone() }
        };
        let (own, other) = (fetching("*.example"), fetching("b.example"));
        for (list, options, part) in [
            (&list[2..3], &options, "m[0].image_url.url: the GIF image cannot be decoded"),
            (&list[3..4], &options, "m[1].source.data: the image is not valid base64"),
            (&list[4..], &options, "m[2].image_url: images are not fetched from URLs here"),
            (&list[4..], &own, "m[2].image_url: https://a.example/b.png is away"),
            (&list[4..], &other, "images of the host \"a.example\" are not fetched"),
            (&list[..1], &small, "the image has too many bytes (found 35, expected at most 10)"),
            (&list[..2], &few, "the request has 2 images; at most 1 are accepted"),
        ] {
            let error = read(list, options).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn addresses_and_details_are_checked() {
        let mut images = Images { refusal: None, list: Vec::new() };
        let at = || "m[0].image_url".to_owned();
        let text = images.url(at(), "data:text/plain,hello".to_owned(), None).unwrap_err();
        assert!(text.message.contains("not in base64"), "{}", text.message);
        let detail = images.url(at(), "data:;base64,AA".to_owned(), Some("tall")).unwrap_err();
        assert_eq!(
            (detail.param.as_deref(), detail.message.as_str()),
            (Some("m[0].detail"), "\"tall\" is no detail; use low, high or auto")
        );
        let refused = Images::none().base64(at(), String::new()).unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (Some("unsupported"), "the model x reads no images"));
    }
}
