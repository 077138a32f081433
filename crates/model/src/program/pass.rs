//! A forward pass: weights, values, and nodes in parts.

use std::sync::Arc;

use super::node::Node;
use super::readers::Names;
use super::replay::Replay;
use super::scratch::Slots;
use super::tensors::Tensors;
use super::values::{ActShape, GroupsShape, RowsId, RowsShape};
use crate::stage::Stage;

/// The nodes between two stages. No rewrite crosses the end of a part, so the residual stream can be inspected there.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) stage: Stage,
    pub(crate) nodes: Vec<Node>,
    /// For each node, the products that read the activations it writes.
    pub(super) names: Vec<Names>,
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

    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
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
