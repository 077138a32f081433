//! The products that read activations. With their names a kernel prepares only the representations that they read.
//!
//! # Readers are named
//!
//! Activations have several representations (f32, int8, bfloat16). The program of the forward pass contains the
//! products that read each activation, and names them (`Backend::name_readers`). The backend then fills only the
//! representations that the kernels of these products read. *A product that was not named gets a typed error instead of
//! missing numbers. Without names, all representations are filled.*

use gristmill_kernels::act::ActReader;

use super::node::{Node, Product, ProductKind};
use super::{ActId, ActShape, Program, RowsId, Unit};
use crate::weights::Weights;

/// The activations that a node writes and whose readers are named, each with these readers.
pub(super) type Names = Vec<(ActId, Vec<ProductReader>)>;

/// A product that reads all rows of activations.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductReader {
    product: Product,
    unit: Unit,
    /// Rows of the activations for each unit.
    per_unit: usize,
}

impl ProductReader {
    /// The reader for a pass; `units` counts its units of one kind.
    pub(super) fn of_pass<'a>(&self, weights: &'a Weights, units: impl Fn(Unit) -> usize) -> ActReader<'a> {
        let weight = weights.matrix(self.product.weight);
        let rows = units(self.unit) * self.per_unit;
        match self.product.kind {
            ProductKind::Dense | ProductKind::Outputs => ActReader::dense(weight, rows),
            ProductKind::Heads => ActReader::experts(weight, rows, 1),
            ProductKind::Experts { top_k } => ActReader::experts(weight, rows, top_k / self.per_unit),
        }
    }
}

impl Program {
    /// Finds the readers of all activations. They are named unless a later node reads the rows with the same numbers,
    /// or a product reads only some of the activations' rows.
    pub(super) fn name_readers(&mut self) {
        let nodes: Vec<&Node> = self.parts().flat_map(|part| &part.nodes).collect();
        let mut readers = vec![Vec::new(); self.acts.len()];
        for product in nodes.iter().flat_map(|node| node.products()) {
            let ActShape { unit, per_unit, .. } = self.acts[product.act.0];
            readers[product.act.0].push(ProductReader { product, unit, per_unit });
        }
        // The last node that mentions each value of rows.
        let mut last = vec![0; self.rows.len()];
        for (at, node) in nodes.iter().enumerate() {
            node.values().rows.iter().for_each(|rows| last[rows.0] = at);
        }
        last[self.hidden.0] = usize::MAX;
        let named = |act: &ActId| {
            let readers = &readers[act.0];
            readers.iter().all(|reader| reader.product.kind != ProductKind::Outputs)
        };
        let names = |(at, node): (usize, &&Node)| -> Names {
            let prepared = node.prepared();
            let is_read = |rows: RowsId| last[rows.0] > at;
            if prepared.rows.is_some_and(is_read) {
                return Vec::new();
            }
            prepared.acts.into_iter().filter(named).map(|act| (act, readers[act.0].clone())).collect()
        };
        let mut names = nodes.iter().enumerate().map(names).collect::<Vec<_>>().into_iter();
        for part in self.parts_mut() {
            part.names = names.by_ref().take(part.nodes.len()).collect();
        }
    }
}
