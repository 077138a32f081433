//! What of a program is built so far, and what adds to its lists.

use std::collections::BTreeSet;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::weight::Role;

use super::norms::NormVectors;
use crate::program::node::Node;
use crate::program::tensors::{TensorSpec, Tensors, VectorSpec};
use crate::program::{
    ActId, ActShape, Columns, Factor, GroupedExperts, GroupsId, GroupsShape, MatrixId, Part, RowsId, RowsShape, Unit,
    VectorId,
};
use crate::ranks::RankPart;
use crate::spec::{LayerSpec, ModelSpec};
use crate::stage::Stage;

pub(super) struct Builder<'a> {
    /// The model, with the attention heads that the rank has.
    pub(super) spec: &'a ModelSpec,
    /// The layers with all attention heads, as the file has them.
    pub(super) whole: &'a [LayerSpec],
    pub(super) part: &'a RankPart,
    /// Matrices whose products are parts of sums over ranks.
    pub(super) summed: BTreeSet<MatrixId>,
    pub(super) file: &'a GgufFile,
    pub(super) tensors: Tensors,
    pub(super) rows: Vec<RowsShape>,
    pub(super) acts: Vec<ActShape>,
    pub(super) groups: Vec<GroupsShape>,
    /// The nodes of the current part.
    pub(super) nodes: Vec<Node>,
    pub(super) residual: RowsId,
    /// Choices of each token in the layers so far.
    pub(super) choices: usize,
    /// The pairs of tokens and heads that are grouped so far, by number of heads.
    pub(super) heads: Vec<(usize, GroupsId)>,
}

/// A layer while it is built.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) index: usize,
    /// See [`AttentionOptions::first`](gristmill_kernels::ops::AttentionOptions::first).
    pub(super) first: usize,
}

/// The ends of a model: tokens to embeddings, and hidden states to logits.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) table: MatrixId,
    pub(super) weight: MatrixId,
    pub(super) bias: Option<VectorId>,
    pub(super) logits: RowsId,
}

/// The input of a block.
#[derive(Clone, Copy)]
pub(super) enum Input {
    /// f32 rows, to be prepared as activations for each reader.
    Rows(RowsId),
    /// The residual stream through this norm.
    Norm(NormVectors),
}

impl Layer {
    /// The name of a tensor of the layer.
    pub(super) fn name(self, part: &str) -> String {
        format!("blk.{}.{part}", self.index)
    }
}

impl Builder<'_> {
    pub(super) fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    pub(super) fn part(&mut self, stage: Stage) -> Part {
        Part::new(stage, std::mem::take(&mut self.nodes))
    }

    pub(super) fn matrix(&mut self, role: Role, tensors: Vec<TensorSpec>) -> MatrixId {
        self.tensors.add_matrix(role, tensors)
    }

    pub(super) fn vector(&mut self, tensor: TensorSpec) -> VectorId {
        self.tensors.add_vector(VectorSpec::Tensors(vec![tensor]))
    }

    pub(super) fn scaled(&mut self, tensor: TensorSpec, factor: f32) -> VectorId {
        self.tensors.add_vector(VectorSpec::Scaled(tensor, factor))
    }

    pub(super) fn repeated(&mut self, values: &'static [f32], count: usize) -> VectorId {
        self.tensors.add_vector(VectorSpec::Repeated { values, count })
    }

    pub(super) fn add_rows(&mut self, shape: RowsShape) -> RowsId {
        self.rows.push(shape);
        RowsId(self.rows.len() - 1)
    }

    /// A value with a row for each token.
    pub(super) fn new_rows(&mut self, cols: usize, what: &'static str) -> RowsId {
        self.add_rows(RowsShape { unit: Unit::Token, per_unit: 1, cols, what })
    }

    /// A value with `top_k` rows for each token.
    pub(super) fn pair_rows(&mut self, top_k: usize, cols: usize, what: &'static str) -> RowsId {
        self.add_rows(RowsShape { unit: Unit::Token, per_unit: top_k, cols, what })
    }

    pub(super) fn add_act(&mut self, shape: ActShape) -> ActId {
        self.acts.push(shape);
        ActId(self.acts.len() - 1)
    }

    /// Activations with a row for each token.
    pub(super) fn new_act(&mut self, cols: usize) -> ActId {
        self.add_act(ActShape { unit: Unit::Token, per_unit: 1, cols, exact: false })
    }

    pub(super) fn new_groups(&mut self, experts: usize, top_k: usize) -> GroupsId {
        let experts = GroupedExperts { first: 0, count: experts, all: experts };
        self.groups.push(GroupsShape { experts, top_k });
        GroupsId(self.groups.len() - 1)
    }

    /// Rows as activations.
    pub(super) fn prepare(&mut self, x: RowsId) -> ActId {
        let act = self.new_act(self.cols(x));
        self.push(Node::Prepare { x, act });
        act
    }

    pub(super) fn cols(&self, rows: RowsId) -> usize {
        self.rows[rows.0].cols
    }

    pub(super) fn all(&self, rows: RowsId) -> Columns {
        Columns { rows, first: 0, end: self.cols(rows) }
    }

    pub(super) fn scale(&mut self, factor: Factor, y: RowsId) {
        if factor != Factor::Constant(1.0) {
            self.push(Node::Scale { factor, y });
        }
    }

    /// Whether the file contains a tensor.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }
}
