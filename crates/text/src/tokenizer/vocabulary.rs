//! The vocabulary of a GGUF file as it is there, and what must hold for it.

use std::collections::BTreeMap;

use super::error::TokenizerError;
use super::family::Family;
use super::special::TokenFlags;

/// The keys of a tokenizer in a GGUF file; [`Tokenizer::new`](super::Tokenizer::new) checks them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `llama` (SentencePiece-style BPE) or `gemma4` (SentencePiece's
    /// characters and bytes, merged by a list).
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer of byte-level BPE; `default` if the key is missing
    /// ([`lacks_pre_tokenizer`](super::Tokenizer::lacks_pre_tokenizer)).
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the text of each token, in the byte alphabet for `gpt2`.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: needed by `llama`, not used by the others; empty if the key is missing.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Needed by
    /// `llama`; if empty, the tokens named by the ids below are control tokens and all others are normal.
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`: pairs of tokens with a space between, best first; needed by `gpt2` and `gemma4`.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`: starts a sequence.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: ends a sequence.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`: stands for characters that have no token. `gpt2` does not use it; byte-level
    /// BPE drops bytes without a token, as transformers does.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`: fills a batch.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.eot_token_id` and `tokenizer.ggml.eom_token_id`, as far as present: also end a generation.
    pub end_of_generation: Vec<u32>,
    /// `tokenizer.ggml.add_bos_token`; without it, the family's default.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`; without it, false.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`; without it, true for `llama` and false for the others.
    pub add_space_prefix: Option<bool>,
    /// The flags of added tokens, by id; those of other tokens are all false.
    pub flags: BTreeMap<u32, TokenFlags>,
}

/// Control tokens that end a turn or a text in common vocabularies, whether or not the file names them.
const END_OF_GENERATION: &[&str] = &[
    "</s>",
    "<EOT>",
    "<|call|>",
    "<end_of_exclusive>",
    "<|end_of_text|>",
    "<|end|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|return|>",
    "<turn|>",
    TOOL_RESPONSE,
];

/// Gemma 4's: the result of a call follows. A vocabulary that has it has `</s>` as a word of HTML.
const TOOL_RESPONSE: &str = "<|tool_response>";

/// Where a vocabulary has all of these (Harmony, gpt-oss), the last ends one message of several, and no generation.
const HARMONY_ENDS: [&str; 3] = ["<|return|>", "<|call|>", "<|end|>"];

/// The values of `tokenizer.ggml.token_type`; SentencePiece has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    /// A piece of text.
    Normal = 1,
    /// The token of what no other token stands for.
    Unknown = 2,
    /// A mark that no text contains.
    Control = 3,
    /// A piece of text that is never split.
    UserDefined = 4,
    /// A token without use.
    Unused = 5,
    /// One byte.
    Byte = 6,
}

impl TokenType {
    /// The type with this number.
    pub fn new(value: i32) -> Option<Self> {
        use TokenType::*;
        [Normal, Unknown, Control, UserDefined, Unused, Byte].into_iter().find(|&kind| kind as i32 == value)
    }

    /// Special tokens mark up a text; they are not a part of it.
    pub(super) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

impl Vocabulary {
    /// The family of a byte-level BPE; `None` for a SentencePiece-style BPE.
    pub(super) fn family(&self) -> Result<Option<Family>, TokenizerError> {
        match (self.model.as_str(), self.pre.as_deref()) {
            ("gpt2", pre) => Family::find(pre).map(Some),
            ("llama", None | Some("default")) => Ok(None),
            ("gemma4", None | Some("default" | "gemma4")) => Ok(None),
            ("llama" | "gemma4", Some(name)) => Err(TokenizerError::UnknownPreTokenizer {
                name: name.to_owned(),
                model: self.model.clone(),
                known: "default".to_owned(),
            }),
            (name, _) => Err(TokenizerError::UnknownModel(name.to_owned())),
        }
    }

    /// Whether characters merge by a list.
    pub(super) fn has_merges(&self) -> bool {
        self.model == "gemma4"
    }

    /// Checks the lengths of the tables, and the ids in the metadata.
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        let tokens = self.tokens.len();
        let max = i32::MAX as usize;
        let is_bpe = self.model == "gpt2";
        let merges = usize::from(is_bpe || self.has_merges());
        for (key, len, min) in [("tokens", tokens, 1), ("merges", self.merges.len(), merges)] {
            if !(min..=max).contains(&len) {
                return Err(TokenizerError::TableSize { key, len, model: self.model.clone(), min, max });
            }
        }
        for (key, len) in [("scores", self.scores.len()), ("token_type", self.types.len())] {
            if len != tokens && !(is_bpe && len == 0) {
                return Err(TokenizerError::TableLength { key, len, tokens });
            }
        }
        let named = [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.unknown_token_id", self.unknown),
            ("tokenizer.ggml.padding_token_id", self.padding),
        ];
        let ends = self.end_of_generation.iter().map(|&id| ("tokenizer.ggml.eot_token_id or eom_token_id", Some(id)));
        let flagged = self.flags.keys().next_back().map(|&id| ("the flags of an added token", Some(id)));
        for (key, id) in named.into_iter().chain(ends).chain(flagged) {
            if let Some(id) = id.filter(|&id| id as usize >= tokens) {
                return Err(TokenizerError::SpecialOutOfRange { key, id, vocab_size: tokens });
            }
        }
        let asked = [
            ("tokenizer.ggml.add_bos_token", self.add_bos, named[0]),
            ("tokenizer.ggml.add_eos_token", self.add_eos, named[1]),
        ];
        match asked.into_iter().find(|(_, add, (_, id))| *add == Some(true) && id.is_none()) {
            Some((flag, _, (key, _))) => Err(TokenizerError::MissingSpecial { flag, key }),
            None => Ok(()),
        }
    }

    pub(super) fn token_types(&self) -> Result<Vec<TokenType>, TokenizerError> {
        if self.types.is_empty() {
            let named = [self.bos, self.eos, self.unknown, self.padding];
            let is_named = |id: u32| named.contains(&Some(id)) || self.end_of_generation.contains(&id);
            let ids = (0..).take(self.tokens.len());
            return Ok(ids.map(|id| if is_named(id) { TokenType::Control } else { TokenType::Normal }).collect());
        }
        let types = self.types.iter().enumerate().map(|(index, &value)| {
            TokenType::new(value).ok_or_else(|| TokenizerError::BadEntry {
                key: "token_type",
                index,
                problem: format!("is {value}, not a token type (1 to 6)"),
            })
        });
        types.collect()
    }

    /// The tokens that end a generation, in ascending order.
    pub(super) fn ends(&self, types: &[TokenType]) -> Vec<u32> {
        let typed = (0..).zip(&self.tokens).zip(types).filter(|&(_, &kind)| kind != TokenType::Normal);
        let marks: Vec<(u32, &str)> = typed.map(|((id, token), _)| (id, token.as_str())).collect();
        let has_html = marks.iter().any(|(_, token)| *token == TOOL_RESPONSE);
        let is_end = |token: &str| END_OF_GENERATION.contains(&token) && !(has_html && token == "</s>");
        let known = marks.iter().filter(|(_, token)| is_end(token)).map(|&(id, _)| id);
        let mut ends: Vec<u32> = self.end_of_generation.iter().copied().chain(self.eos).chain(known).collect();
        let harmony = HARMONY_ENDS.map(|end| marks.iter().find(|(_, token)| *token == end).map(|&(id, _)| id));
        if let [Some(_), Some(_), message] = harmony {
            ends.retain(|&id| Some(id) != message);
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
