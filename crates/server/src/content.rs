//! Contents of messages: a text, or a list; and the text that stands for what is none.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A text, or a list of parts.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Content<P> {
    Text(String),
    Parts(Vec<P>),
}

// Serde reports no path of an error within an untagged enum.
impl<'de, P: Deserialize<'de>> Deserialize<'de> for Content<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content<P>, D::Error> {
        deserializer.deserialize_any(ContentVisitor { takes_one: false, part: PhantomData })
    }
}

/// A content that may also be one part without a list around it.
#[derive(Debug, Clone)]
pub(crate) struct ContentOrPart<P>(pub(crate) Content<P>);

impl<'de, P: Deserialize<'de>> Deserialize<'de> for ContentOrPart<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ContentOrPart<P>, D::Error> {
        deserializer.deserialize_any(ContentVisitor { takes_one: true, part: PhantomData }).map(ContentOrPart)
    }
}

/// A text, or an object with it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum TextOr<T> {
    Text(String),
    Object(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextOr<T>, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_str<E>(self, text: &str) -> Result<TextOr<T>, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<TextOr<T>, E> {
        Ok(TextOr::Text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextOr<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Object)
    }
}

/// The text that stands for a part of a tool's result which is no text, such as an image. A tool returns what it
/// returns, and a refusal would end the conversation for good; so the model is told what it does not see.
pub(crate) fn placeholder(kind: &str, media_type: Option<&str>, name: Option<&str>) -> String {
    let kind = kind.strip_prefix("input_").unwrap_or(kind).trim_end_matches("_url");
    let details: Vec<&str> = [name, media_type].into_iter().flatten().collect();
    let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
    format!("[{}{details}: not shown, because this model cannot read it]", shortened(kind))
}

/// The media type of a `data:` address.
pub(crate) fn media_type(address: &str) -> Option<&str> {
    let (media_type, _) = address.strip_prefix("data:")?.split_once([';', ','])?;
    Some(shortened(media_type)).filter(|media_type| !media_type.is_empty())
}

/// The start of what a client wrote, which may have megabytes.
pub(crate) fn shortened(text: &str) -> &str {
    text.char_indices().nth(100).map_or(text, |(end, _)| &text[..end])
}

struct ContentVisitor<P> {
    takes_one: bool,
    part: PhantomData<P>,
}

impl<'de, P: Deserialize<'de>> Visitor<'de> for ContentVisitor<P> {
    type Value = Content<P>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<P>, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Content<P>, E> {
        Ok(Content::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<P>, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = list.next_element()? {
            parts.push(part);
        }
        Ok(Content::Parts(parts))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content<P>, A::Error> {
        match self.takes_one {
            true => Ok(Content::Parts(vec![P::deserialize(MapAccessDeserializer::new(map))?])),
            false => Err(A::Error::invalid_type(Unexpected::Map, &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_say_what_is_left_out() {
        for (kind, media_type, name, expected) in [
            ("image", Some("image/png"), None, "[image (image/png): not shown, because this model cannot read it]"),
            ("input_image", None, None, "[image: not shown, because this model cannot read it]"),
            ("image_url", None, None, "[image: not shown, because this model cannot read it]"),
            (
                "document",
                Some("application/pdf"),
                Some("a.pdf"),
                "[document (a.pdf, application/pdf): not shown, because this model cannot read it]",
            ),
        ] {
            assert_eq!(placeholder(kind, media_type, name), expected);
        }
        assert_eq!(media_type("data:image/png;base64,AAAA"), Some("image/png"));
        assert_eq!(media_type("data:text/plain,hi"), Some("text/plain"));
        assert_eq!(
            (media_type("https://a/b.png"), media_type("data:;base64,AA"), media_type("data:")),
            (None, None, None)
        );
    }
}
