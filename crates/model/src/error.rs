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

/// Why a model could not be loaded or run. Every message names the place, the problem and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A metadata key is missing or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The vocabulary, a text or a token id is not valid.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The keys of a tower do not say how its pictures are prepared.
    #[error(transparent)]
    Vision(#[from] gristmill_vision::Error),
    /// A kernel refused.
    #[error(transparent)]
    Kernel(#[from] gristmill_kernels::Error),

    /// The ranks of a model cannot go on together.
    #[error(transparent)]
    Ranks(#[from] gristmill_collective::Error),
    /// Processes that are ranks of a model were started differently.
    #[error("{0}")]
    RanksDiffer(String),
    /// A rank has another state than rank 0.
    #[error("ranks: the state of sequences differs; this is a bug of gristmill, report it")]
    RankState,
    /// The model cannot be split over these devices.
    #[error("device: {reason}")]
    Split {
        /// What is wrong, and a remedy.
        reason: String,
    },

    /// A device of several that share a model cannot have its part.
    #[error("{device}: {error}")]
    OnDevice {
        /// The device's name.
        device: String,
        /// Why.
        error: Box<Error>,
    },

    /// The options require deterministic results, but the caller's backend was opened without deterministic kernels.
    #[error(
        "{device} was opened without deterministic kernels; open it with `open_device`, with the option \
         `deterministic` set"
    )]
    NotDeterministic {
        /// The device.
        device: String,
    },
    /// The experts cannot be placed as the options require.
    #[error("placement of experts: {reason}")]
    ExpertPlacement {
        /// The reason, and a remedy.
        reason: String,
    },
    /// The device has no memory of its own that could be limited.
    #[error("gpu memory: device {device:?} has no such limit, only CUDA has; leave the option out")]
    MemoryLimit {
        /// The device.
        device: String,
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
    /// A key needs a feature that is not implemented.
    #[error("key {}: {} is not supported; known: {known}", Name(.key), Name(.found))]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// The supported values.
        known: &'static str,
    },
    /// A key has a value that breaks a rule.
    #[error("key {}: {found} {rule}", Name(.key))]
    Value {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// The rule it breaks, as a phrase that follows the value.
        rule: String,
    },
    /// A weight is missing in the file.
    #[error("tensor {} of shape {shape:?} is missing; the file is incomplete, convert the model again", Name(.name))]
    MissingTensor {
        /// The tensor.
        name: String,
        /// The shape it should have, innermost dimension first.
        shape: Vec<u64>,
    },
    /// A weight has another shape than the metadata requires.
    #[error(
        "tensor {} (data at byte {offset}) has shape {found:?}, but the metadata requires {expected:?}; \
         the file is damaged, convert the model again",
        Name(.name)
    )]
    TensorShape {
        /// The tensor.
        name: String,
        /// The offset of its data.
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
        /// The index of the scale.
        element: usize,
        /// Its value.
        value: f32,
    },
    /// An order of the columns of a matrix is none.
    #[error("tensor {}: the order of columns {problem}; convert the model again", Name(.name))]
    ColumnOrder {
        /// The tensor.
        name: String,
        /// What is wrong, as a phrase that follows "the order of columns".
        problem: &'static str,
    },
    /// The file has a weight that the architecture does not use. Without it, the model would be another one.
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
        "tensor {}: the file has a tensor for each expert, as before April 2024, which is not supported; \
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
    /// The prediction heads of another file are not those of the model.
    #[error("{0}; use heads that were trained with this model")]
    Heads(String),
    /// [`LoadOptions::progress`](crate::LoadOptions::progress) cancelled loading.
    #[error("loading was cancelled")]
    Cancelled,
    /// The file has no vocabulary.
    #[error("the file has no tokenizer (`tokenizer.ggml.model` is missing); only token ids can be used with it")]
    NoTokenizer,

    /// No device has this name.
    #[error("device {asked:?} is unknown; devices: {known}")]
    Device {
        /// The name that was requested.
        asked: String,
        /// The names of devices.
        known: String,
    },
    /// No CPU level of this machine architecture has this name.
    #[error("CPU level {asked:?} is unknown; levels: {known}")]
    Level {
        /// The name that was requested.
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
    /// A context in which the model needs its index of tokens.
    #[error(
        "the context of {context} tokens is too long for {architecture}: in more than {most} tokens its layers choose \
         blocks of tokens by an index, which is not supported; set a context of at most {most}"
    )]
    IndexedContext {
        /// The architecture.
        architecture: String,
        /// The context that was requested.
        context: usize,
        /// The longest context in which the index chooses all blocks.
        most: usize,
    },
    /// Too little memory.
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

    /// A sequence would exceed its context.
    #[error(
        "the context of {limit} tokens is full: the sequence has {have}, and {asked} more do not fit; \
         use a larger context or a shorter text"
    )]
    ContextOverflow {
        /// Tokens that the sequence has.
        have: usize,
        /// Tokens to add.
        asked: usize,
        /// The context length.
        limit: usize,
    },
    /// Too few cache blocks are free.
    #[error(
        "the cache has {free} free blocks, {needed} are needed; close or truncate a sequence, or use a larger cache"
    )]
    OutOfBlocks {
        /// Blocks needed.
        needed: usize,
        /// Blocks free.
        free: usize,
    },
    /// A sequence cannot be truncated to this length.
    #[error(
        "the sequence cannot be truncated to {len} tokens: layers with a window have freed earlier blocks; \
         truncate it to at least {shortest}, or to 0 and compute the tokens again"
    )]
    Forgotten {
        /// The length that was requested.
        len: usize,
        /// The shortest possible length other than 0.
        shortest: usize,
    },
    /// A sequence cannot be truncated to this length, because its state has a fixed size.
    #[error(
        "the sequence cannot be truncated to {len} tokens: layers with a state of fixed size stored it after {nearest} \
         tokens; truncate the sequence to these and compute later tokens again"
    )]
    NoCheckpoint {
        /// The length that was requested.
        len: usize,
        /// The longest possible length below it.
        nearest: usize,
    },
    /// A token has forced experts that its layers cannot have.
    #[error("forced experts of layer {layer}: {reason}; use a trace of this model")]
    ForcedExperts {
        /// The layer, counted from 0.
        layer: usize,
        /// What is wrong.
        reason: String,
    },
    /// The tokens of a batch and of its forced experts differ in number.
    #[error("forced experts: there are those of {found} tokens (expected {tokens}, the tokens of the batch)")]
    ForcedTokens {
        /// Tokens with forced experts.
        found: usize,
        /// Tokens of the batch.
        tokens: usize,
    },
    /// All sequences that the limits allow are open.
    #[error("all {0} sequences are open; close one, or allow more in the limits")]
    OutOfSequences(usize),
    /// The sequence was closed, or belongs to another runner.
    #[error("this sequence is not open here; it was closed, or belongs to another runner")]
    UnknownSequence,
    /// Tokens of a sequence are not adjacent in a batch. Layers with a state of fixed size
    /// and prediction heads need them one after another.
    #[error("a sequence's tokens are not adjacent in the batch; push them one after another")]
    SplitSequence,
    /// A file that was given as a tower is another kind of model.
    #[error("general.architecture: {} is no tower (expected `clip`); give the model's `mmproj` file", Name(.architecture))]
    NotATower {
        /// The architecture.
        architecture: String,
    },
    /// A tower whose projector is not supported.
    #[error("clip.projector_type: {} is not supported; known: {known}", Name(.found))]
    Projector {
        /// The projector.
        found: String,
        /// The known projectors.
        known: String,
    },
    /// The tower belongs to another model.
    #[error(
        "the tower is of another model (found rows of {found} for {levels} layers, expected {expected} for \
         {expected_levels}); give the `mmproj` file of this model"
    )]
    TowerWidth {
        /// Width of the tower's rows.
        found: usize,
        /// Layers of the text model to which the tower's rows are added.
        levels: usize,
        /// The same as the text model has them.
        expected_levels: usize,
        /// Width of the model's embeddings.
        expected: usize,
    },
    /// A picture for a model without a tower.
    #[error("this {architecture} model reads no images: it has no tower; load its `mmproj` file too")]
    NoTower {
        /// The architecture of the model.
        architecture: String,
    },
    /// A picture that the tower cannot read.
    #[error("picture: {reason}")]
    Picture {
        /// What is wrong, and a remedy.
        reason: String,
    },
    /// A batch has more tokens or more output rows than the limits allow.
    #[error("the batch has {found} {what}, the limit is {limit}; split it, or raise the limit")]
    BatchTooLarge {
        /// The unit: tokens or output rows.
        what: &'static str,
        /// The batch's number.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A forward pass has an output that is not finite, so no token can be sampled.
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
    /// A batch refers to the sampled token of a row for which no token was sampled after the last forward pass.
    #[error("the batch needs the sampled token of row {row}, but {rows} rows were sampled after the last forward pass")]
    NotSampled {
        /// The row.
        row: usize,
        /// Rows that have a token.
        rows: usize,
    },
}

impl Error {
    /// Whether memory was too little. If slots for experts were left, they were freed and it was tried again.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::Kernel(error) => error.is_out_of_memory(),
            Error::Memory { .. } => true,
            Error::OnDevice { error, .. } => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether the device itself has failed. Later operations on it fail too.
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
