//! What a request continues.

use gristmill_text::tokenizer::EncodeOptions;
use serde::{Deserialize, Serialize};

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
    },
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
