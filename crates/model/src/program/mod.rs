//! The forward pass as data.
//!
//! A [`Program`] lists the weights, the values and the nodes of a forward pass. [`build`] builds it from a
//! [`ModelSpec`](crate::spec::ModelSpec) and the names of a file's tensors, and is the only place that walks the
//! structure of a layer. Everything else follows from the program:
//!
//! - [`Tensors`] lists the weights to check ([`crate::weights`]) and to load.
//! - [`forced`] replaces the choices of routers.
//! - [`fuse`] rewrites adjacent nodes as the compositions of [`gristmill_kernels::ops`].
//! - [`reorder`] gathers the inputs of matrices whose columns are in another order.
//! - [`place`] chooses the memory of weights.
//! - [`readers`] finds the products that read each activation, so that a kernel prepares no other representation.
//! - [`replay`] finds what computes states of fixed size, and its inputs.
//! - [`scratch`] finds the nodes between which a value lives, and assigns buffers.
//! - [`uses`] counts what a pass reads of each tensor.
//! - [`run`] runs the nodes.
//!
//! # The forward pass is data
//!
//! From a spec, `model/src/program/build` builds a `Program`: the tensors of all weights, values with their shapes, and
//! nodes. A node is an operation of `kernels` with the values that it reads and writes. Only the builder walks the
//! structure of a layer, and it emits the simplest operations. Everything else is derived from the program, each in one
//! file:
//!
//! | file of `model/src/program` | what is derived |
//! | --- | --- |
//! | `tensors.rs` | which tensors are checked, counted and loaded |
//! | `fuse.rs` | rewrites of adjacent nodes as compositions: one launch if a backend fuses them |
//! | `reorder.rs` | which inputs are gathered, because the columns of a matrix are in another order |
//! | `place.rs` | which memory the experts are in |
//! | `readers.rs` | which products read an activation |
//! | `replay.rs` | what computes states of fixed size, and which of its inputs a pass keeps |
//! | `scratch.rs` | which values are live at the same time, hence the buffers and the exact bytes of a pass |
//! | `uses.rs` | what a pass reads of each tensor: the costs in `bench`, `fit` and `inspect` |
//! | `run.rs` | the loop over nodes |
//!
//! *Invariant: a value is written before it is read, and never written after its last reader. The reason: the builder
//! emits nodes in order and gives each result a value of its own. The one exception is the residual stream, a value to
//! which nodes add. So two values can share a buffer if their live ranges (from the first to the last node of a value)
//! do not overlap. No rewrite crosses the end of a layer, so the residual stream can be inspected there.*
//!
//! Planned capabilities add nodes or passes, and change no others:
//!
//! | capability | what it adds to the program |
//! | --- | --- |
//! | several devices | column ranges of a `MatrixSpec`; a pass that splits products and inserts `AllReduce` before an `Add` |
//! | indexers (sparse attention) | a node that scores and one that chooses positions, a second cache of the layer |
//! | a persistent kernel | a pass that makes tile tasks with counters from nodes and values |
//! | AMX | nothing: a level of the CPU |

pub(crate) mod axes;
pub(crate) mod build;
pub(crate) mod forced;
mod fuse;
pub(crate) mod node;
mod place;
mod readers;
mod reorder;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod tensors;
pub(crate) mod uses;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::stage::Stage;
use node::Node;
use readers::Names;
use replay::Replay;
use scratch::Slots;
use tensors::Tensors;

/// Declares the index of an item in one of the program's lists.
macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $id(pub(crate) usize);)*
    };
}

ids! {
    /// A matrix of weights: [`Tensors::matrices`].
    MatrixId;
    /// A vector of weights: [`Tensors::vectors`].
    VectorId;
    /// A number among the weights: [`Tensors::scalars`].
    ScalarId;
    /// An order of columns among the weights: [`Tensors::orders`].
    OrderId;
    /// A value of f32 rows: [`Program::rows`].
    RowsId;
    /// A value of prepared activations: [`Program::acts`].
    ActId;
    /// The (token, expert) pairs of a layer, sorted by expert: [`Program::groups`].
    GroupsId;
}

/// The unit that a value has rows for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Each token of the batch.
    Token,
    /// Each token of the batch whose logits are computed.
    Output,
}

