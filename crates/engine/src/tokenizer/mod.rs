//! Text to token ids and back, from the vocabulary of a GGUF file.
//!
//! ```text
//! text ── special ──► fragments ──► bpe (split into words, merge) or spm (merge by score) ──► ids
//! ids  ── token_bytes ──► bytes ── stream ──► text
//! ```
//! The results are those of transformers for the same vocabulary, with one liberty: special tokens are recognised in a
//! text only if the caller says so ([`EncodeOptions::parse_special`]), so that a user's text cannot forge them.

mod alphabet;
mod bpe;
mod error;
mod merge;
mod special;
mod split;
mod spm;
mod stream;

pub use error::TokenizerError;
pub(crate) use spm::byte_token;
pub use stream::StreamDecoder;

use crate::notice::Notice;
use bpe::{ByteLevel, Family};
use merge::Merger;
use special::{Fragment, Matcher};
use spm::Scored;

/// What a GGUF file says about its tokenizer. Nothing is checked before [`Tokenizer::new`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece-style BPE).
    pub model: String,
    /// `tokenizer.ggml.pre`: the pre-tokenizer of byte-level BPE; without it `default`, and [`Tokenizer::notice`] says so.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the text of each token, in the byte alphabet for `gpt2`.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: needed by `llama`, not used by `gpt2`; empty if the key is missing.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Needed by
    /// `llama`; if empty, the tokens named by the ids below are control tokens and all others are normal.
    pub types: Vec<i32>,
    /// `tokenizer.ggml.merges`: pairs of tokens with a space between, best first; needed by `gpt2`.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`: begins a sequence.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`: ends a sequence.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`: stands for characters that have no token. Only `llama` uses it; byte-level
    /// BPE drops bytes without a token, as transformers does.
    pub unknown: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`: fills a batch.
    pub padding: Option<u32>,
    /// `tokenizer.ggml.eot_token_id` and `tokenizer.ggml.eom_token_id`, as far as present: also end a generation.
    pub end_of_generation: Vec<u32>,
    /// `tokenizer.ggml.add_bos_token`; without it, the family's habit.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`; without it, false.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`; without it, true for `llama` and false for `gpt2`.
    pub add_space_prefix: Option<bool>,
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
];

/// Where a vocabulary has all of these (Harmony, gpt-oss), the last ends one message of several, and no generation.
const HARMONY_ENDS: [&str; 3] = ["<|return|>", "<|call|>", "<|end|>"];

/// The values of `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    fn new(value: i32) -> Option<Self> {
        Some(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Special tokens mark up a text; they are not a part of it.
    fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// How [`Tokenizer::encode`] treats special tokens. The default is that of a plain text: neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds the beginning-of-sequence and end-of-sequence tokens that the vocabulary asks for. Not for the output of a
    /// chat template, which has them already.
    pub add_special: bool,
    /// Recognises control tokens written in the text, such as `<|im_start|>`. Needed for the output of a chat template;
    /// never set it for text that is not trusted. User-defined tokens are always recognised.
    pub parse_special: bool,
}

#[derive(Debug)]
enum Model {
    ByteLevel(ByteLevel),
    Scored(Scored),
}

/// A tokenizer, ready for use from several threads.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    tokens: Vec<String>,
    types: Vec<TokenType>,
    /// The bytes of all tokens one after another; token `i` has `offsets[i]..offsets[i + 1]`.
    bytes: Vec<u8>,
    offsets: Vec<usize>,
    /// Matches user-defined tokens.
    defined: Matcher,
    /// Matches user-defined and special tokens.
    special: Matcher,
    bos: Option<u32>,
    eos: Option<u32>,
    padding: Option<u32>,
    /// Sorted.
    end_of_generation: Vec<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Byte-level BPE whose pre-tokenizer the vocabulary does not name.
    lacks_pre: bool,
}

impl Tokenizer {
    /// The longest text that can be encoded at once: positions are 32-bit, and a space may become three bytes.
    pub const MAX_TEXT: usize = (u32::MAX / 3 - 1) as usize;

