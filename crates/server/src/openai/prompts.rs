//! The texts of a request, in each form that OpenAI has.

use gristmill_engine::Prompt;
use gristmill_engine::tokenizer::EncodeOptions;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::ApiError;

/// One text or several, or their tokens.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a string, a list of strings, a list of token ids, or a list of such lists")]
pub(crate) enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// How texts become tokens. Lists of token ids are taken as they are.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct SpecialFields {
    /// Add the tokens that the model wants around a text, such as BOS, unless the text has them; true by default.
    pub(super) add_special_tokens: Option<bool>,
    /// Read control tokens written in the text, such as `<|im_start|>`, as control tokens; true by default.
    pub(super) parse_special: Option<bool>,
}

impl SpecialFields {
    pub(crate) fn options(self) -> EncodeOptions {
        EncodeOptions {
            add_special: self.add_special_tokens.unwrap_or(true),
            parse_special: self.parse_special.unwrap_or(true),
        }
    }
}

impl Prompts {
    /// From 1 to `most` texts, which the field `param` has.
    pub(crate) fn list(self, param: &str, most: usize, special: SpecialFields) -> Result<Vec<Prompt>, ApiError> {
        let options = special.options();
        let text = |text| Prompt::Text { text, options };
        let prompts: Vec<Prompt> = match self {
            Prompts::Text(one) => vec![text(one)],
            Prompts::Texts(texts) => texts.into_iter().map(text).collect(),
            Prompts::Tokens(tokens) => vec![tokens.into()],
            Prompts::TokenLists(lists) => lists.into_iter().map(Prompt::from).collect(),
        };
        match prompts.len() {
            0 => Err(ApiError::param(param, format!("{param} is an empty list; send at least one text"))),
            n if n > most => Err(ApiError::param(param, format!("{param} has {n} texts; at most {most} are accepted"))),
            _ => Ok(prompts),
        }
    }
}