/// The shape of a value of f32 rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsShape {
    pub(crate) unit: Unit,
    /// Rows for each unit: 1, or the experts that each token gets.
    pub(crate) per_unit: usize,
    pub(crate) cols: usize,
    /// The purpose of its memory, for error messages.
    pub(crate) what: &'static str,
}

/// The shape of prepared activations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActShape {
    pub(crate) unit: Unit,
    /// Rows for each unit.
    pub(crate) per_unit: usize,
    pub(crate) cols: usize,
    /// f32 at any precision of the model: the input of a router.
    pub(crate) exact: bool,
}

/// The shape of grouped pairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupsShape {
    pub(crate) experts: usize,
    pub(crate) top_k: usize,
}

/// Columns of a value of f32 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) rows: RowsId,
    pub(crate) first: usize,
    pub(crate) end: usize,
}

/// A factor that is a constant of the spec, or a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Factor {
    Constant(f32),
    Weight(ScalarId),
}

/// The nodes between two stages. No rewrite crosses the end of a part, so the residual stream can be inspected there.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) stage: Stage,
    pub(crate) nodes: Vec<Node>,
    /// For each node, the products that read the activations it writes.
    names: Vec<Names>,
}

/// A forward pass: weights, values, nodes.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) tensors: Tensors,
    pub(crate) rows: Vec<RowsShape>,
    pub(crate) acts: Vec<ActShape>,
    pub(crate) groups: Vec<GroupsShape>,
    /// The embedding and the layers, in order.
    pub(crate) layers: Vec<Part>,
    /// The last norm. Its output is the hidden states.
    pub(crate) norm: Part,
    /// The output matrix: hidden states to logits.
    pub(crate) head: Part,
    /// The prediction heads that are loaded.
    pub(crate) heads: Vec<PredictionHead>,
    /// The residual stream.
    pub(crate) residual: RowsId,
    /// The hidden states: the residual stream after the last norm.
    pub(crate) hidden: RowsId,
    /// What the first prediction head reads: the hidden states or the residual stream.
    pub(crate) head_input: RowsId,
    pub(crate) logits: RowsId,
    /// The sum of `top_k` over the layers.
    pub(crate) choices: usize,
    /// Added to the mean square (or the variance) in every norm of rows.
    pub(crate) eps: f32,
    /// The operations that compute states of fixed size.
    pub(crate) replay: Replay,
    /// Which values share a buffer.
    pub(crate) slots: Arc<Slots>,
}

impl Part {
    pub(crate) fn new(stage: Stage, nodes: Vec<Node>) -> Self {
        Self { stage, nodes, names: Vec::new() }
    }
}

impl Program {
    /// Rewrites the nodes that the builder emitted, and names the readers of activations.
    pub(crate) fn finish(&mut self) {
        self.fuse();
        self.name_readers();
    }

    /// All parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        let heads = self.heads.iter().flat_map(PredictionHead::parts);
        self.layers.iter().chain([&self.norm, &self.head]).chain(heads)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let heads = self.heads.iter_mut().flat_map(PredictionHead::parts_mut);
        self.layers.iter_mut().chain([&mut self.norm, &mut self.head]).chain(heads)
    }
}

/// The parts of a prediction head. A forward pass runs `shift`, and of `block` what writes the cache; of a head with `pass_on`
/// all of `block`, and `pass_on`. Drafting runs `block` and `logits` for one token of each sequence, then `carry`, and so
/// on.
#[derive(Debug)]
pub(crate) struct PredictionHead {
    /// The hidden states of the tokens before those of the batch.
    pub(crate) shift: Part,
    /// The input of the layer, and the layer.
    pub(crate) block: Part,
    /// What the next head reads: the output of the last norm, or a copy of the layer's output. `None` if no other head reads
    /// what this one computes.
    pub(crate) pass_on: Option<Part>,
    /// The last norm and the output matrix.
    pub(crate) logits: Part,
    /// Sets the rows before the next tokens of the next head; in the last head, of itself.
    pub(crate) carry: Part,
    /// The hidden states before the tokens.
    pub(crate) previous: RowsId,
}

impl PredictionHead {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.shift, &self.block].into_iter().chain(&self.pass_on).chain([&self.logits, &self.carry])
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        [&mut self.shift, &mut self.block]
            .into_iter()
            .chain(&mut self.pass_on)
            .chain([&mut self.logits, &mut self.carry])
    }
}