    /// Checks a vocabulary and builds its tokenizer.
    ///
    /// # Errors
    /// A [`TokenizerError`] that names the metadata key: an unknown model, pre-tokenizer or token type, tables of
    /// different lengths, ids outside the vocabulary, merges of missing tokens, scores that are not numbers.
    pub fn new(vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        let family = match vocabulary.model.as_str() {
            "gpt2" => Some(Family::find(vocabulary.pre.as_deref())?),
            "llama" => match vocabulary.pre.as_deref() {
                None | Some("default") => None,
                Some(name) => {
                    return Err(TokenizerError::UnknownPreTokenizer {
                        name: name.to_owned(),
                        model: vocabulary.model,
                        known: "default".to_owned(),
                    });
                }
            },
            _ => {
                return Err(TokenizerError::UnknownModel { name: vocabulary.model });
            }
        };
        check_tables(&vocabulary)?;
        let mut end_of_generation = check_special_ids(&vocabulary)?;
        let types = token_types(&vocabulary)?;
        let model = match family {
            Some(family) => Model::ByteLevel(ByteLevel::new(&vocabulary, &types, family)?),
            None => Model::Scored(Scored::new(&vocabulary, &types)?),
        };

        let mut bytes = Vec::new();
        let mut offsets = vec![0];
        for (token, &kind) in vocabulary.tokens.iter().zip(&types) {
            let plain = matches!(kind, TokenType::Normal | TokenType::Unused);
            match &model {
                Model::ByteLevel(_) if plain => match bpe::decode(token) {
                    Some(decoded) => bytes.extend(decoded),
                    None => bytes.extend(token.as_bytes()),
                },
                Model::Scored(_) if kind == TokenType::Byte => bytes.extend(spm::byte_token(token)),
                Model::Scored(_) if !kind.is_special() => bytes.extend(token.replace(spm::SPACE, " ").bytes()),
                _ => bytes.extend(token.as_bytes()),
            }
            offsets.push(bytes.len());
        }

        let typed = || (0..).zip(vocabulary.tokens.iter().map(String::as_str)).zip(types.iter().copied());
        let matcher = |wanted: fn(TokenType) -> bool| {
            let tokens = typed().filter(|&(_, kind)| wanted(kind)).map(|((id, token), _)| (token, id));
            Matcher::new(tokens).map_err(|error| TokenizerError::BadEntry {
                key: "tokens",
                index: 0,
                problem: format!("begins a table whose special tokens cannot be indexed: {error}"),
            })
        };
        let defined = matcher(|kind| kind == TokenType::UserDefined)?;
        let special = matcher(|kind| kind == TokenType::UserDefined || kind.is_special())?;

        let known_ends =
            typed().filter(|&((_, token), kind)| kind != TokenType::Normal && END_OF_GENERATION.contains(&token));
        end_of_generation.extend(known_ends.map(|((id, _), _)| id));
        let [returns, calls, ends] = HARMONY_ENDS.map(|end| {
            let found = typed().find(|&((_, token), kind)| kind != TokenType::Normal && token == end);
            found.map(|((id, _), _)| id)
        });
        if returns.is_some() && calls.is_some() {
            end_of_generation.retain(|&id| Some(id) != ends);
        }
        end_of_generation.sort_unstable();
        end_of_generation.dedup();

        let habit = family.is_none_or(|family| family.add_bos) && vocabulary.bos.is_some();
        Ok(Self {
            add_bos: vocabulary.add_bos.unwrap_or(habit),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            lacks_pre: family.is_some() && vocabulary.pre.is_none(),
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            padding: vocabulary.padding,
            tokens: vocabulary.tokens,
            model,
            types,
            bytes,
            offsets,
            defined,
            special,
            end_of_generation,
        })
    }

    /// The number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// The token that begins a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that fills a batch.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }

    /// Whether `add_special` puts [`Self::bos`] before a text.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Byte-level BPE whose pre-tokenizer the vocabulary does not name: `default` stands in for it.
    pub fn notice(&self) -> Option<Notice> {
        self.lacks_pre.then_some(Notice::NoPreTokenizer)
    }

    /// Whether a generation ends with this token.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// The tokens that end a generation, in ascending order.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Whether this is a control token or the unknown token, which mark up a text and are not a part of it.
    pub fn is_special(&self, id: u32) -> bool {
        self.types.get(id as usize).is_some_and(|kind| kind.is_special())
    }

    /// The token as the vocabulary writes it, such as `Ġthe` or `▁the` for " the".
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn token_text(&self, id: u32) -> Result<&str, TokenizerError> {
        self.tokens.get(id as usize).map(String::as_str).ok_or_else(|| self.out_of_range(id))
    }

