//! Per-layer embeddings: an input that each layer has of its own.

use gristmill_kernels::ops::{Epilogue, GateKind};
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Layer};
use crate::program::node::Node;
use crate::program::tensors::TensorSpec;
use crate::program::{Columns, Factor, RowsId};

impl Builder<'_> {
    /// The inputs of all layers, side by side, from the scaled embeddings in the residual stream: see
    /// [`layer_inputs`](crate::spec::ModelSpec::layer_inputs).
    pub(super) fn layer_inputs(&mut self, width: usize) -> RowsId {
        let (hidden, vocab) = (self.spec.hidden, self.spec.vocab);
        let columns = width.saturating_mul(self.spec.layers.len());
        let table = self.matrix(Role::Table, vec![TensorSpec::new("per_layer_token_embd.weight", &[columns, vocab])]);
        let projection = TensorSpec::new("per_layer_model_proj.weight", &[hidden, columns]);
        let projection = self.matrix(Role::Matrix, vec![projection]);
        let norm = TensorSpec::new("per_layer_proj_norm.weight", &[width]);
        let norm = self.scaled(norm, std::f32::consts::FRAC_1_SQRT_2);

        let inputs = self.new_rows(columns, "the layers' inputs");
        let act = self.prepare(self.residual);
        self.push(Node::Matmul { weight: projection, bias: None, act, epilogue: Epilogue::Store, y: inputs });
        // The norm of y / √hidden is the norm of y with an epsilon multiplied by hidden.
        let eps = self.spec.norm_eps * hidden as f32;
        self.push(Node::QkNorm { x: self.all(inputs), weight: norm, eps });
        let embedded = self.new_rows(columns, "the layers' inputs");
        self.push(Node::Embed { table, scale: (width as f32 / 2.0).sqrt(), out: embedded });
        self.push(Node::Add { x: embedded, scale: 1.0, y: inputs });
        inputs
    }

    /// residual = factor · (residual + norm(projection(gelu(gate · residual) · input of the layer))).
    pub(super) fn layer_input(&mut self, layer: Layer, inputs: RowsId, factor: Factor) {
        let hidden = self.spec.hidden;
        let width = self.spec.layer_inputs.unwrap_or_default();
        let gate = self.matrix(Role::Matrix, vec![TensorSpec::new(layer.name("inp_gate.weight"), &[hidden, width])]);
        let projection = TensorSpec::new(layer.name("proj.weight"), &[width, hidden]);
        let projection = self.matrix(Role::Matrix, vec![projection]);
        let norm = self.norm_vectors(&layer.name("post_norm"));

        let act = self.prepare(self.residual);
        let y = self.new_rows(width, "the layers' inputs");
        self.push(Node::Matmul { weight: gate, bias: None, act, epilogue: Epilogue::Store, y });
        let first = layer.index.saturating_mul(width);
        let x = Columns { rows: inputs, first, end: first.saturating_add(width) };
        let out = self.new_rows(width, "the layers' inputs");
        self.push(Node::Multiply { x, gate: self.all(y), kind: GateKind::Gelu, out, act: None });
        let act = self.prepare(out);
        let y = self.new_rows(hidden, "the residual stream");
        self.push(Node::Matmul { weight: projection, bias: None, act, epilogue: Epilogue::Store, y });
        self.finish_block(y, Some(norm), factor);
    }
}
