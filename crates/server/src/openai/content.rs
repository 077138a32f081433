//! Texts of messages and items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::content::{Content, TextOr, media_type, placeholder, shortened};
use crate::error::ApiError;
use crate::images::{Images, Said};

/// A part of a text. Parts are joined by line ends.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ContentPart {
    /// `text`; in items of a response `input_text`, `output_text`, `reasoning_text` or `summary_text`; `refusal`;
    /// `thinking` in an assistant's message. In results of tools any type: what is no text is replaced by a line that
    /// says so.
    r#type: Option<String>,
    text: Option<String>,
    /// The reasoning of a part `thinking`: a text, or a list of parts with a `text`.
    thinking: Option<Content<Thought>>,
    /// The text of a refusal, which another server has written.
    refusal: Option<String>,
    /// The address of an image. If the model reads no images, the line has its media type.
    image_url: Option<TextOr<Address>>,
    /// The detail of an image in a response: `low`, `auto` or `high`.
    detail: Option<String>,
    /// The id of a file in a response, which this server does not have.
    file_id: Option<String>,
    /// A file in a chat, whose name and media type the line has.
    file: Option<FilePart>,
    /// The name of a file in a response.
    filename: Option<String>,
    /// The data of a file in a response.
    file_data: Option<String>,
}

/// A part of reasoning.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct Thought {
    text: Option<String>,
}

/// The address of an image.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
struct Address {
    /// A `data:` URL; `https:` and `http:` where the server allows their hosts.
    url: String,
    /// `low` for fewer tokens; `auto` and `high` as the model's files say.
    detail: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize, ToSchema)]
struct FilePart {
    filename: Option<String>,
    file_data: Option<String>,
}

impl ContentPart {
    /// The line that stands for a part of this type, which is no text.
    fn placeholder(self, kind: &str) -> String {
        let FilePart { filename, file_data } = self.file.unwrap_or_default();
        let (name, data) = (self.filename.or(filename), self.file_data.or(file_data));
        let address = self.image_url.map(|(TextOr::Text(url) | TextOr::Object(Address { url, .. }))| url);
        let address = address.or(data).unwrap_or_default();
        placeholder(kind, media_type(&address), name.as_deref().map(shortened))
    }
}

impl ContentPart {
    /// Reads an image of the path `at`.
    fn image(self, images: &mut Images, at: &str) -> Result<(), ApiError> {
        match self.image_url {
            Some(TextOr::Text(url)) => images.url(format!("{at}.image_url"), url, self.detail.as_deref()),
            Some(TextOr::Object(Address { url, detail })) => {
                images.url(format!("{at}.image_url.url"), url, detail.or(self.detail).as_deref())
            }
            None => {
                let message = match self.file_id {
                    Some(_) => "this server keeps no files; send the image as image_url, a data: URL",
                    None => "the part needs the address image_url",
                };
                Err(ApiError::param(format!("{at}.image_url"), message))
            }
        }
    }
}

/// The types of parts that are images.
const IMAGES: [&str; 2] = ["image_url", "input_image"];

/// The type of parts that are reasoning.
pub(super) const THINKING: &str = "thinking";

/// The reasoning of a content: its parts of the type [`THINKING`].
pub(super) fn thinking(content: &Content<ContentPart>) -> Option<String> {
    let Content::Parts(parts) = content else { return None };
    let thoughts = parts.iter().filter(|part| part.r#type.as_deref() == Some(THINKING));
    let texts = thoughts.flat_map(|part| match &part.thinking {
        Some(Content::Text(text)) => vec![text.as_str()],
        Some(Content::Parts(parts)) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        None => Vec::new(),
    });
    let texts: Vec<&str> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The text of a content at the path `at`, whose parts have one of these types. Parts of [`THINKING`] are left out.
pub(super) fn text(content: Content<ContentPart>, types: &[&str], at: &str) -> Result<String, ApiError> {
    joined(content, types, at, |kind, _, at, _| Err(unsupported(kind, types, at))).map(|said| said.text)
}

/// What a user says in a content at the path `at`: texts, and images.
pub(super) fn said(
    content: Content<ContentPart>,
    types: &[&str],
    at: &str,
    images: &mut Images,
) -> Result<Said, ApiError> {
    joined(content, types, at, |kind, part, at, said| match IMAGES.contains(&kind) {
        true => {
            part.image(images, at)?;
            said.image();
            Ok(())
        }
        false => Err(unsupported(kind, types, at)),
    })
}

/// A tool's result at the path `at`: texts, images that the model reads, and a line for each part of another type.
pub(super) fn result(
    content: Content<ContentPart>,
    types: &[&str],
    at: &str,
    images: &mut Images,
) -> Result<Said, ApiError> {
    joined(content, types, at, |kind, part, at, said| {
        match IMAGES.contains(&kind) && images.are_read() && part.image_url.is_some() {
            true => {
                part.image(images, at)?;
                said.image();
            }
            false => said.push(&part.placeholder(kind)),
        }
        Ok(())
    })
}

fn unsupported(kind: &str, types: &[&str], at: &str) -> ApiError {
    let message = format!("parts of type {kind:?} are not supported here; use {}", types.join(" or "));
    ApiError::param(format!("{at}.type"), message).with_code("unsupported")
}

/// The texts of parts. `other` adds a part of another type, from its type and its path.
fn joined(
    content: Content<ContentPart>,
    types: &[&str],
    at: &str,
    mut other: impl FnMut(&str, ContentPart, &str, &mut Said) -> Result<(), ApiError>,
) -> Result<Said, ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok(text.into()),
        Content::Parts(parts) => parts,
    };
    let mut said = Said::default();
    for (index, mut part) in parts.into_iter().enumerate() {
        let at = format!("{at}[{index}]");
        let missing =
            |field: &str| ApiError::param(format!("{at}.{field}"), format!("the part needs the text {field}"));
        match part.r#type.take().as_deref() {
            Some(THINKING) if types.contains(&THINKING) => {}
            Some(known) if types.contains(&known) => said.push(&part.text.ok_or_else(|| missing("text"))?),
            Some("refusal") => said.push(&part.refusal.ok_or_else(|| missing("refusal"))?),
            Some(kind) => other(kind, part, &at, &mut said)?,
            None => {
                return Err(ApiError::param(
                    format!("{at}.type"),
                    format!("a part needs a type, such as {}", types[0]),
                ));
            }
        }
    }
    Ok(said)
}
