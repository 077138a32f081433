//! Texts of messages and items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::content::Content;
use crate::error::ApiError;

/// A part of a text. Parts are joined by line ends.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(crate) struct ContentPart {
    /// `text`; in items of a response `input_text`, `output_text`, `reasoning_text` or `summary_text`; `refusal`.
    r#type: Option<String>,
    text: Option<String>,
    /// The text of a refusal, which another server has written.
    refusal: Option<String>,
}

/// The text of a content at the path `at`, whose parts have one of these types.
pub(super) fn text(content: Content<ContentPart>, types: &[&str], at: &str) -> Result<String, ApiError> {
    let parts = match content {
        Content::Text(text) => return Ok(text),
        Content::Parts(parts) => parts,
    };
    let part = |(index, part): (usize, ContentPart)| {
        let at = format!("{at}[{index}]");
        let missing =
            |field: &str| ApiError::param(format!("{at}.{field}"), format!("the part needs the text {field}"));
        match part.r#type.as_deref() {
            Some(known) if types.contains(&known) => part.text.ok_or_else(|| missing("text")),
            Some("refusal") => part.refusal.ok_or_else(|| missing("refusal")),
            Some(other) => {
                let message = format!("parts of type {other:?} are not supported here; use {}", types.join(" or "));
                Err(ApiError::param(format!("{at}.type"), message).with_code("unsupported"))
            }
            None => Err(ApiError::param(format!("{at}.type"), format!("a part needs a type, such as {}", types[0]))),
        }
    };
    Ok(parts.into_iter().enumerate().map(part).collect::<Result<Vec<_>, _>>()?.join("\n"))
}
