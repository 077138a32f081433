//! What a request continues.

use std::fmt::Write;
use std::sync::Arc;

use gristmill_text::tokenizer::EncodeOptions;
use gristmill_text::tokenizer::TokenizerError;
use gristmill_vision::{ImageSpan, Prepared};
use serde::de::{Deserializer, Error};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// The input of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Prompt {
    /// Token ids, used without changes.
    Tokens(Vec<u32>),
    /// A text to be continued.
    Text {
        /// The text.
        text: String,
        /// Whether the tokens that the model wants around a text (such as BOS) are added, and whether control tokens
        /// written in it are control tokens: both for [`Prompt::from`] a text.
        options: EncodeOptions,
    },
    /// The prompt of a conversation, as [`Engine::converse`](crate::Engine::converse) renders it: control tokens of the
    /// template are parsed, texts of the conversation are text, and no tokens are added.
    Rendered {
        /// The text.
        text: String,
        /// The bytes, in ascending order, that no control token includes: those with which a control token would start
        /// in what the conversation says.
        plain: Vec<usize>,
        /// Whether the text ends with the start of the reply. Then generated tokens continue a text, so that a space
        /// before the first word is kept.
        is_started: bool,
        /// The images. The text has one token of the model for each of these runs, in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<PromptImage>,
    },
}

impl Prompt {
    /// The prompt of a conversation, without images and without the start of the reply.
    pub fn rendered(text: String, plain: Vec<usize>) -> Prompt {
        Prompt::Rendered { text, plain, is_started: false, images: Vec::new() }
    }
}

/// A run of tokens that stand for a tile of an image, or for a part of one.
#[derive(Debug, Clone)]
pub struct PromptImage {
    /// The image.
    pub image: Arc<Prepared>,
    /// The index of the tile.
    pub tile: usize,
    /// The first of the tile's tokens.
    pub first: usize,
    /// Their number.
    pub tokens: usize,
}

impl PartialEq for PromptImage {
    fn eq(&self, other: &PromptImage) -> bool {
        let of = |own: &PromptImage| (own.image.hash, own.tile, own.first, own.tokens);
        of(self) == of(other)
    }
}

/// An image is named by its hash: a receipt has no pixels.
impl Serialize for PromptImage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hash = self.image.hash.iter().fold(String::new(), |mut hash, byte| {
            // Writing to a string does not fail.
            let _ = write!(hash, "{byte:02x}");
            hash
        });
        let mut fields = serializer.serialize_struct("PromptImage", 4)?;
        fields.serialize_field("sha256", &hash)?;
        fields.serialize_field("tile", &self.tile)?;
        fields.serialize_field("first", &self.first)?;
        fields.serialize_field("tokens", &self.tokens)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for PromptImage {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<PromptImage, D::Error> {
        Err(D::Error::custom("the prompt has images, of which a receipt has only the hashes; send the request again"))
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text { text, options: EncodeOptions::RAW }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        Prompt::from(text.to_owned())
    }
}

/// The tokens of a prompt with images, in which each token `id` is repeated for its run, and the places of the runs. At
/// most `most` tokens.
pub(crate) fn spread(
    tokens: &[u32],
    id: u32,
    runs: &[PromptImage],
    most: usize,
) -> Result<(Vec<u32>, Vec<ImageSpan>), EngineError> {
    let found = tokens.iter().filter(|&&token| token == id).count();
    if found != runs.len() {
        return Err(EngineError::ImageTemplate { found, expected: runs.len() });
    }
    let more = runs.iter().map(|run| run.tokens).fold(0, usize::saturating_add);
    let at_least = (tokens.len() - runs.len()).saturating_add(more);
    if at_least > most {
        return Err(crate::Error::from(TokenizerError::TooManyTokens { at_least, most }).into());
    }
    let mut out = Vec::with_capacity(at_least);
    let mut spans = Vec::with_capacity(runs.len());
    let mut left = runs.iter();
    for &token in tokens {
        match left.as_slice().first().filter(|_| token == id) {
            None => out.push(token),
            Some(PromptImage { image, tile, first, tokens }) => {
                left.next();
                let (image, start) = (image.clone(), out.len());
                spans.push(ImageSpan { start, tokens: *tokens, image, tile: *tile, first: *first });
                out.extend(std::iter::repeat_n(id, *tokens));
            }
        }
    }
    Ok((out, spans))
}
