//! Texts of messages and items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::content::{Content, TextOr, media_type, placeholder, shortened};
use crate::error::ApiError;

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
    /// The address of an image, whose media type the line has.
    image_url: Option<TextOr<Address>>,
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
    url: String,
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
        let address = self.image_url.map(|(TextOr::Text(url) | TextOr::Object(Address { url }))| url);
        let address = address.or(data).unwrap_or_default();
        placeholder(kind, media_type(&address), name.as_deref().map(shortened))
    }
}

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
    joined(content, types, at, |kind, _, at| {
        let message = format!("parts of type {kind:?} are not supported here; use {}", types.join(" or "));
        Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
    })
}

/// The text of a tool's result at the path `at`, in which a line stands for each part of another type.
pub(super) fn result_text(content: Content<ContentPart>, types: &[&str], at: &str) -> Result<String, ApiError> {
    joined(content, types, at, |kind, part, _| Ok(part.placeholder(kind)))
}

/// The texts of parts. `other` returns the text of a part of another type, from its type and its path.
fn joined(
    content: Content<ContentPart>,
    types: &[&str],
    at: &str,
    other: impl Fn(&str, ContentPart, &str) -> Result<String, ApiError>,
) -> Result<String, ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok(text),
        Content::Parts(parts) => parts,
    };
    let part = |(index, mut part): (usize, ContentPart)| {
        let at = format!("{at}[{index}]");
        let missing =
            |field: &str| ApiError::param(format!("{at}.{field}"), format!("the part needs the text {field}"));
        match part.r#type.take().as_deref() {
            Some(THINKING) if types.contains(&THINKING) => Ok(None),
            Some(known) if types.contains(&known) => part.text.ok_or_else(|| missing("text")).map(Some),
            Some("refusal") => part.refusal.ok_or_else(|| missing("refusal")).map(Some),
            Some(kind) => other(kind, part, &at).map(Some),
            None => Err(ApiError::param(format!("{at}.type"), format!("a part needs a type, such as {}", types[0]))),
        }
    };
    let texts: Vec<Option<String>> = parts.into_iter().enumerate().map(part).collect::<Result<_, _>>()?;
    Ok(texts.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}
