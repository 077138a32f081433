//! Errors of a vocabulary, a text or a token id.

use thiserror::Error;

/// Why a tokenizer could not be built or used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.ggml.model` names this kind of tokenizer, which is not implemented.
    #[error(
        "tokenizer.ggml.model is {0:?}, which is not supported; \
         known tokenizer models: gpt2 (byte-level BPE), llama (SentencePiece-style BPE), gemma4"
    )]
    UnknownModel(String),
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not implemented.
    #[error(
        "tokenizer.ggml.pre is {name:?}, which is not supported for tokenizer model {model:?}; \
         known pre-tokenizers: {known}"
    )]
    UnknownPreTokenizer {
        /// The name in the file.
        name: String,
        /// The tokenizer model.
        model: String,
        /// The implemented names, separated by commas.
        known: String,
    },
    /// A table has no entries, or more than ids can count.
    #[error("tokenizer.ggml.{key} has {len} entries; a {model} tokenizer needs between {min} and {max}")]
    TableSize {
        /// The table, such as `tokens`.
        key: &'static str,
        /// Its length in the file.
        len: usize,
        /// The tokenizer model that needs it.
        model: String,
        /// The fewest entries accepted.
        min: usize,
        /// The most entries accepted.
        max: usize,
    },
    /// A table with one entry for each token has another length than the tokens.
    #[error("tokenizer.ggml.{key} has {len} entries for {tokens} tokens; the file is damaged")]
    TableLength {
        /// The table, such as `scores`.
        key: &'static str,
        /// Its length in the file.
        len: usize,
        /// The number of tokens.
        tokens: usize,
    },
    /// An entry of a table is not valid.
    #[error("tokenizer.ggml.{key}[{index}] {problem}")]
    BadEntry {
        /// The table, such as `merges`.
        key: &'static str,
        /// The index of the entry.
        index: usize,
        /// The problem.
        problem: String,
    },
    /// A token id in the metadata is outside the vocabulary.
    #[error("{key} is {id}, but the vocabulary has only {vocab_size} tokens")]
    SpecialOutOfRange {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        id: u32,
        /// The number of tokens.
        vocab_size: usize,
    },
    /// A flag adds a token whose key is missing.
    #[error("{flag} is true, but {key} is missing")]
    MissingSpecial {
        /// The flag that adds the token.
        flag: &'static str,
        /// The key that should name it.
        key: &'static str,
    },
    /// A token id of the caller is outside the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab_size} tokens")]
    IdOutOfRange {
        /// The id.
        id: u32,
        /// The number of tokens.
        vocab_size: usize,
    },
    /// The text has a character for which there is no token, no byte tokens and no unknown token.
    #[error("the vocabulary has no token for {text:?} (bytes {bytes:02x?}); remove it from the text")]
    NoToken {
        /// The character.
        text: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The text has more tokens than it may have.
    #[error("the text has at least {at_least} tokens; at most {most} are accepted")]
    TooManyTokens {
        /// A number of tokens that the text has at least.
        at_least: usize,
        /// The limit.
        most: usize,
    },
    /// The text is too long for 32-bit positions.
    #[error("the text has {len} bytes; at most {max} can be encoded at once")]
    TextTooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
}
