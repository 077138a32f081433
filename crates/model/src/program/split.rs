//! A rank's part of a program: its matrices are cut, and parts of sums are summed over the ranks.
//!
//! Routed experts are split by their index. Every rank routes all tokens; the experts that a rank lacks add nothing to its sum.
//! Dense MLPs and shared experts are split by the rows of gate and up, and by the same columns of down. The builder has split
//! attention by heads. What cannot be cut stays whole, and every rank computes it.

use std::collections::BTreeSet;
use std::mem::take;
use std::ops::Range;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::act::ACT_BLOCK;
use gristmill_kernels::ops::Epilogue;

use super::node::Node;
use super::tensors::{VectorSpec, has_column_order};
use super::{ActId, GroupedExperts, GroupsId, MatrixId, Program, RowsId, RowsShape, VectorId};
use crate::ranks::{RankPart, Split};
use crate::stage::Stage;

impl Program {
    /// Leaves the part of a rank. It runs before rewrites, which find sums in what it leaves. `summed` are matrices that are cut, whose products are parts of sums.
    pub(super) fn split(&mut self, file: &GgufFile, part: &RankPart, mut summed: BTreeSet<MatrixId>) {
        if part.is_whole() {
            return;
        }
        if part.is_in_a_row() {
            return self.link_layers(part);
        }
        summed.extend(self.cut_experts(part));
        summed.extend(self.cut_mlps(file, part, &summed));
        self.sum_over_ranks(&summed, part);
        if part.rank > 0 {
            self.drop_output();
        }
    }

    /// Passes the residual stream from rank to rank, and back to rank 0, which computes the logits.
    fn link_layers(&mut self, part: &RankPart) {
        let RankPart { rank, ranks, .. } = *part;
        let (x, layers) = (self.residual, part.layers(self.layers.len().saturating_sub(1)));
        // Rows of pictures are added after layers too, by the rank that has the layer.
        let others = self.layers.iter_mut().skip(1).enumerate().filter(|(layer, _)| !layers.contains(layer));
        others.for_each(|(_, part)| part.nodes.clear());
        // The embedding precedes the layers.
        if let Some(last) = self.layers.get_mut(layers.end) {
            last.nodes.push(Node::Send { to: (rank + 1) % ranks, x });
            last.nodes.extend((rank == 0).then_some(Node::Receive { from: ranks - 1, x }));
        }
        if rank > 0 {
            self.drop_output();
            if let Some(embedding) = self.layers.first_mut() {
                let tables = embedding.nodes.iter().filter_map(|node| match node {
                    Node::Embed { table, .. } => Some(*table),
                    _ => None,
                });
                for table in tables.collect::<Vec<_>>() {
                    let tensors = &mut self.tensors.matrices[table.0].tensors;
                    tensors.iter_mut().for_each(|tensor| tensor.cut.rows = Some(0..1));
                }
                embedding.nodes = vec![Node::Receive { from: rank - 1, x }];
            }
        }
    }

    /// Cuts the matrices of routed experts. Returns those whose products are parts of sums.
    fn cut_experts(&mut self, part: &RankPart) -> BTreeSet<MatrixId> {
        let (mut summed, mut cuts) = (BTreeSet::new(), Vec::new());
        for (stage, node) in self.parts().flat_map(|part| part.nodes.iter().map(|node| (part.stage, node))) {
            let (groups, matrices, biases) = match node {
                Node::Experts(experts) => {
                    summed.insert(experts.down);
                    let biases = experts.gate_up_bias.into_iter().flatten().chain(experts.down_bias).collect();
                    (experts.groups, vec![experts.gate_up, experts.down], biases)
                }
                Node::MoeGateUpAct { weight, groups, .. } => (*groups, vec![*weight], vec![]),
                Node::MoeMatmul { weight, groups, .. } => {
                    summed.insert(*weight);
                    (*groups, vec![*weight], vec![])
                }
                _ => continue,
            };
            let layer = if let Stage::Layer(layer) = stage { layer } else { usize::MAX };
            cuts.push(ExpertCut { layer, groups, matrices, biases });
        }
        for ExpertCut { layer, groups, matrices, biases } in cuts {
            let experts = self.groups[groups.0].experts;
            let Some(own) = part.experts(layer, experts.all) else {
                summed.retain(|matrix| !matrices.contains(matrix));
                continue;
            };
            self.groups[groups.0].experts = GroupedExperts { first: own.start, count: own.len(), ..experts };
            for matrix in matrices {
                let tensors = &mut self.tensors.matrices[matrix.0].tensors;
                tensors.iter_mut().for_each(|tensor| tensor.cut.experts = Some(own.clone()));
            }
            biases.into_iter().for_each(|bias| self.cut_bias_rows(bias, &own));
        }
        summed
    }

