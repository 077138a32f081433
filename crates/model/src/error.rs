//! Why a model could not be loaded or run.

use std::fmt;

use gristmill_files::gguf::{GgufError, MetadataError, Name};
use gristmill_text::tokenizer::TokenizerError;
use thiserror::Error;

use crate::stage::Stage;

/// The result of loading or running a model.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an architecture is not supported, as the end of a clause.
struct Needs<'a>(&'a Option<&'static str>);

impl fmt::Display for Needs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |missing| write!(f, ", because it needs {missing}"))
    }
}

/// Why a model could not be loaded or run. Every message says what was wrong, where, and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A metadata key is missing or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The vocabulary, a text or a token id is at fault.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A kernel refused.
    #[error(transparent)]
    Kernel(#[from] gristmill_kernels::Error),

    /// The options ask for deterministic results, but the backend that the caller gave was opened without them.
    #[error(
        "{device} was opened without deterministic kernels; open it with `open_device`, with the option \
         `deterministic` set"
    )]
    NotDeterministic {
        /// The device.
        device: String,
    },
    /// A part of the model is not implemented on this device.
    #[error("device {}: {part} is not supported there; open the model with `--device cpu`", Name(.device))]
    DeviceLacks {
        /// The device.
        device: String,
        /// The part.
        part: &'static str,
    },
    /// The architecture is not implemented.
    #[error("architecture {} is not supported{}; known architectures: {known}", Name(.found), Needs(.missing))]
    Architecture {
        /// `general.architecture`.
        found: String,
        /// The part of its layers that is not implemented, if the architecture is known by name.
        missing: Option<&'static str>,
        /// The known architectures.
        known: String,
    },
    /// A key asks for something that is not implemented.
    #[error("key {}: {} is not supported; known: {known}", Name(.key), Name(.found))]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// The supported values.
        known: &'static str,
    },
    /// A key has a value that makes no sense.
    #[error("key {}: {found} {rule}", Name(.key))]
    Value {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// The rule it breaks, as a phrase that follows the value.
        rule: String,
    },
    /// A weight is not in the file.
    #[error("tensor {} of shape {shape:?} is missing; the file is incomplete, convert the model again", Name(.name))]
    MissingTensor {
        /// The tensor.
        name: String,
        /// The shape it should have, innermost dimension first.
        shape: Vec<u64>,
    },
    /// A weight has another shape than the metadata says.
    #[error(
        "tensor {} (data at byte {offset}) has shape {found:?}, but the metadata asks for {expected:?}; \
         the file is damaged, convert the model again",
        Name(.name)
    )]
    TensorShape {
        /// The tensor.
        name: String,
        /// Where its data begins.
        offset: u64,
        /// Its shape, innermost dimension first.
        found: Vec<u64>,
        /// The shape it should have.
        expected: Vec<u64>,
    },
    /// A scale of a weight is NaN or infinite.
    #[error("tensor {}: element {element} is {value}; a scale must be finite, convert the model again", Name(.name))]
    ScaleNotFinite {
        /// The tensor of scales.
        name: String,
        /// Which of them.
        element: usize,
        /// Its value.
        value: f32,
    },
    /// The file has a weight that the architecture does not use; leaving it out would change the model.
    #[error(
        "tensor {} is not a weight of this {architecture} model; the file is a variant that is not supported",
        Name(.name)
    )]
    UnusedTensor {
        /// The tensor.
        name: String,
        /// The architecture.
        architecture: String,
    },
    /// The file has a tensor for each expert, this one first.
    #[error(
        "tensor {}: a tensor for each expert is the form of files from before April 2024, which is not supported; \
         convert the model again",
        Name(.0)
    )]
    SplitExperts(String),
    /// The vocabulary and the embedding table disagree.
    #[error("the tokenizer has {tokens} tokens, but `token_embd.weight` has {rows} rows; convert the model again")]
    VocabularySize {
        /// Tokens of the vocabulary.
        tokens: usize,
        /// Rows of the embedding table.
        rows: usize,
    },
    /// The file has no vocabulary.
    #[error("the file has no tokenizer (`tokenizer.ggml.model` is missing); only token ids can be used with it")]
    NoTokenizer,

    /// No device has this name.
    #[error("device {asked:?} is unknown; devices: {known}")]
    Device {
        /// The name that was asked for.
        asked: String,
        /// The names of devices.
        known: String,
    },
    /// No CPU level of this machine architecture has this name.
    #[error("CPU level {asked:?} is unknown; levels: {known}")]
    Level {
        /// The name that was asked for.
        asked: String,
        /// The levels.
        known: String,
    },
    /// A parameter of the caller is out of range.
    #[error("{what} is {found}; {rule}")]
    Limit {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The rule that it breaks.
        rule: String,
    },
    /// Memory does not suffice.
    #[error("{what} needs {}, but only {} are free; {remedy}", Bytes(*.needed), Bytes(*.free))]
    Memory {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        free: u64,
        /// The remedy.
        remedy: &'static str,
    },

    /// A sequence would outgrow its context.
    #[error(
        "the context of {limit} tokens is full: the sequence has {have} and {asked} more were given; \
         use a larger context or a shorter text"
    )]
    ContextOverflow {
        /// Tokens that the sequence has.
        have: usize,
        /// Tokens that were to be added.
        asked: usize,
        /// The context length.
        limit: usize,
    },
    /// All cache blocks are taken.
    #[error(
        "the cache has {free} free blocks, {needed} are needed; close or shorten a sequence, or give the cache more"
    )]
    OutOfBlocks {
        /// Blocks needed.
        needed: usize,
        /// Blocks free.
        free: usize,
    },
    /// A sequence cannot be shortened that far.
    #[error(
        "the sequence cannot be shortened to {len} tokens: layers with a window have forgotten what comes before; \
         shorten it to at least {shortest}, or to 0 and read the text again"
    )]
    Forgotten {
        /// The length that was asked for.
        len: usize,
        /// The least that is possible, besides 0.
        shortest: usize,
    },
    /// A sequence cannot be shortened to this length, since its state has a fixed size.
    #[error(
        "the sequence cannot be shortened to {len} tokens: layers with a state of fixed size have it after {nearest} \
         tokens; shorten the sequence to these and read what follows again"
    )]
    NoCheckpoint {
        /// The length that was asked for.
        len: usize,
        /// The greatest below it that is possible.
        nearest: usize,
    },
    /// All sequences that the limits allow are open.
    #[error("all {0} sequences are open; close one, or allow more in the limits")]
    OutOfSequences(usize),
    /// The sequence was closed, or belongs to another runner.
    #[error("this sequence is not open here; it was closed, or belongs to another runner")]
    UnknownSequence,
    /// Tokens of a sequence are in a batch before and after those of another, and layers with a state of fixed size
    /// read the tokens of a sequence together.
    #[error("a sequence's tokens are in two places of the batch; push them together")]
    SplitSequence,
    /// A batch has more tokens or more output rows than the limits allow.
    #[error("the batch has {found} {what}, the limit is {limit}; split it, or raise the limit")]
    BatchTooLarge {
        /// The unit: tokens or output rows.
        what: &'static str,
        /// How much the batch has.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A forward pass gives an output that is not finite: no token can be chosen by it.
    #[error(
        "position {position}: the output of {stage} is not finite; a weight is damaged, or the values are too large \
         for the precision: compare the file's checksum, or convert the model again"
    )]
    NotFinite {
        /// The first part of the model with such an output.
        stage: Stage,
        /// The token's position in its sequence.
        position: u32,
    },
    /// A token id outside the vocabulary.
    #[error("token {id} at index {index} of the batch is outside the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        id: u32,
        /// Its index in the batch.
        index: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A batch has a token of a row that the last forward pass has not drawn one of.
    #[error("the batch has the token drawn from row {row}, and {rows} rows were drawn since the last forward pass")]
    NotSampled {
        /// The row.
        row: usize,
        /// Rows that have a token.
        rows: usize,
    },
}

impl Error {
    /// Whether the device itself has failed, so that nothing more can be computed on it.
    pub fn is_of_device(&self) -> bool {
        matches!(self, Error::Kernel(gristmill_kernels::Error::Device { .. }))
    }
}

/// A number of bytes for people: `18.55 GB (18550123456 bytes)`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = if self.0 >= 1_000_000_000 { (1e9, "GB") } else { (1e6, "MB") };
        write!(f, "{:.2} {name} ({} bytes)", self.0 as f64 / unit, self.0)
    }
}
