//! The tensors of the attention heads that a rank has.

use std::ops::Range;

use super::builder::{Builder, Layer};
use crate::program::tensors::{Cut, RowOrder, TensorSpec};
use crate::spec::{AttentionSpec, GateRows};

/// The heads of a rank, and the attention that the file has.
pub(super) struct Heads<'a> {
    pub(super) whole: &'a AttentionSpec,
    /// The heads of queries, and those of keys and values; `None` if the rank has all of them.
    pub(super) own: Option<[Range<usize>; 2]>,
}

/// Adjacent rows of a tensor: how many, the rows of a head, and whether the heads are those of queries.
type Rows = (usize, usize, bool);

impl<'a> Builder<'a> {
    /// The heads of a layer whose part of a rank is `spec`.
    pub(super) fn heads_of_rank<'s>(&self, layer: Layer, spec: &'s AttentionSpec) -> Heads<'s>
    where
        'a: 's,
    {
        let whole = self.whole.get(layer.index).and_then(|whole| whole.attention());
        match whole.filter(|whole| (whole.heads, whole.kv_heads) != (spec.heads, spec.kv_heads)) {
            None => Heads { whole: spec, own: None },
            Some(whole) => Heads { whole, own: self.part.heads(whole) },
        }
    }
}

impl Heads<'_> {
    /// The columns of the heads of queries, each of this width.
    pub(super) fn columns(&self, tensor: TensorSpec, width: usize) -> TensorSpec {
        let Some([queries, _]) = &self.own else { return tensor };
        let columns = Some(queries.start * width..queries.end * width);
        TensorSpec { cut: Cut { columns, ..Cut::default() }, ..tensor }
    }

    /// The rows of the gate, queries, keys and values. The tensors are those of all heads, in this order.
    pub(super) fn tensors(&self, tensors: Vec<TensorSpec>) -> Vec<TensorSpec> {
        if self.own.is_none() {
            return tensors;
        }
        let mut parts = self.parts(true);
        let mut cut = Vec::new();
        for tensor in tensors {
            // The gate with the queries: the rows of a group are those of a head of both.
            if let Some(order) = tensor.order.clone().filter(|order| order.parts.len() == 2) {
                for &part in &order.order {
                    let own = RowOrder { order: vec![part], ..order.clone() };
                    cut.extend(self.rows(TensorSpec { order: Some(own), ..tensor.clone() }, &mut parts));
                }
            } else {
                cut.extend(self.rows(tensor, &mut parts));
            }
        }
        cut
    }

    /// The biases of queries, keys and values.
    pub(super) fn biases(&self, tensors: Vec<TensorSpec>) -> Vec<TensorSpec> {
        if self.own.is_none() {
            return tensors;
        }
        let mut parts = self.parts(false);
        let rows = tensors.into_iter().flat_map(|tensor| self.rows(tensor, &mut parts)).collect::<Vec<_>>();
        // The elements of a vector are columns.
        let columns = |tensor: TensorSpec| {
            let cut = Cut { columns: tensor.cut.rows.clone(), ..Cut::default() };
            TensorSpec { cut, ..tensor }
        };
        rows.into_iter().map(columns).collect()
    }

    /// The rows of gate, queries, keys and values with those of a head.
    fn parts(&self, has_gate: bool) -> Vec<Rows> {
        let AttentionSpec { heads, kv_heads, key_width, value_width, .. } = *self.whole;
        let gate = self.whole.gate.filter(|_| has_gate).map(|gate| match (gate.rows, gate.per_head) {
            (GateRows::Apart, true) => (heads, 1, true),
            (GateRows::Apart, false) | (GateRows::WithQueries, _) => (heads * value_width, value_width, true),
        });
        let of_queries = [(heads * key_width, key_width, true)];
        let of_keys = [(kv_heads * key_width, key_width, false), (kv_heads * value_width, value_width, false)];
        let of_keys = of_keys.into_iter().filter(|_| self.whole.kv_from.is_none());
        gate.into_iter().chain(of_queries).chain(of_keys).rev().collect()
    }

    /// The rows of a tensor that has the next of the parts, one or several.
    fn rows(&self, tensor: TensorSpec, parts: &mut Vec<Rows>) -> Vec<TensorSpec> {
        let Some([queries, keys]) = &self.own else { return vec![tensor] };
        let (_, rows, columns) = tensor.whole_matrix();
        let all = if tensor.shape.len() > 1 { rows } else { columns };
        let (mut first, mut cut) = (0, Vec::new());
        while first < all {
            let Some((rows, width, is_of_queries)) = parts.pop() else { break };
            let heads = if is_of_queries { queries } else { keys };
            cut.push(tensor.clone().of_rows(first + heads.start * width..first + heads.end * width));
            first += rows;
        }
        cut
    }
}
