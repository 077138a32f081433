//! Selective state spaces (Mamba-2 and Mamba-1).

use gristmill_kernels::ops::{Epilogue, GateKind, GateOrder};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use crate::program::node::Node;
use crate::program::tensors::TensorSpec;
use crate::program::{Columns, RowsId};
use crate::spec::ScanSpec;

impl Builder<'_> {
    /// output(norm(scan(silu(convolution(v)), Δ) · silu(z))).
    pub(super) fn scan(&mut self, layer: Layer, spec: &ScanSpec, input: Input) -> (RowsId, RowsId) {
        if let Some(rank) = spec.rank {
            return self.channel_scan(layer, spec, rank, input);
        }
        let ScanSpec { heads, taps, bias, norm, .. } = *spec;
        let (hidden, values, convolved) = (self.spec.hidden, heads.values(), heads.columns());
        let columns = values + convolved + heads.heads;
        let mut vector = |part: &str, shape: &[usize]| self.vector(TensorSpec::new(layer.name(part), shape));
        let weight = vector("ssm_conv1d.weight", &[taps, convolved]);
        let bias = bias.then(|| vector("ssm_conv1d.bias", &[convolved]));
        let (a, d) = (vector("ssm_a", &[heads.heads]), vector("ssm_d", &[heads.heads]));
        let dt_bias = vector("ssm_dt.bias", &[heads.heads]);
        let width = values / heads.groups;
        let norm = norm.then(|| vector("ssm_norm.weight", &[width, heads.groups]));
        let mut matrix =
            |part: &str, shape: &[usize]| self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name(part), shape)]);
        let projection = matrix("ssm_in.weight", &[hidden, columns]);
        let output = matrix("ssm_out.weight", &[values, hidden]);

        // The gate, what is convolved, Δ.
        let (product, read) = self.input_matmul(input, projection, None, columns, "convolution and gates");
        let part = |first, len| Columns { rows: product, first, end: first + len };
        let (gate, layer) = (part(0, values), layer.index);
        let xbc = self.new_rows(convolved, "convolution and gates");
        self.push(Node::CausalConv { layer, x: part(values, convolved), weight, bias, silu: true, out: xbc });
        let out = self.new_rows(values, "attention");
        let dt = part(values + convolved, heads.heads);
        self.push(Node::SelectiveScan { layer, xbc, dt, a, d, dt_bias, heads, out });
        let gated = match norm {
            Some(weight) => {
                self.push(Node::GatedNorm { x: out, gate, weight, width, order: GateOrder::BeforeNorm });
                out
            }
            None => {
                let gated = self.new_rows(values, "attention");
                self.push(Node::Multiply { x: self.all(out), gate, kind: GateKind::Silu, out: gated, act: None });
                gated
            }
        };
        let act = self.prepare(gated);
        (self.mixer_output(output, None, act), read)
    }

    /// output(scan(v | norm(B) | norm(C), Δ) · silu(z)), with v the output of the convolution.
    fn channel_scan(&mut self, layer: Layer, spec: &ScanSpec, rank: usize, input: Input) -> (RowsId, RowsId) {
        let ScanSpec { heads, taps, bias, .. } = *spec;
        let (hidden, values, eps) = (self.spec.hidden, heads.values(), self.spec.norm_eps);
        let mut vector = |part: &str, shape: &[usize]| self.vector(TensorSpec::new(layer.name(part), shape));
        let weight = vector("ssm_conv1d.weight", &[taps, values]);
        let bias = bias.then(|| vector("ssm_conv1d.bias", &[values]));
        let (a, d) = (vector("ssm_a", &[heads.state, values]), vector("ssm_d", &[values]));
        let dt_bias = vector("ssm_dt.bias", &[values]);
        let norms =
            [("ssm_dt_norm.weight", rank), ("ssm_b_norm.weight", heads.state), ("ssm_c_norm.weight", heads.state)]
                .map(|(part, width)| (vector(part, &[width]), width));
        let mut matrix =
            |part: &str, shape: &[usize]| self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name(part), shape)]);
        let projection = matrix("ssm_in.weight", &[hidden, 2 * values]);
        let to_inputs = matrix("ssm_x.weight", &[values, rank + 2 * heads.state]);
        let to_steps = matrix("ssm_dt.weight", &[rank, values]);
        let output = matrix("ssm_out.weight", &[values, hidden]);

        const WHAT: &str = "convolution and gates";
        let part = |rows, first, len| Columns { rows, first, end: first + len };
        let (product, read) = self.input_matmul(input, projection, None, 2 * values, WHAT);
        let (layer, convolved) = (layer.index, self.new_rows(values, WHAT));
        let x = part(product, 0, values);
        self.push(Node::CausalConv { layer, x, weight, bias, silu: true, out: convolved });
        let (act, inputs) = (self.prepare(convolved), self.new_rows(rank + 2 * heads.state, WHAT));
        self.push(Node::Matmul { weight: to_inputs, bias: None, act, epilogue: Epilogue::Store, y: inputs });
        let mut first = 0;
        for (weight, width) in norms {
            self.push(Node::QkNorm { x: part(inputs, first, width), weight, eps });
            first += width;
        }
        let (act, dt) = (self.new_act(rank), self.new_rows(values, WHAT));
        self.push(Node::PrepareColumns { x: part(inputs, 0, rank), act });
        self.push(Node::Matmul { weight: to_steps, bias: None, act, epilogue: Epilogue::Store, y: dt });
        let xbc = self.new_rows(heads.columns(), WHAT);
        self.push(Node::Copy { x: self.all(convolved), out: part(xbc, 0, values) });
        let b_and_c = 2 * heads.state;
        self.push(Node::Copy { x: part(inputs, rank, b_and_c), out: part(xbc, values, b_and_c) });
        let out = self.new_rows(values, "attention");
        self.push(Node::SelectiveScan { layer, xbc, dt: self.all(dt), a, d, dt_bias, heads, out });
        let (gate, gated) = (part(product, values, values), self.new_rows(values, "attention"));
        self.push(Node::Multiply { x: self.all(out), gate, kind: GateKind::Silu, out: gated, act: None });
        let act = self.prepare(gated);
        (self.mixer_output(output, None, act), read)
    }
}
