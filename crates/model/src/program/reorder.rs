//! Inputs of matrices whose columns are in another order, as GPTQ's `desc_act` quantises them.
//!
//! A tensor `X.column_order` of the file has, for each column of `X.weight`, the number of the input that the column is
//! multiplied with. So the input is gathered once for the matrix, and the columns of a group stay adjacent.

use std::collections::BTreeMap;
use std::mem::take;

use gristmill_files::gguf::GgufFile;

use super::node::Node;
use super::{ActId, OrderId, Program, RowsId};

/// Rows that are prepared as activations, and these activations with gathered columns.
struct PreparedRows {
    rows: RowsId,
    gathered: BTreeMap<OrderId, ActId>,
}

impl Program {
    /// Gathers the input of each matrix with an order of columns, where its activations are prepared. The survey of the
    /// weights refuses the order of a matrix that is multiplied in another way, as a tensor that is not used.
    pub(super) fn reorder_inputs(&mut self, file: &GgufFile) {
        let mut sources = self.sources();
        let orders: Vec<Option<OrderId>> = (0..self.tensors.matrices.len())
            .map(|matrix| {
                let tensors = &self.tensors.matrices[matrix].tensors;
                let orders: Vec<_> = tensors.iter().map(|tensor| tensor.column_order()).collect();
                let has_one = orders.iter().any(|order| file.tensor(&order.name).is_some());
                (has_one && self.reads_sources(matrix, &sources)).then(|| self.tensors.add_order(orders))
            })
            .collect();
        if orders.iter().all(Option::is_none) {
            return;
        }
        let mut acts = take(&mut self.acts);
        for node in self.parts_mut().flat_map(|part| &mut part.nodes) {
            if let Some((matrix, act)) = node.input_mut()
                && let (Some(order), Some(source)) = (orders[matrix.0], sources.get_mut(act))
            {
                let shape = acts[act.0];
                *act = *source.gathered.entry(order).or_insert_with(|| {
                    acts.push(shape);
                    ActId(acts.len() - 1)
                });
            }
        }
        let products = self.parts().flat_map(|part| &part.nodes).flat_map(Node::products);
        let read: Vec<ActId> = products.map(|product| product.act).collect();
        let mut rows = take(&mut self.rows);
        for part in self.parts_mut() {
            for node in take(&mut part.nodes) {
                let acts = node.prepared().acts;
                if !(matches!(node, Node::Prepare { act, .. } if !read.contains(&act))) {
                    part.nodes.push(node);
                }
                for PreparedRows { rows: x, gathered } in acts.iter().filter_map(|act| sources.get(act)) {
                    for (&order, &act) in gathered {
                        rows.push(rows[x.0]);
                        let out = RowsId(rows.len() - 1);
                        part.nodes.extend([Node::GatherColumns { x: *x, order, out }, Node::Prepare { x: out, act }]);
                    }
                }
            }
        }
        (self.rows, self.acts) = (rows, acts);
    }

    /// The rows of all activations that a node prepares from rows.
    fn sources(&self) -> BTreeMap<ActId, PreparedRows> {
        let of_node = |node: &Node| {
            let prepared = node.prepared();
            let rows = if let Node::Prepare { x, .. } = node { Some(*x) } else { prepared.rows };
            prepared
                .acts
                .into_iter()
                .filter_map(move |act| Some((act, PreparedRows { rows: rows?, gathered: BTreeMap::new() })))
        };
        self.parts().flat_map(|part| &part.nodes).flat_map(of_node).collect()
    }

    /// Whether the matrix is multiplied, and only with inputs that can be gathered.
    fn reads_sources(&self, matrix: usize, sources: &BTreeMap<ActId, PreparedRows>) -> bool {
        let nodes = || self.parts().flat_map(|part| &part.nodes);
        let products = nodes().flat_map(Node::products).filter(|product| product.weight.0 == matrix).count();
        let is_input = |node: &&Node| {
            (*node).clone().input_mut().is_some_and(|(it, act)| it.0 == matrix && sources.contains_key(act))
        };
        let is_table = nodes().any(|node| matches!(node, Node::Embed { table, .. } if table.0 == matrix));
        products > 0 && products == nodes().filter(is_input).count() && !is_table
    }
}