    /// Cuts the matrices of dense MLPs and shared experts. Returns those whose products are parts of sums. If only experts are split,
    /// the MLPs are cut whose products are added to those of experts, because they are summed with them.
    fn cut_mlps(&mut self, file: &GgufFile, part: &RankPart, summed: &BTreeSet<MatrixId>) -> BTreeSet<MatrixId> {
        let mut mlps = Vec::new();
        for nodes in self.parts().map(|part| part.nodes.as_slice()) {
            let sums: Vec<RowsId> = nodes.iter().filter_map(|node| expert_sum(node, summed)).collect();
            let found = nodes.iter().filter_map(|node| CutMlp::find(node, nodes));
            mlps.extend(found.filter(|mlp| part.split == Split::Tensor || sums.contains(&mlp.sum)));
        }
        let mut cut = BTreeSet::new();
        for CutMlp { gate_up, down, h, act, .. } in mlps {
            let inner = self.rows[h.0].cols;
            let Some(own) = self.own_columns(file, part, down, inner) else { continue };
            let tensors = &self.tensors.matrices[gate_up.0].tensors;
            if tensors.iter().any(|tensor| tensor.whole_matrix().1 != inner || tensor.is_transposed()) {
                continue;
            }
            let rows = Some(own.clone());
            self.tensors.matrices[gate_up.0].tensors.iter_mut().for_each(|tensor| tensor.cut.rows.clone_from(&rows));
            (self.rows[h.0].cols, self.acts[act.0].cols) = (own.len(), own.len());
            self.tensors.matrices[down.0].tensors.iter_mut().for_each(|tensor| tensor.cut.columns = Some(own.clone()));
            cut.insert(down);
        }
        cut
    }

    /// The columns of a matrix that a rank has: whole blocks of its format, and of activations if there are enough.
    fn own_columns(&self, file: &GgufFile, part: &RankPart, matrix: MatrixId, columns: usize) -> Option<Range<usize>> {
        let [tensor] = self.tensors.matrices[matrix.0].tensors.as_slice() else { return None };
        let block = file.tensor(&tensor.name)?.format.block_len();
        let is_plain = tensor.order.is_none() && !tensor.is_transposed() && !has_column_order(file, &tensor.name);
        let both = if block.is_multiple_of(ACT_BLOCK) { block } else { block * ACT_BLOCK };
        let own = part.of(columns, both).or_else(|| part.of(columns, block));
        own.filter(|_| is_plain && columns.is_multiple_of(block))
    }

    /// Keeps these rows of a bias with a row for each expert.
    fn cut_bias_rows(&mut self, bias: VectorId, rows: &Range<usize>) {
        if let VectorSpec::Tensors(tensors) = &mut self.tensors.vectors[bias.0] {
            tensors.iter_mut().for_each(|tensor| tensor.cut.rows = Some(rows.clone()));
        }
    }

    /// Sums the products with these matrices over the ranks.
    fn sum_over_ranks(&mut self, summed: &BTreeSet<MatrixId>, part: &RankPart) {
        let mut sums = Sums { rows: take(&mut self.rows), summed, rank: part.rank, open: Vec::new(), done: Vec::new() };
        for part in self.parts_mut() {
            take(&mut part.nodes).into_iter().for_each(|node| sums.add(node));
            part.nodes = sums.finish();
        }
        self.rows = sums.rows;
    }

    /// Only rank 0 computes logits. The others load one row of the output matrix, unless it is the table too. With prediction heads,
    /// each rank has it, because drafts depend on the logits of those before them.
    fn drop_output(&mut self) {
        if !self.heads.is_empty() {
            return;
        }
        let is_table = |matrix: MatrixId| {
            let mut nodes = self.parts().flat_map(|part| &part.nodes);
            nodes.any(|node| matches!(node, Node::Embed { table, .. } if *table == matrix))
        };
        let outputs = self.head.nodes.iter().filter_map(|node| match node {
            Node::OutputMatmul { weight, .. } if !is_table(*weight) => Some(*weight),
            _ => None,
        });
        for output in outputs.collect::<Vec<_>>() {
            self.tensors.matrices[output.0].tensors.iter_mut().for_each(|tensor| tensor.cut.rows = Some(0..1));
        }
    }
}

/// The rows that the products of experts are added to, if they are parts of a sum.
fn expert_sum(node: &Node, summed: &BTreeSet<MatrixId>) -> Option<RowsId> {
    match node {
        Node::Experts(experts) if summed.contains(&experts.down) => Some(experts.y),
        _ => None,
    }
}

/// An MLP whose inner columns can be split.
struct CutMlp {
    gate_up: MatrixId,
    down: MatrixId,
    h: RowsId,
    act: ActId,
    /// Where the product goes in the end.
    sum: RowsId,
}

impl CutMlp {
    /// The MLP that starts with this node.
    fn find(node: &Node, nodes: &[Node]) -> Option<Self> {
        let &Node::GateUp { weight: gate_up, h, .. } = node else { return None };
        let act = nodes.iter().find_map(|node| match *node {
            Node::Prepare { x, act } if x == h => Some(act),
            _ => None,
        })?;
        let (down, y) = nodes.iter().find_map(|node| match *node {
            Node::Matmul { weight, act: read, y, .. } if read == act => Some((weight, y)),
            _ => None,
        })?;
        let gated = nodes.iter().find_map(|node| match *node {
            Node::AddGated { x, y: sum, .. } if x == y => Some(sum),
            _ => None,
        });
        Some(Self { gate_up, down, h, act, sum: gated.unwrap_or(y) })
    }
}

