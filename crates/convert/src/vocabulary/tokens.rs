//! Tokens, vocabularies and their tables.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use gristmill_files::json::cut;
use gristmill_text::tokenizer::{TokenFlags, TokenType as Kind};

use crate::error::ConvertError;

/// A token: text, score, kind.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

/// A vocabulary to be written.
pub(super) struct Vocabulary {
    /// `gpt2`, `llama` or what the family says.
    pub(super) model: &'static str,
    /// `None` leaves the key out.
    pub(super) pre: Option<String>,
    pub(super) tokens: Vec<Token>,
    pub(super) scored: bool,
    pub(super) merges: Vec<String>,
    /// `None` leaves the key out: the model's default.
    pub(super) space_prefix: Option<bool>,
    /// Whether a beginning-of-sequence token is added, whatever the tokenizer's settings say.
    pub(super) adds_bos: Option<bool>,
}

/// A token that was added to a vocabulary, from any of the files that say so.
#[derive(Debug, Clone)]
pub(super) struct Added {
    pub(super) text: String,
    pub(super) special: bool,
    pub(super) flags: TokenFlags,
}

/// The flags of added tokens, by id.
pub(super) type Flags = BTreeMap<u32, TokenFlags>;

/// Whether a token marks up a text, although vocabularies list it as ordinary.
pub(super) fn looks_special(text: &str) -> bool {
    let between = |open: &str, close: &str| text.starts_with(open) && text.ends_with(close);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}

impl Added {
    /// The token with its id. Spaces are written as they are in tokens that are matched in the text itself.
    pub(super) fn with_id(self, id: u32, score: f32) -> (u32, Token) {
        let (kind, text) = match self.special || looks_special(&self.text) {
            true => (Kind::Control, self.text),
            false => (Kind::UserDefined, self.text.replace('\u{2581}', " ")),
        };
        (id, Token { text, score, kind })
    }
}

/// More than any vocabulary has; fillers for more would take memory without end.
const MAX_TOKENS: usize = 1 << 24;

/// Refuses a vocabulary that gives one id to two tokens.
pub(super) fn unique(path: &Path, vocabulary: &BTreeMap<String, u32>) -> Result<(), ConvertError> {
    let mut texts = HashMap::with_capacity(vocabulary.len());
    for (text, &id) in vocabulary {
        if let Some(first) = texts.insert(id, text) {
            let (first, second) = (cut(first, 80), cut(text, 80));
            let problem =
                format!("tokens {first:?} and {second:?} both have id {id}; the file is damaged, fetch it again");
            return Err(ConvertError::Vocabulary { path: path.to_owned(), problem });
        }
    }
    Ok(())
}

/// `size` tokens by id, those that are not given as fillers.
pub(super) fn table(
    path: &Path,
    given: impl IntoIterator<Item = (u32, Token)>,
    size: usize,
    filler_score: f32,
) -> Result<Vec<Token>, ConvertError> {
    let wrong = |problem: String| ConvertError::Vocabulary { path: path.to_owned(), problem };
    if size > MAX_TOKENS {
        return Err(wrong(format!("the embedding table has {size} rows; at most {MAX_TOKENS} tokens are supported")));
    }
    let mut by_id: BTreeMap<u32, Token> = BTreeMap::new();
    for (id, token) in given {
        if id as usize >= size {
            let text = cut(&token.text, 80);
            return Err(wrong(format!(
                "token {text:?} has id {id}, but the model has {size} tokens; the files do not belong together"
            )));
        }
        by_id.insert(id, token);
    }
    let filler = |id: u32| Token { text: format!("[PAD{id}]"), score: filler_score, kind: Kind::Unused };
    Ok((0..size as u32).map(|id| by_id.remove(&id).unwrap_or_else(|| filler(id))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_filled_up_and_bounded() {
        let path = Path::new("tokenizer.json");
        let token = Token { text: "a".to_owned(), score: 0.0, kind: Kind::Normal };
        let tokens = table(path, [(1, token)], 3, -1.0).unwrap();
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["[PAD0]", "a", "[PAD2]"]);
        for size in [MAX_TOKENS + 1, (1 << 32) + 3, usize::MAX] {
            let error = table(path, [], size, 0.0).unwrap_err().to_string();
            assert!(error.contains(&format!("{size} rows")), "{error}");
        }
    }
}
