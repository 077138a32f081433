//! Where the draft tokens of an engine come from.

use std::sync::Arc;

use gristmill_model::Model;

/// Where draft tokens come from ([`Request::draft`](crate::Request::draft)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DraftSource {
    /// The tokens that followed an earlier occurrence of the last tokens, in prompt or text.
    Lookup,
    /// The model's prediction heads ([`Model::prediction_heads`]).
    Heads,
    /// A smaller model with the same vocabulary. It needs memory for the same number of sequences with the same
    /// context, and for a KV cache of the same number of tokens.
    Model(Arc<Model>),
    /// For measurements: the prediction heads run, but a fixed pseudo-random sequence decides which draft tokens are
    /// accepted. The numbers are the chances of the places; the last one is also that of all further places. The text
    /// then means nothing.
    Replay(Vec<f64>),
}

impl DraftSource {
    /// The prediction heads of a model that has them, else lookup.
    pub fn of(model: &Model) -> DraftSource {
        if model.prediction_heads() > 0 { DraftSource::Heads } else { DraftSource::Lookup }
    }
}

/// How an engine drafts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Drafts {
    /// Where draft tokens come from.
    pub source: DraftSource,
    /// Each step has as many draft tokens as [`Request::draft`](crate::Request::draft) and the rows of logits allow, also
    /// where fewer are faster: for tests, and to measure a fixed number.
    pub always: bool,
}

impl Drafts {
    /// As many draft tokens as requests allow, in each step.
    pub fn always(source: DraftSource) -> Drafts {
        Drafts { source, always: true }
    }
}

impl From<DraftSource> for Drafts {
    /// As many draft tokens as are fastest.
    fn from(source: DraftSource) -> Drafts {
        Drafts { source, always: false }
    }
}