/// What is cut of the experts of a layer.
struct ExpertCut {
    /// None has the number of a prediction head.
    layer: usize,
    groups: GroupsId,
    matrices: Vec<MatrixId>,
    biases: Vec<VectorId>,
}

/// The nodes of a part, with sums over ranks.
struct Sums<'a> {
    rows: Vec<RowsShape>,
    summed: &'a BTreeSet<MatrixId>,
    rank: usize,
    open: Vec<OpenSum>,
    done: Vec<Node>,
}

/// A sum of which each rank has a part so far. It is summed over the ranks before the first node that reads it, so that several
/// parts of one sum cost one exchange.
#[derive(Clone, Copy)]
struct OpenSum {
    part: RowsId,
    /// The rows that the sum is added to, times the factor; `None` if the part itself is the result.
    added: Option<(RowsId, f32)>,
}

impl OpenSum {
    /// The factor with which something must be added to the part, so that it is added to `y` with this factor.
    fn factor(self, y: RowsId, scale: f32) -> Option<f32> {
        match self.added {
            None => (self.part == y).then_some(scale),
            Some((to, factor)) => (to == y && factor == scale).then_some(1.0),
        }
    }

    fn concerns(self, rows: &[RowsId]) -> bool {
        rows.contains(&self.part) || self.added.is_some_and(|(to, _)| rows.contains(&to))
    }
}

impl Sums<'_> {
    fn add(&mut self, mut node: Node) {
        if let Some(target) = self.part_of_sum(&mut node) {
            match *target.epilogue {
                Epilogue::Store => {
                    let part = *target.y;
                    self.close(&[part]);
                    self.open.push(OpenSum { part, added: None });
                }
                Epilogue::Add { scale } => {
                    let y = *target.y;
                    let open = self.open.iter().find_map(|sum| Some((sum.part, sum.factor(y, scale)?)));
                    let (part, epilogue) = match open {
                        Some((part, scale)) => (part, Epilogue::Add { scale }),
                        None => {
                            self.close(&[y]);
                            self.rows.push(self.rows[y.0]);
                            let part = RowsId(self.rows.len() - 1);
                            self.open.push(OpenSum { part, added: Some((y, scale)) });
                            (part, Epilogue::Store)
                        }
                    };
                    (*target.epilogue, *target.y) = (epilogue, part);
                }
            }
            return self.done.push(node);
        }
        match &mut node {
            Node::MoeMatmul { weight, out, .. } if self.summed.contains(weight) => {
                let part = *out;
                self.close(&node.values().rows);
                self.open.push(OpenSum { part, added: None });
            }
            // A part times a number is a part.
            Node::Scale { y, .. } if self.open.iter().any(|sum| sum.part == *y && sum.added.is_none()) => {}
            Node::AddGated { x, y, .. } => {
                let is_part = self.open.iter().position(|sum| sum.part == *x && sum.added.is_none());
                let to = self.open.iter().find_map(|sum| (sum.factor(*y, 1.0) == Some(1.0)).then_some(sum.part));
                match (is_part, to) {
                    (Some(x), Some(to)) => {
                        self.open.remove(x);
                        *y = to;
                    }
                    _ => self.close(&node.values().rows),
                }
            }
            node => self.close(&node.values().rows),
        }
        self.done.push(node);
    }

    /// The target of a product that is a part of a sum. A bias is added by rank 0.
    fn part_of_sum<'n>(&self, node: &'n mut Node) -> Option<Target<'n>> {
        match node {
            Node::Experts(experts) if self.summed.contains(&experts.down) => {
                Some(Target { epilogue: &mut experts.epilogue, y: &mut experts.y })
            }
            Node::Matmul { weight, bias, epilogue, y, .. } if self.summed.contains(weight) => {
                *bias = bias.filter(|_| self.rank == 0);
                Some(Target { epilogue, y })
            }
            _ => None,
        }
    }

    /// Sums what concerns these rows.
    fn close(&mut self, rows: &[RowsId]) {
        let (closed, open): (Vec<_>, Vec<_>) = take(&mut self.open).into_iter().partition(|sum| sum.concerns(rows));
        self.open = open;
        for OpenSum { part, added } in closed {
            self.done.push(Node::AllReduce { x: part });
            self.done.extend(added.map(|(y, scale)| Node::Add { x: part, scale, y }));
        }
    }

    /// The nodes of a part that ends.
    fn finish(&mut self) -> Vec<Node> {
        let open: Vec<RowsId> = self.open.iter().map(|sum| sum.part).collect();
        self.close(&open);
        take(&mut self.done)
    }
}

/// Where a product goes.
struct Target<'n> {
    epilogue: &'n mut Epilogue,
    y: &'n mut RowsId,
}
