//! What a pass reads of each tensor, from which the least time of a pass follows.

use std::collections::HashSet;

use gristmill_files::gguf::GgufFile;

use super::node::{Node, ProductKind};
use super::{MatrixId, Program};
use crate::spec::ModelSpec;
use crate::stage::Stage;

/// A tensor of the file, and what a forward pass reads of it. A tensor that is a table and a matrix has two uses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorUse {
    /// The tensor's name.
    pub tensor: String,
    /// Its elements.
    pub elements: u64,
    /// What is read of it.
    pub reads: TensorReads,
}

/// What a forward pass reads of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorReads {
    /// A vector: all of it, once.
    Vector,
    /// A matrix: all of it, once; each token is multiplied with each element.
    Matrix,
    /// A matrix, if the pass computes logits: all of it, once; each row of logits is multiplied with each element.
    OutputMatrix,
    /// One of `rows` rows for each token.
    Row {
        /// Rows of the table.
        rows: usize,
    },
    /// The matrices of the chosen experts, each once; each token is multiplied with the matrices of `top_k` experts.
    Experts {
        /// The layer.
        layer: usize,
        /// Experts of the layer.
        experts: usize,
        /// Experts of each token.
        top_k: usize,
    },
}

/// What a pass reads and computes of the matrices that are loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) bytes: f64,
    /// A product and a sum are two.
    pub(crate) operations: f64,
}

impl Program {
    /// The work of a pass with so many tokens, each of which has logits. Experts are chosen evenly.
    pub(crate) fn work(&self, file: &GgufFile, spec: &ModelSpec, tokens: usize) -> Work {
        let (routers, tokens) = (spec.routers(), tokens as f64);
        let mut work = Work::default();
        for (matrix, reads) in self.matrix_reads() {
            // Shares of the matrix that are read, and that a token is multiplied with.
            let (read, multiplied) = match reads {
                TensorReads::Vector | TensorReads::Row { .. } => continue,
                TensorReads::Matrix | TensorReads::OutputMatrix => (1.0, 1.0),
                TensorReads::Experts { layer, experts, top_k } => {
                    let all = routers.get(layer).map_or(experts, |router| router.experts).max(top_k).max(1);
                    let share = top_k as f64 / all as f64;
                    (1.0 - (1.0 - share).powf(tokens), share)
                }
            };
            for tensor in &self.tensors.matrices[matrix.0].tensors {
                let bytes = file.tensor(&tensor.name).map_or(0, |found| tensor.part_of(found.bytes));
                let (experts, rows, cols) = tensor.matrix();
                work.bytes += read * bytes as f64;
                work.operations += 2.0 * multiplied * tokens * experts as f64 * rows as f64 * cols as f64;
            }
        }
        work
    }

    /// The uses of all tensors.
    pub(crate) fn tensor_uses(&self) -> Vec<TensorUse> {
        let (mut seen, mut uses) = (HashSet::new(), Vec::new());
        for (matrix, reads) in self.matrix_reads() {
            let is_row = matches!(reads, TensorReads::Row { .. });
            for needed in &self.tensors.matrices[matrix.0].tensors {
                // Two parts of a tensor are one use, as are keys that are the values too.
                if seen.insert((needed.name.as_str(), is_row)) {
                    uses.push(TensorUse { tensor: needed.name.clone(), elements: needed.elements(), reads });
                }
            }
        }
        let vectors = self.tensors.vectors.iter().flat_map(|vector| vector.tensors()).chain(&self.tensors.scalars);
        let vectors = vectors.chain(self.tensors.orders.iter().flatten());
        let reads = TensorReads::Vector;
        uses.extend(vectors.map(|it| TensorUse { tensor: it.name.clone(), elements: it.elements(), reads }));
        uses
    }

    /// What each node reads of each matrix.
    fn matrix_reads(&self) -> Vec<(MatrixId, TensorReads)> {
        let mut found = Vec::new();
        for (stage, node) in self.parts().flat_map(|part| part.nodes.iter().map(|node| (part.stage, node))) {
            let shape = |matrix: MatrixId| self.tensors.matrices[matrix.0].tensors.first().map(|it| it.matrix());
            if let Node::Embed { table, .. } = *node {
                found.push((table, TensorReads::Row { rows: shape(table).map_or(1, |(_, rows, _)| rows) }));
            }
            for product in node.products() {
                let reads = match product.kind {
                    ProductKind::Dense | ProductKind::Heads => TensorReads::Matrix,
                    ProductKind::Outputs => TensorReads::OutputMatrix,
                    ProductKind::Experts { top_k } => TensorReads::Experts {
                        layer: if let Stage::Layer(layer) = stage { layer } else { 0 },
                        experts: shape(product.weight).map_or(1, |(experts, ..)| experts),
                        top_k,
                    },
                };
                found.push((product.weight, reads));
            }
        }
        found
    }
}
