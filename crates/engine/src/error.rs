//! Errors of an engine and its requests.

use std::io;
use std::sync::Arc;

use gristmill_text::grammar::GrammarError;
use gristmill_text::template::TemplateError;
use gristmill_text::tokenizer::TokenizerError;
use thiserror::Error;

/// Why an engine did not start, or a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model, its tokenizer or the memory.
    #[error(transparent)]
    Model(#[from] crate::Error),
    /// The chat template refuses a conversation, or fails on it.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The model's chat template is not valid, or fails on every conversation of this kind.
    #[error("the model's chat template is broken: {0}; replace the template")]
    BrokenTemplate(#[source] TemplateError),
    /// The chat template in the request is broken.
    #[error("the chat template of the request is broken: {0}; correct it, or leave it out")]
    OwnTemplate(#[source] TemplateError),
    /// The request has messages, but the model has no template.
    #[error("the model file has no chat template; send a prompt to be continued instead of messages")]
    NoTemplate,
    /// A conversation has images, and the model has no tower.
    #[error(
        "the model {model} reads no images; send text only, or load the `mmproj` file of this model with it, if it has one"
    )]
    NoImages {
        /// The model's name, or its architecture.
        model: String,
    },
    /// The number of images is not that of their places in messages.
    #[error("the conversation has {found} images for {places} places of images in its messages; pass one for each")]
    ImageCount {
        /// Images.
        found: usize,
        /// Places.
        places: usize,
    },
    /// The chat template leaves out images, or repeats them.
    #[error(
        "the chat template writes {found} of {expected} images; use the template that was published with the model"
    )]
    ImageTemplate {
        /// Places of images in the prompt.
        found: usize,
        /// Images of the conversation.
        expected: usize,
    },
    /// The vocabulary has no token for images.
    #[error(
        "the vocabulary has no control token {token:?} for images; use the model that the `mmproj` file belongs to"
    )]
    ImageToken {
        /// The text of the token.
        token: String,
    },
    /// A call is required, and there are no tools.
    #[error("a tool call is required, but there are no tools; pass at least one, or require no call")]
    NoTools,
    /// A call of this tool is required, but the request has no such tool.
    #[error("a call of the tool {0:?} is required, but there is no such tool; pass it, or name another")]
    UnknownTool(String),
    /// The last message of a conversation cannot be continued.
    #[error(
        "the last message cannot be continued: it must be the assistant's, without calls, and no call may be required"
    )]
    NotContinued,
    /// The prompt is empty.
    #[error("the prompt is empty; send at least one character")]
    EmptyPrompt,
    /// The prompt is longer than the context.
    #[error(
        "the prompt has {}{tokens} tokens, but the context holds {context}; shorten it, or use a larger context if the \
         model and the memory allow", if *.exact { "" } else { "at least " }
    )]
    PromptTooLong {
        /// Tokens of the prompt, or fewer if it is not `exact`.
        tokens: usize,
        /// Whether the whole prompt was tokenised.
        exact: bool,
        /// Tokens of the context.
        context: usize,
    },
    /// A token id of the prompt does not exist.
    #[error("token {id} at index {index} of the prompt is outside the vocabulary of {vocabulary} tokens")]
    Token {
        /// The id.
        id: u32,
        /// Its index in the prompt.
        index: usize,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A sampling option is out of range.
    #[error("{what} is {value}; it must be {rule}")]
    Sampling {
        /// The option, by its name in requests.
        what: &'static str,
        /// Its value.
        value: f32,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A logit bias is not a finite number.
    #[error("the logit bias of token {token} is {bias}; it must be a finite number")]
    LogitBias {
        /// The token.
        token: u32,
        /// Its bias.
        bias: f32,
    },
    /// A logit bias is for a token that does not exist.
    #[error("token {token} has a logit bias, but is outside the vocabulary of {vocabulary} tokens")]
    LogitBiasToken {
        /// The token.
        token: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// This token has more than one logit bias.
    #[error("token {0} has two logit biases; keep one")]
    LogitBiasTwice(u32),
    /// No token at all may be sampled.
    #[error("the list of allowed tokens is empty; name at least one, or leave the list out")]
    NoAllowedTokens,
    /// A list of tokens has one that does not exist.
    #[error("token {token} is outside the vocabulary of {vocabulary} tokens")]
    NamedToken {
        /// The list.
        list: TokenList,
        /// The token.
        token: u32,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A sequence breaker of DRY is empty, and would end every sequence.
    #[error("a DRY sequence breaker is empty; use at least one character")]
    EmptyBreaker,
    /// Sequence breakers are texts, and the model has no tokenizer.
    #[error(
        "DRY has sequence breakers, which are texts, but the model has no tokenizer; pass an empty list of breakers"
    )]
    BreakersWithoutText,
    /// No automaton can be built of the sequence breakers, for this reason.
    #[error("the DRY sequence breakers cannot be searched for: {0}; use fewer or shorter ones")]
    Breakers(String),
    /// The number of tokens to generate is 0.
    #[error("the number of tokens to generate is 0; it must be at least 1")]
    NoTokens,
    /// The minimum number of tokens exceeds the maximum.
    #[error("the minimum of {min} tokens exceeds the maximum of {max}; lower the first or raise the second")]
    MinTokens {
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
    /// The request wants log-probabilities of more tokens than the vocabulary has.
    #[error("log-probabilities of {asked} tokens are requested, but the vocabulary has {vocabulary}; request fewer")]
    Logprobs {
        /// The requested number.
        asked: usize,
        /// Tokens in the vocabulary.
        vocabulary: usize,
    },
    /// A keyword of a JSON schema is not supported or not valid, so the text might not match the schema.
    #[error("the JSON schema{}: {problem}", at(path))]
    Schema {
        /// The JSON pointer of the keyword.
        path: String,
        /// The reason.
        problem: String,
    },
    /// A grammar is not valid, too large or too expensive, for this reason.
    #[error("the grammar cannot be used: {0}")]
    Grammar(String),
    /// The grammar allows no token of the model.
    #[error("the grammar allows no token of the model at this position; change the grammar")]
    GrammarStuck,
    /// A request does not allow what a script chose ([`Engine::with_script`](crate::Engine::with_script)).
    #[error(
        "the script's token {token} is not allowed here, and {sampled} was sampled; change the script or the request"
    )]
    Script {
        /// The script's token.
        token: u32,
        /// The token that was sampled.
        sampled: u32,
    },
    /// The tenant's queue has too little room for the request.
    #[error("the queue of {places} requests has no room for {asked} more; request fewer choices or try again later")]
    Busy {
        /// The places that the request needs, one for each of its choices.
        asked: usize,
        /// The maximum number of a tenant's running and waiting requests. If it is less than `asked`, a retry cannot
        /// succeed.
        places: usize,
    },
    /// A request for embeddings has no input.
    #[error("there is no input; send at least one text")]
    NoInputs,
    /// The model file turns pooling off.
    #[error(
        "the model file says that a text becomes no vector (`pooling_type` is none or rank); use a model that was \
         trained for embeddings, or one that generates text"
    )]
    NoPooling,
    /// A batch has fewer tokens than there are sequences.
    #[error("a batch of {batch_tokens} tokens is too small for {sequences} sequences; it needs one token for each")]
    BatchTooSmall {
        /// Tokens of one batch.
        batch_tokens: usize,
        /// Sequences at a time.
        sequences: usize,
    },
    /// Draft tokens of prediction heads are requested.
    #[error("the model has no prediction heads, or they are not loaded; draft by lookup or with a draft model")]
    NoPredictionHeads,
    /// The draft model does not fit the model, for this reason.
    #[error("the draft model cannot draft for this model: {0}; use one of the same family, with the same vocabulary")]
    DraftModel(String),
    /// The system cannot start a thread.
    #[error("cannot start the engine's thread: {0}")]
    Thread(#[source] io::Error),
    /// A forward pass failed; all requests of its batch end with this.
    #[error("{0}")]
    Step(#[source] Arc<crate::Error>),
    /// The device has failed; all requests end with this, and new requests are refused.
    #[error("the device has failed, and the engine has stopped: {0}; start it again")]
    Device(#[source] Arc<crate::Error>),
    /// The engine accepts no more requests ([`Engine::drain`](crate::Engine::drain)), and the request had not started.
    #[error("the server is shutting down, and the request had not started; send it again")]
    Draining,
    /// A callback waits for a request of its own engine. The request would run on the callback's thread.
    #[error("a callback of the engine cannot wait for a request of the same engine; wait on another thread")]
    InCallback,
    /// The engine was dropped, or its thread has died.
    #[error("the engine has stopped; start another")]
    Stopped,
}

/// Who can do something about an [`EngineError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller must change the request.
    BadRequest,
    /// The queue is full. The same request can succeed later.
    Busy,
    /// The engine takes no requests. Another engine, or this one after a restart, can answer.
    Unavailable,
    /// The model, its files or the engine are at fault.
    Internal,
}

impl EngineError {
    /// Who can do something about the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            EngineError::Model(crate::Error::Tokenizer(_))
            | EngineError::Template(_)
            | EngineError::OwnTemplate(_)
            | EngineError::NoTemplate
            | EngineError::NoImages { .. }
            | EngineError::ImageCount { .. }
            | EngineError::ImageTemplate { .. }
            | EngineError::ImageToken { .. }
            | EngineError::NoTools
            | EngineError::UnknownTool(_)
            | EngineError::NotContinued
            | EngineError::EmptyPrompt
            | EngineError::PromptTooLong { .. }
            | EngineError::Token { .. }
            | EngineError::Sampling { .. }
            | EngineError::LogitBias { .. }
            | EngineError::LogitBiasToken { .. }
            | EngineError::LogitBiasTwice(_)
            | EngineError::NoAllowedTokens
            | EngineError::NamedToken { .. }
            | EngineError::EmptyBreaker
            | EngineError::BreakersWithoutText
            | EngineError::Breakers(_)
            | EngineError::NoTokens
            | EngineError::MinTokens { .. }
            | EngineError::Logprobs { .. }
            | EngineError::Schema { .. }
            | EngineError::Grammar(_)
            | EngineError::GrammarStuck
            | EngineError::NoInputs
            | EngineError::NoPooling
            | EngineError::BatchTooSmall { .. }
            | EngineError::NoPredictionHeads
            | EngineError::DraftModel(_) => ErrorKind::BadRequest,
            EngineError::Busy { .. } => ErrorKind::Busy,
            EngineError::Device(_) | EngineError::Draining | EngineError::Stopped => ErrorKind::Unavailable,
            EngineError::Model(_)
            | EngineError::BrokenTemplate(_)
            | EngineError::Script { .. }
            | EngineError::Thread(_)
            | EngineError::Step(_)
            | EngineError::InCallback => ErrorKind::Internal,
        }
    }
}

/// The place of a JSON pointer; empty for the whole schema.
fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at \"{path}\"") }
}

impl From<GrammarError> for EngineError {
    fn from(error: GrammarError) -> Self {
        match error {
            GrammarError::Schema { path, problem } => EngineError::Schema { path, problem },
            GrammarError::Stuck => EngineError::GrammarStuck,
            GrammarError::Thread(error) => EngineError::Thread(error),
            GrammarError::Refused(reason) => EngineError::Grammar(reason),
        }
    }
}

impl From<TokenizerError> for EngineError {
    fn from(error: TokenizerError) -> Self {
        EngineError::Model(error.into())
    }
}

/// A list of tokens in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenList {
    /// [`Request::stop_tokens`](crate::Request::stop_tokens).
    Stop,
    /// [`Request::allowed_tokens`](crate::Request::allowed_tokens).
    Allowed,
    /// [`Request::banned_sequences`](crate::Request::banned_sequences).
    Banned,
    /// [`ReasoningLimit::ending`](crate::ReasoningLimit::ending) of [`Request::reasoning`](crate::Request::reasoning).
    Reasoning,
}
