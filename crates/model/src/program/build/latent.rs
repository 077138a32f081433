//! Latent attention: queries are brought to the latent row, which all heads share.
//!
//! # Latent attention has one row for each token
//!
//! All query heads share the row, and values are its first elements (`KvSpec::values_in_keys`), so the cache keeps no
//! value part. A product with the matrix of each head is a product of experts: expert *h* is head *h*, and each token
//! has all of them. The (token, head) pairs are grouped once in a pass (`Node::GroupHeads`). Prompts and single tokens
//! use the same absorbed form. *So a result does not depend on how a prompt is cut.*

use gristmill_kernels::ops::{Epilogue, GateKind};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use crate::program::node::{Attention, Node};
use crate::program::tensors::{HeadPart, TensorSpec};
use crate::program::{ActId, ActShape, Columns, GroupsId, MatrixId, RowsId, Unit};
use crate::spec::LatentSpec;

impl Builder<'_> {
    /// See [`LatentSpec`]. Products of single heads are products of experts, of which each token has all in order.
    pub(super) fn latent(&mut self, layer: Layer, spec: &LatentSpec, input: Input) -> (RowsId, RowsId) {
        let (hidden, eps) = (self.spec.hidden, self.spec.norm_eps);
        let &LatentSpec { heads, latent, plain, rotated, value_width, scale, temperature, .. } = spec;
        let row = spec.row();
        let values = heads.saturating_mul(value_width);
        let (queries, rows, gate, read) = self.latent_inputs(layer, spec, input);
        let norm = self.vector(TensorSpec::new(layer.name("attn_kv_a_norm.weight"), &[latent]));
        let [to_latent, to_values] = self.head_matrices(layer, spec);
        let output = TensorSpec::new(layer.name("attn_output.weight"), &[values, hidden]);
        let output = self.matrix(Role::Matrix, vec![output]);
        let groups = self.group_heads(heads);

        let part = |rows: Columns, first: usize, len: usize| Columns {
            first: rows.first + first,
            end: rows.first + first + len,
            ..rows
        };
        let q = self.pair_rows(heads, row, "queries, keys and values");
        let [of_queries, of_attention] = [plain, latent].map(|cols| self.head_act(heads, cols));
        self.push(Node::LatentWrite {
            layer: layer.index,
            rows,
            queries,
            heads,
            norm,
            eps,
            is_rotated: spec.rope.is_some(),
            plain: of_queries,
            rotated: part(self.all(q), latent, rotated),
        });
        let out = part(self.all(q), 0, latent);
        self.push(Node::HeadMatmul { weight: to_latent, heads, x: of_queries, groups, out });
        let (cap, window, first, sinks) = (None, None, layer.first, None);
        let options = Attention { heads, scale, cap, temperature, window, first, sinks, both_ways: false };
        let out = self.pair_rows(heads, latent, "attention");
        self.push(Node::AttendLatent { layer: layer.index, q, options, out, act: of_attention });

        let out = self.pair_rows(heads, value_width, "attention");
        self.push(Node::HeadMatmul { weight: to_values, heads, x: of_attention, groups, out: self.all(out) });
        let act = match gate {
            None => {
                let act = self.new_act(values);
                self.push(Node::Prepare { x: out, act });
                act
            }
            Some(gate) => {
                let gated = self.new_rows(values, "attention");
                let kind = GateKind::Sigmoid;
                self.push(Node::Multiply { x: self.all(out), gate, kind, out: gated, act: None });
                self.prepare(gated)
            }
        };
        (self.mixer_output(output, None, act), read)
    }

    /// Queries, a row for each head, latent rows, and the gate; and the rows of the input.
    fn latent_inputs(
        &mut self,
        layer: Layer,
        spec: &LatentSpec,
        input: Input,
    ) -> (RowsId, Columns, Option<Columns>, RowsId) {
        let (hidden, eps, what) = (self.spec.hidden, self.spec.norm_eps, "queries, keys and values");
        let width = spec.query_width();
        let row = spec.row();
        let gates = if spec.is_gated { spec.heads } else { 0 };
        let columns = spec.heads.saturating_mul(width);
        let tensor = |part: &str, shape: &[usize]| TensorSpec::new(layer.name(&format!("{part}.weight")), shape);
        let gate_tensor = spec.is_gated.then(|| tensor("attn_gate", &[hidden, gates]));
        let of_rows = [tensor("attn_kv_a_mqa", &[hidden, row])].into_iter().chain(gate_tensor);
        let gate =
            |rows, first: usize| spec.is_gated.then(|| Columns { rows, first, end: first.saturating_add(gates) });
        let queries = self.pair_rows(spec.heads, width, what);
        let product = |weight, act, y| Node::Matmul { weight, bias: None, act, epilogue: Epilogue::Store, y };
        let Some(rank) = spec.query_rank else {
            let weights = [vec![tensor("attn_q", &[hidden, columns])], of_rows.collect()];
            let [to_queries, to_rows] = weights.map(|tensors| self.matrix(Role::Matrix, tensors));
            let read = self.input_rows(input);
            let act = self.prepare(read);
            let rows = self.new_rows(row.saturating_add(gates), what);
            self.push(product(to_rows, act, rows));
            self.push(product(to_queries, act, queries));
            return (queries, Columns { rows, first: 0, end: row }, gate(rows, row), read);
        };
        let weights = [tensor("attn_q_a", &[hidden, rank])].into_iter().chain(of_rows).collect();
        let weights = self.matrix(Role::Matrix, weights);
        let norm = self.vector(tensor("attn_q_a_norm", &[rank]));
        let to_queries = self.matrix(Role::Matrix, vec![tensor("attn_q_b", &[rank, columns])]);
        let end = rank.saturating_add(row);
        let (rows, read) = self.input_matmul(input, weights, None, end.saturating_add(gates), what);
        let x = Columns { rows, first: 0, end: rank };
        let out = self.new_rows(rank, what);
        let act = self.new_act(rank);
        self.push(Node::NormColumnsAct { x, weight: norm, eps, out, act });
        self.push(product(to_queries, act, queries));
        (queries, Columns { rows, first: rank, end }, gate(rows, end), read)
    }

    /// The matrices of each head: queries to latent rows, and latent rows to values. Older files have both, the former
    /// transposed, in one tensor.
    fn head_matrices(&mut self, layer: Layer, spec: &LatentSpec) -> [MatrixId; 2] {
        let &LatentSpec { heads, latent, plain, value_width, .. } = spec;
        let tensors = match self.contains(&layer.name("attn_kv_b.weight")) {
            true => {
                let part = |part| {
                    TensorSpec::of_heads(&layer.name("attn_kv_b.weight"), latent, heads, [plain, value_width], part)
                };
                [part(HeadPart::FirstTransposed), part(HeadPart::Second)]
            }
            false => [
                TensorSpec::new(layer.name("attn_k_b.weight"), &[plain, latent, heads]),
                TensorSpec::new(layer.name("attn_v_b.weight"), &[latent, value_width, heads]),
            ],
        };
        tensors.map(|tensor| self.matrix(Role::Matrix, vec![tensor]))
    }

    /// Activations of a row for each token and head.
    fn head_act(&mut self, heads: usize, cols: usize) -> ActId {
        self.add_act(ActShape { unit: Unit::Token, per_unit: heads, cols, exact: false })
    }

    /// The pairs of tokens and heads, which are grouped once in a pass.
    fn group_heads(&mut self, heads: usize) -> GroupsId {
        if let Some((_, groups)) = self.heads.iter().find(|(count, _)| *count == heads) {
            return *groups;
        }
        let groups = self.new_groups(heads, heads);
        self.heads.push((heads, groups));
        self.push(Node::GroupHeads { heads, groups });
        groups
    }
}