    /// The bytes that a token stands for; they need not be whole UTF-8 characters. For special tokens, their name.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        let range = self.offsets.get(id as usize).zip(self.offsets.get(id as usize + 1));
        range.and_then(|(&start, &end)| self.bytes.get(start..end)).ok_or_else(|| self.out_of_range(id))
    }

    /// The tokens that stand for exactly these bytes, in ascending order: mostly one or none. Spaces count: ` the` and
    /// `the` are different tokens. A special token stands for its name.
    pub fn tokens_of_bytes(&self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        let of = |pair: &[usize]| self.bytes.get(pair[0]..pair[1]);
        (0..).zip(self.offsets.windows(2)).filter(move |(_, pair)| of(pair) == Some(bytes)).map(|(id, _)| id)
    }

    /// Turns a text into token ids. Time and memory grow linearly with the text, but for a logarithmic factor in its
    /// longest word.
    ///
    /// # Errors
    /// [`TokenizerError::TextTooLong`], or [`TokenizerError::NoToken`] if a `llama` vocabulary has neither a token
    /// nor bytes for a character and no unknown token.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > Self::MAX_TEXT {
            return Err(TokenizerError::TextTooLong { len: text.len(), max: Self::MAX_TEXT });
        }
        let mut ids = Vec::new();
        let mut merger = Merger::default();
        if options.add_special && self.add_bos {
            ids.extend(self.bos);
        }
        let matcher = if options.parse_special { &self.special } else { &self.defined };
        matcher.split(text, |fragment| {
            match (fragment, &self.model) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Model::ByteLevel(model)) => model.encode(text, &mut merger, &mut ids),
                (Fragment::Text(text), Model::Scored(model)) => model.encode(text, &mut merger, &mut ids)?,
            }
            Ok(())
        })?;
        if options.add_special && self.add_eos {
            ids.extend(self.eos);
        }
        Ok(ids)
    }

    /// Turns token ids into a text. With `skip_special`, control tokens and the unknown token give nothing. Bytes that
    /// are not UTF-8 become U+FFFD, as in [`String::from_utf8_lossy`].
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`].
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::new();
        for &id in ids {
            let token = self.token_bytes(id)?;
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(token);
            }
        }
        let first_space = self.drops_first_space() && bytes.starts_with(b" ");
        Ok(String::from_utf8_lossy(&bytes[usize::from(first_space)..]).into_owned())
    }

    /// Whether a space at the start of a text was added by the tokenizer.
    fn drops_first_space(&self) -> bool {
        matches!(&self.model, Model::Scored(model) if model.add_space_prefix())
    }

    fn out_of_range(&self, id: u32) -> TokenizerError {
        TokenizerError::IdOutOfRange { id, vocab_size: self.tokens.len() }
    }
}

/// Checks the lengths of the tables.
fn check_tables(vocabulary: &Vocabulary) -> Result<(), TokenizerError> {
    let tokens = vocabulary.tokens.len();
    let max = i32::MAX as usize;
    let size = |key, len, min| {
        if (min..=max).contains(&len) {
            return Ok(());
        }
        Err(TokenizerError::TableSize { key, len, model: vocabulary.model.clone(), min, max })
    };
    size("tokens", tokens, 1)?;
    size("merges", vocabulary.merges.len(), usize::from(vocabulary.model == "gpt2"))?;
    for (key, len) in [("scores", vocabulary.scores.len()), ("token_type", vocabulary.types.len())] {
        let optional = vocabulary.model == "gpt2" && len == 0;
        if len != tokens && !optional {
            return Err(TokenizerError::TableLength { key, len, tokens });
        }
    }
    Ok(())
}

/// Checks the ids in the metadata and returns those that end a generation.
fn check_special_ids(vocabulary: &Vocabulary) -> Result<Vec<u32>, TokenizerError> {
    let vocab_size = vocabulary.tokens.len();
    let named = [
        ("tokenizer.ggml.bos_token_id", vocabulary.bos),
        ("tokenizer.ggml.eos_token_id", vocabulary.eos),
        ("tokenizer.ggml.unknown_token_id", vocabulary.unknown),
        ("tokenizer.ggml.padding_token_id", vocabulary.padding),
    ];
    let ends = vocabulary.end_of_generation.iter().map(|&id| ("tokenizer.ggml.eot_token_id or eom_token_id", Some(id)));
    for (key, id) in named.into_iter().chain(ends) {
        if let Some(id) = id.filter(|&id| id as usize >= vocab_size) {
            return Err(TokenizerError::SpecialOutOfRange { key, id, vocab_size });
        }
    }
    let asked = [
        ("tokenizer.ggml.add_bos_token", vocabulary.add_bos, named[0]),
        ("tokenizer.ggml.add_eos_token", vocabulary.add_eos, named[1]),
    ];
    for (flag, add, (key, id)) in asked {
        if add == Some(true) && id.is_none() {
            return Err(TokenizerError::MissingSpecial { flag, key });
        }
    }
    Ok(vocabulary.end_of_generation.iter().copied().chain(vocabulary.eos).collect())
}

fn token_types(vocabulary: &Vocabulary) -> Result<Vec<TokenType>, TokenizerError> {
    if vocabulary.types.is_empty() {
        let named = [vocabulary.bos, vocabulary.eos, vocabulary.unknown, vocabulary.padding];
        let is_named = |id: u32| named.contains(&Some(id)) || vocabulary.end_of_generation.contains(&id);
        let ids = (0..).take(vocabulary.tokens.len());
        return Ok(ids.map(|id| if is_named(id) { TokenType::Control } else { TokenType::Normal }).collect());
    }
    let types = vocabulary.types.iter().enumerate().map(|(index, &value)| {
        TokenType::new(value).ok_or_else(|| TokenizerError::BadEntry {
            key: "token_type",
            index,
            problem: format!("is {value}, not a token type (1 to 6)"),
        })
    });
    types.collect()
}
