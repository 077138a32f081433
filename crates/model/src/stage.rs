//! The parts of a model, for messages.

use std::fmt;

/// A part of a model, in the order of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Tokens to the residual stream.
    Embedding,
    /// A layer, from 0.
    Layer(usize),
    /// The last norm and the output matrix.
    Output,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedding => f.write_str("the embedding (`token_embd.weight`)"),
            Self::Layer(layer) => write!(f, "layer {layer} (`blk.{layer}`)"),
            Self::Output => f.write_str("the last norm or the output matrix"),
        }
    }
}
