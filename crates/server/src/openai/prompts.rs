//! The texts of a request, in each form that OpenAI has.

use gristmill_engine::Prompt;
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

impl Prompts {
    /// From 1 to `most` texts, which the field `param` has.
    pub(crate) fn list(self, param: &str, most: usize) -> Result<Vec<Prompt>, ApiError> {
        let prompts: Vec<Prompt> = match self {
            Prompts::Text(text) => vec![text.into()],
            Prompts::Texts(texts) => texts.into_iter().map(Prompt::from).collect(),
            Prompts::Tokens(tokens) => vec![tokens.into()],
            Prompts::TokenLists(lists) => lists.into_iter().map(Prompt::from).collect(),
        };
        match prompts.len() {
            0 => Err(ApiError::param(param, format!("{param} is an empty list; give at least one text"))),
            n if n > most => Err(ApiError::param(param, format!("{param} has {n} texts; at most {most} are accepted"))),
            _ => Ok(prompts),
        }
    }
}
