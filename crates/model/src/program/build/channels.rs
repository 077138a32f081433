//! The gated delta rule in which each element of a key has a gate (KDA).

use gristmill_kernels::ops::{DeltaHeads, Epilogue, GateKind};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use crate::program::node::Node;
use crate::program::tensors::{TensorSpec, VectorSpec};
use crate::program::{Columns, RowsId, VectorId};
use crate::spec::{ChannelGates, DeltaSpec};

impl Builder<'_> {
    /// output(norm(delta_rule(silu(convolution(qkv)), beta, alpha)) · sigmoid(gate)).
    pub(super) fn channel_delta(
        &mut self,
        layer: Layer,
        spec: &DeltaSpec,
        gates: &ChannelGates,
        input: Input,
    ) -> (RowsId, RowsId) {
        let (heads, eps) = (spec.heads, self.spec.norm_eps);
        let DeltaHeads { values, width, .. } = heads;
        let inner = values * width;
        let qkv = heads.columns();
        let between = gates.rank.unwrap_or(values * width);
        let (conv, decay, dt_bias, norm) = self.channel_vectors(layer, spec, gates);
        let projection = self.matrix(Role::Matrix, self.delta_tensors(layer, spec));
        let seconds = gates.rank.map(|rank| {
            ["ssm_f_b.weight", "ssm_g_b.weight"]
                .map(|part| self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name(part), &[rank, inner])]))
        });
        let output = TensorSpec::new(layer.name("attn_output.weight"), &[inner, self.spec.hidden]);
        let output = self.matrix(Role::Matrix, vec![output]);

        // Queries, keys and values, α, the gate and β.
        let what = "queries, keys and values";
        let columns = qkv + 2 * between + values;
        let (product, read) = self.input_matmul(input, projection, None, columns, what);
        let part = |first, len| Columns { rows: product, first, end: first + len };
        let alpha = part(qkv, between);
        let gate = part(qkv + between, between);
        let beta = part(qkv + 2 * between, values);
        let [alpha, gate] = match seconds {
            None => [alpha, gate],
            Some([to_alpha, to_gate]) => [(alpha, to_alpha), (gate, to_gate)].map(|(x, weight)| {
                let act = self.new_act(between);
                let y = self.new_rows(inner, "convolution and gates");
                self.push(Node::PrepareColumns { x, act });
                self.push(Node::Matmul { weight, bias: None, act, epilogue: Epilogue::Store, y });
                self.all(y)
            }),
        };
        let mixed = self.new_rows(qkv, "convolution and gates");
        let (layer, kind) = (layer.index, gates.decay);
        self.push(Node::CausalConv { layer, x: part(0, qkv), weight: conv, bias: None, silu: true, out: mixed });
        let [out, gated] = [(); 2].map(|()| self.new_rows(inner, "attention"));
        self.push(Node::DeltaRule { layer, qkv: mixed, beta, alpha, decay, dt_bias, kind, heads, out });
        self.push(Node::QkNorm { x: self.all(out), weight: norm, eps });
        self.push(Node::Multiply { x: self.all(out), gate, kind: GateKind::Sigmoid, out: gated, act: None });
        let act = self.prepare(gated);
        (self.mixer_output(output, None, act), read)
    }

    /// The weights of the convolutions, the decay, its bias, and the norm.
    fn channel_vectors(
        &mut self,
        layer: Layer,
        spec: &DeltaSpec,
        gates: &ChannelGates,
    ) -> (VectorId, VectorId, VectorId, VectorId) {
        let DeltaHeads { values, width, .. } = spec.heads;
        let named = |name: &str, shape: &[usize]| TensorSpec::new(layer.name(name), shape);
        let convolution = |part| named(&format!("ssm_conv1d_{part}.weight"), &[spec.taps, values * width]);
        let conv = self.tensors.add_vector(VectorSpec::Tensors(["q", "k", "v"].map(convolution).to_vec()));
        let decay = named("ssm_a", &[values]);
        let decay = if gates.is_negated { self.scaled(decay, -1.0) } else { self.vector(decay) };
        let dt_bias = self.vector(named("ssm_dt.bias", &[values * width]));
        (conv, decay, dt_bias, self.vector(named("ssm_norm.weight", &[width])))
    }

    /// Queries, keys and values, then α, the gate and β.
    pub(super) fn channel_tensors(&self, layer: Layer, spec: &DeltaSpec, gates: &ChannelGates) -> Vec<TensorSpec> {
        let DeltaHeads { values, width, .. } = spec.heads;
        let between = gates.rank.unwrap_or(values * width);
        let tensor = |(part, rows): (&str, usize)| {
            TensorSpec::new(layer.name(&format!("{part}.weight")), &[self.spec.hidden, rows])
        };
        let qkv: &[_] = match self.contains(&layer.name("attn_qkv.weight")) {
            true => &[("attn_qkv", spec.heads.columns())],
            false => &["attn_q", "attn_k", "attn_v"].map(|part| (part, values * width)),
        };
        let gates = [("ssm_f_a", between), ("ssm_g_a", between), ("ssm_beta", values)];
        qkv.iter().copied().chain(gates).map(tensor).collect()
    }
}
