//! `tokenizer.json`: the pipeline of the `tokenizers` library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gristmill_files::json::cut;
use gristmill_text::tokenizer::TokenFlags;
use serde::Deserialize;
use serde_json::Value;

use super::special;
use super::tokens::{Added, Flags, Token, unique};
use crate::config::Config;
use crate::error::ConvertError;
use crate::files::read_json;

/// The part of the file that is used.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with a tokenizer's steps")]
pub(super) struct TokenizerJson {
    #[serde(skip)]
    pub(super) path: PathBuf,
    #[serde(default)]
    added_tokens: Vec<AddedRecord>,
    #[serde(default)]
    pub(super) normalizer: Value,
    #[serde(default)]
    pub(super) pre_tokenizer: Value,
    #[serde(default)]
    pub(super) post_processor: Value,
    pub(super) model: Bpe,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with id and content of an added token")]
struct AddedRecord {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    normalized: bool,
}

impl AddedRecord {
    fn flags(&self) -> TokenFlags {
        let &AddedRecord { lstrip, rstrip, single_word, normalized, .. } = self;
        TokenFlags { lstrip, rstrip, single_word, normalized }
    }
}

/// The model, byte pair encoding.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with vocab and merges")]
pub(super) struct Bpe {
    pub(super) vocab: BTreeMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

/// Merges are written as `"a b"`, since 2024 as `["a", "b"]`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a merge is neither a string nor a pair of strings")]
enum Merge {
    Joined(String),
    Pair(String, String),
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a tokenizer's steps")]
struct Outline {
    model: ModelOutline,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a tokenizer's model")]
struct ModelOutline {
    /// Missing in files from before 2020.
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

impl TokenizerJson {
    pub(super) fn read(path: &Path) -> Result<TokenizerJson, ConvertError> {
        let unsupported = |found: String| ConvertError::Tokenizer {
            path: path.to_owned(),
            found,
            known: "byte pair encoding (BPE), over bytes or with a fallback to bytes",
        };
        if let Some(kind) = read_json::<Outline>(path)?.model.kind.filter(|kind| kind != "BPE") {
            return Err(unsupported(format!("a tokenizer model of type {:?}", cut(kind, 80))));
        }
        let json = TokenizerJson { path: path.to_owned(), ..read_json(path)? };
        let Bpe { continuing_subword_prefix, end_of_word_suffix, .. } = &json.model;
        let affix =
            [continuing_subword_prefix, end_of_word_suffix].into_iter().flatten().find(|affix| !affix.is_empty());
        if let Some(affix) = affix {
            return Err(unsupported(format!("a vocabulary that marks parts of words with {:?}", cut(affix, 80))));
        }
        unique(path, &json.model.vocab)?;
        Ok(json)
    }

    /// An error about a part of the file.
    pub(super) fn wrong(&self, part: &str, problem: String) -> ConvertError {
        ConvertError::Vocabulary { path: self.path.clone(), problem: format!("{part}: {problem}") }
    }

    /// An error about the steps before the model.
    pub(super) fn unsupported(&self, known: &'static str) -> ConvertError {
        let (normalizer, pre_tokenizer) = (cut(&self.normalizer, 300), cut(&self.pre_tokenizer, 300));
        let found = format!("normalizer {normalizer} with pre_tokenizer {pre_tokenizer}");
        ConvertError::Tokenizer { path: self.path.clone(), found, known }
    }

    /// Texts of the tokens that were added.
    pub(super) fn added(&self) -> impl Iterator<Item = &str> {
        self.added_tokens.iter().map(|token| token.content.as_str())
    }

    /// The flags of the tokens that were added.
    pub(super) fn flags(&self) -> Flags {
        self.added_tokens.iter().map(|token| (token.id, token.flags())).collect()
    }

    /// Id and token of all that were added. What `tokenizer_config.json` (`about`) names as special is so, whatever
    /// this file says.
    pub(super) fn added_tokens(&self, about: &Config, score: f32) -> Result<Vec<(u32, Token)>, ConvertError> {
        let own = self.added_tokens.iter().map(|token| (token.id, token.content.as_str(), token.special));
        let named = special::named(about)?.into_iter();
        let named = named.filter_map(|text| Some((*self.model.vocab.get(text)?, text, true)));
        let token = |(id, text, special): (u32, &str, bool)| {
            Added { text: text.to_owned(), special, flags: TokenFlags::default() }.with_id(id, score)
        };
        Ok(own.chain(named).map(token).collect())
    }

    /// The pairs to merge, best first.
    pub(super) fn merges(&self) -> Result<Vec<(&str, &str)>, ConvertError> {
        let mut pairs = Vec::with_capacity(self.model.merges.len());
        for (rank, merge) in self.model.merges.iter().enumerate() {
            let pair = match merge {
                Merge::Pair(left, right) => Some((left.as_str(), right.as_str())),
                Merge::Joined(both) => both.split_once(' '),
            };
            let good =
                pair.filter(|(left, right)| [left, right].iter().all(|part| !part.is_empty() && !part.contains(' ')));
            pairs.push(good.ok_or_else(|| ConvertError::Vocabulary {
                path: self.path.clone(),
                problem: format!(
                    "merge {rank} is {}, not two tokens without spaces",
                    cut(format_args!("{merge:?}"), 80)
                ),
            })?);
        }
        Ok(pairs)
    }

    /// The same as GGUF has them.
    pub(super) fn joined_merges(&self) -> Result<Vec<String>, ConvertError> {
        Ok(self.merges()?.into_iter().map(|(left, right)| format!("{left} {right}")).collect())
    }
}
