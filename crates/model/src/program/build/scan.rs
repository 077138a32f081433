//! Selective state spaces (Mamba-2).

use gristmill_kernels::ops::{GateKind, GateOrder};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer};
use crate::program::node::Node;
use crate::program::tensors::TensorSpec;
use crate::program::{Columns, RowsId};
use crate::spec::ScanSpec;

impl Builder<'_> {
    /// output(norm(scan(silu(convolution(v)), Δ) · silu(z))).
    pub(super) fn scan(&mut self, layer: Layer, spec: &ScanSpec, input: Input) -> (RowsId, RowsId) {
        let ScanSpec { heads, taps, bias, norm } = *spec;
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
}
