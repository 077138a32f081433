//! Builds the program of a tower.

use std::sync::Arc;

use gristmill_kernels::ops::{Activation, Epilogue, GateKind};
use gristmill_kernels::weight::Role;

use super::spec::{STANDARD, Step, TABLE, TowerSpec};
use crate::program::node::{Attention, Node, RmsNorm};
use crate::program::tensors::{TensorSpec, Tensors, VectorSpec};
use crate::program::{ActId, ActShape, Columns, MatrixId, Part, Program, RowsId, RowsShape, Unit, VectorId};
use crate::spec::NormKind;
use crate::stage::Stage;

/// The values that a pass starts with and ends with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) patches: RowsId,
    /// Starts as the positions.
    pub(super) residual: RowsId,
    /// Rows for tokens: what is added, and what the sum is multiplied with.
    pub(super) standard: Option<[RowsId; 2]>,
}

impl Ends {
    /// Those of a program of [`build`], whose first node states them.
    pub(super) fn of(program: &Program) -> Option<Self> {
        match program.layers.first()?.nodes.first()? {
            Node::Input { rows } => {
                let standard = rows.get(2..4).and_then(|rows| <[RowsId; 2]>::try_from(rows).ok());
                Some(Self { patches: *rows.first()?, residual: *rows.get(1)?, standard })
            }
            _ => None,
        }
    }
}

/// The program of a tower. Its units are patches ([`Unit::Token`]) and tokens ([`Unit::Output`]).
pub(super) fn build(spec: &TowerSpec) -> Program {
    let builder = Builder {
        spec,
        tensors: Tensors::default(),
        rows: Vec::new(),
        acts: Vec::new(),
        nodes: Vec::new(),
        unit: Unit::Token,
        standard: None,
    };
    builder.program()
}

struct Builder<'a> {
    spec: &'a TowerSpec,
    tensors: Tensors,
    rows: Vec<RowsShape>,
    acts: Vec<ActShape>,
    nodes: Vec<Node>,
    /// The unit of new values.
    unit: Unit,
    /// Rows for [`Step::Standardise`]: what is added, and what the sum is multiplied with.
    standard: Option<[RowsId; 2]>,
}

impl Builder<'_> {
    fn program(mut self) -> Program {
        let TowerSpec { patch, width, .. } = *self.spec;
        let values = 3 * patch * patch;
        let (patches, residual) = (self.new_rows(values, "patches"), self.new_rows(width, "the residual stream"));
        let mut inputs = vec![patches, residual];
        if self.spec.steps.contains(&Step::Standardise) {
            self.unit = Unit::Output;
            self.standard = Some([self.new_rows(width, "what is added"), self.new_rows(width, "factors")]);
            self.unit = Unit::Token;
        }
        // Only checked here: the host reads these.
        if let Some(shape) = self.spec.table_shape() {
            self.tensors.add_host(TensorSpec::new(TABLE, &shape));
        }
        if let Some(standard) = self.standard {
            STANDARD.iter().for_each(|name| self.tensors.add_host(TensorSpec::new(*name, &[width])));
            inputs.extend(standard);
        }
        self.nodes.push(Node::Input { rows: inputs });
        match self.spec.patch_norms {
            Some(eps) => self.normed_patches(patches, residual, eps),
            None => self.patches(patches, residual),
        }
        if let Some(name) = &self.spec.pre_norm {
            let x = self.norm(name, self.spec.norm, self.spec.norm_eps, residual);
            self.nodes.push(Node::Copy { x: self.all(x), out: self.all(residual) });
        }
        let mut levels = Vec::new();
        let mut layers = vec![self.part(Stage::Embedding)];
        for layer in 0..self.spec.layers {
            self.layer(layer, residual);
            if let Some((_, steps)) = self.spec.deepstack.iter().find(|(of, _)| *of == layer) {
                levels.push(self.steps(steps, residual));
            }
            layers.push(self.part(Stage::Layer(layer)));
        }
        let mut x = self.steps(&self.spec.steps, residual);
        if !levels.is_empty() {
            let (out, cols) = (self.spec.out, self.spec.out * self.spec.levels());
            self.unit = Unit::Output;
            let joined = self.new_rows(cols, "rows of all levels");
            for (level, rows) in [x].into_iter().chain(levels).enumerate() {
                let part = Columns { rows: joined, first: level * out, end: (level + 1) * out };
                self.nodes.push(Node::Copy { x: self.all(rows), out: part });
            }
            x = joined;
        }
        let norm = self.part(Stage::Output);
        let head = self.part(Stage::Output);
        let Self { tensors, rows, acts, .. } = self;
        let mut program = Program {
            tensors,
            rows,
            acts,
            groups: Vec::new(),
            layers,
            norm,
            head,
            heads: Vec::new(),
            residual,
            hidden: x,
            head_input: x,
            logits: x,
            choices: 0,
            eps: self.spec.norm_eps,
            replay: Default::default(),
            slots: Default::default(),
        };
        program.finish();
        program.slots = Arc::new(program.find_slots());
        program
    }

    /// Adds the rows of patches to their positions.
    fn patches(&mut self, patches: RowsId, residual: RowsId) {
        let TowerSpec { patch, width, .. } = *self.spec;
        let mut bias = self.spec.patch_bias.then(|| self.vector("v.patch_embd.bias", width));
        let (act, add) = (self.prepare(patches), Epilogue::Add { scale: 1.0 });
        let (y, mut epilogue) = match &self.spec.row_norm {
            None => (residual, add),
            Some(_) => (self.new_rows(width, "rows of patches"), Epilogue::Store),
        };
        // A tower for videos has a kernel for each of two frames; a picture is both.
        for kernel in ["weight", "weight.1"].into_iter().take(self.spec.kernels) {
            let tensor = TensorSpec::new(format!("v.patch_embd.{kernel}"), &[patch, patch, 3, width]).of_patches();
            let weight = self.tensors.add_matrix(Role::Matrix, vec![tensor]);
            self.nodes.push(Node::Matmul { weight, bias: bias.take(), act, epilogue, y });
            epilogue = add;
        }
        if let Some(name) = &self.spec.row_norm {
            let x = self.norm(name, NormKind::Rms, self.spec.norm_eps, y);
            self.nodes.push(Node::Add { x, scale: 1.0, y: residual });
        }
    }

    /// The same with norms before and after each step.
    fn normed_patches(&mut self, patches: RowsId, residual: RowsId, eps: f32) {
        let TowerSpec { width, patch_bias, .. } = *self.spec;
        let x = self.norm("v.patch_norm.1", NormKind::Layer, eps, patches);
        let y = self.product("v.patch_embd", width, patch_bias, x);
        let x = self.norm("v.patch_norm.2", NormKind::Layer, eps, y);
        self.nodes.push(Node::Add { x, scale: 1.0, y: residual });
        let x = self.norm("v.patch_norm.3", NormKind::Layer, eps, residual);
        self.nodes.push(Node::Copy { x: self.all(x), out: self.all(residual) });
    }

    fn layer(&mut self, layer: usize, residual: RowsId) {
        let &TowerSpec { inner, norm, norm_eps, activation, is_clamped, biases, .. } = self.spec;
        let name = |part: &str| format!("v.blk.{layer}.{part}");

        let x = self.norm(&name("ln1"), norm, norm_eps, residual);
        let (attended, act) = self.attention(layer, x);
        let act = if is_clamped { None } else { Some(act) };
        self.add(&name("attn_out"), (attended, act), &name("attn_post_norm"), residual);

        let [up, down] = if self.spec.is_swapped { ["ffn_down", "ffn_up"] } else { ["ffn_up", "ffn_down"] };
        let x = self.norm(&name("ln2"), norm, norm_eps, residual);
        let h = match (self.spec.is_gated, is_clamped) {
            (true, false) => {
                let kind = if activation == GateKind::Sigmoid { Activation::SwiGlu } else { Activation::GeGlu };
                self.gate_up([&name("ffn_gate"), &name("ffn_up")], kind, inner, x)
            }
            (true, true) => {
                let [gate, up] = ["ffn_gate", "ffn_up"].map(|part| self.clamped(&name(part), inner, x));
                let (x, gate, out) = (self.all(up), self.all(gate), self.new_rows(inner, "an MLP"));
                self.nodes.push(Node::Multiply { x, gate, kind: GateKind::Gelu, out, act: None });
                out
            }
            (false, _) => {
                let up = self.product(&name(up), inner, biases, x);
                self.activation(activation, up)
            }
        };
        self.add(&name(down), (h, None), &name("ffn_post_norm"), residual);
    }

    /// Attention of the whole picture, and the same as activations.
    fn attention(&mut self, layer: usize, x: RowsId) -> (RowsId, ActId) {
        let &TowerSpec { width, heads, qkv_biases, scale, norm_eps, .. } = self.spec;
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        let qkv = self.new_rows(3 * width, "queries, keys and values");
        if self.spec.is_clamped {
            for (at, part) in ["attn_q", "attn_k", "attn_v"].into_iter().enumerate() {
                let of_part = self.clamped(&name(part), width, x);
                let out = Columns { rows: qkv, first: at * width, end: (at + 1) * width };
                self.nodes.push(Node::Copy { x: self.all(of_part), out });
            }
        } else {
            let act = self.prepare(x);
            let (parts, rows): (&[&str], _) = match self.spec.is_fused {
                true => (&["attn_qkv"], 3 * width),
                false => (&["attn_q", "attn_k", "attn_v"], width),
            };
            let tensors = |part: &'static str, shape: &[usize]| -> Vec<TensorSpec> {
                parts.iter().map(|of| TensorSpec::new(format!("{}.{part}", name(of)), shape)).collect()
            };
            let weight = self.tensors.add_matrix(Role::Matrix, tensors("weight", &[width, rows]));
            let bias = qkv_biases.then(|| self.tensors.add_vector(VectorSpec::Tensors(tensors("bias", &[rows]))));
            self.nodes.push(Node::Matmul { weight, bias, act, epilogue: Epilogue::Store, y: qkv });
        }
        let columns = |first: usize, end: usize| Columns { rows: qkv, first: first * width, end: end * width };
        let head_width = width / heads;
        if self.spec.has_qk_norms {
            let q = self.vector(&name("attn_q_norm.weight"), head_width);
            let k = self.vector(&name("attn_k_norm.weight"), head_width);
            let v = self.tensors.add_vector(VectorSpec::Repeated { values: &[1.0], count: head_width });
            for (at, weight) in [q, k, v].into_iter().enumerate() {
                self.nodes.push(Node::QkNorm { x: columns(at, at + 1), weight, eps: norm_eps });
            }
        }
        if self.spec.rope.is_some() {
            self.nodes.push(Node::Rope { layer, x: columns(0, 2), head_width });
        }
        let (out, act) = (self.new_rows(width, "attention"), self.new_act(width));
        let options = Attention {
            heads,
            scale,
            cap: None,
            temperature: None,
            window: None,
            first: 0,
            sinks: None,
            both_ways: false,
        };
        self.nodes.push(Node::AttendWhole { layer, qkv: columns(0, 3), norms: None, options, out, act });
        (out, act)
    }

    /// Adds a product to the residual stream, by way of its norm if there is one. `act` is x as activations, if it is known.
    fn add(&mut self, name: &str, (x, act): (RowsId, Option<ActId>), post_norm: &str, residual: RowsId) {
        let &TowerSpec { width, norm, norm_eps, biases, has_post_norms, is_clamped, .. } = self.spec;
        if !is_clamped && !has_post_norms {
            let act = act.unwrap_or_else(|| self.prepare(x));
            let (weight, bias) = self.linear(name, [self.cols(x), width], biases);
            let epilogue = Epilogue::Add { scale: 1.0 };
            self.nodes.push(Node::Matmul { weight, bias, act, epilogue, y: residual });
            return;
        }
        let mut y = match is_clamped {
            true => self.clamped(name, width, x),
            false => self.product(name, width, biases, x),
        };
        if has_post_norms {
            y = self.norm(post_norm, norm, norm_eps, y);
        }
        self.nodes.push(Node::Add { x: y, scale: 1.0, y: residual });
    }

    /// A product without bias of clamped rows, clamped.
    fn clamped(&mut self, name: &str, out: usize, x: RowsId) -> RowsId {
        let input = self.new_rows(self.cols(x), "a clamped input");
        self.nodes.push(Node::Copy { x: self.all(x), out: self.all(input) });
        self.clamp(&format!("{name}.input"), input);
        let y = self.product(name, out, false, input);
        self.clamp(&format!("{name}.output"), y);
        y
    }

    fn clamp(&mut self, name: &str, y: RowsId) {
        let [low, high] =
            ["min", "max"].map(|end| self.tensors.add_scalar(TensorSpec::new(format!("{name}_{end}"), &[1])));
        self.nodes.push(Node::Clamp { low, high, y });
    }

    /// activation(gate · x) · (up · x).
    fn gate_up(&mut self, names: [&str; 2], activation: Activation, inner: usize, x: RowsId) -> RowsId {
        let (act, cols) = (self.prepare(x), self.cols(x));
        let tensors = names.map(|name| TensorSpec::new(format!("{name}.weight"), &[cols, inner])).to_vec();
        let weight = self.tensors.add_matrix(Role::GateUp, tensors);
        let h = self.new_rows(inner, "an MLP");
        self.nodes.push(Node::GateUp { weight, activation, x: act, h, act: None });
        h
    }

    /// The steps of a projector; later values have a row for each patch again.
    fn steps(&mut self, steps: &[Step], x: RowsId) -> RowsId {
        let out = steps.iter().fold(x, |x, step| self.step(step, x));
        self.unit = Unit::Token;
        out
    }

    fn step(&mut self, step: &Step, x: RowsId) -> RowsId {
        match step {
            Step::Norm { name, kind, eps } => self.norm(name, *kind, *eps, x),
            Step::PlainNorm => {
                let (cols, out) = (self.cols(x), self.new_rows(self.cols(x), "a norm"));
                let weight = self.tensors.add_vector(VectorSpec::Repeated { values: &[1.0], count: cols });
                self.nodes.push(Node::RmsNorm(RmsNorm { x, weight, out }));
                out
            }
            Step::Standardise => {
                let Some([shift, factor]) = self.standard else { return x };
                self.nodes.push(Node::Add { x: shift, scale: 1.0, y: x });
                let (x, gate, out) = (self.all(x), self.all(factor), self.new_rows(self.cols(x), "standardised rows"));
                self.nodes.push(Node::Multiply { x, gate, kind: GateKind::Linear, out, act: None });
                out
            }
            Step::Join => {
                self.unit = Unit::Output;
                let out = self.new_rows(self.cols(x) * self.spec.merge.pow(2), "joined patches");
                self.nodes.push(Node::Join { x, out });
                out
            }
            Step::Linear { name, out, bias } => self.product(name, *out, *bias, x),
            Step::JoinedByChannel { name, out, bias, is_convolution } => {
                let (act, cols, merge) = (self.prepare(x), self.cols(x), self.spec.merge);
                let name_of_weight = format!("{name}.weight");
                let tensor = match is_convolution {
                    true => TensorSpec::new(name_of_weight, &[merge, merge, cols / merge.pow(2), *out]).of_patches(),
                    false => TensorSpec::new(name_of_weight, &[cols, *out]),
                };
                let tensor = tensor.by_channel(merge.pow(2));
                let weight = self.tensors.add_matrix(Role::Matrix, vec![tensor]);
                let bias = bias.then(|| self.vector(&format!("{name}.bias"), *out));
                let y = self.new_rows(*out, "a product");
                self.nodes.push(Node::Matmul { weight, bias, act, epilogue: Epilogue::Store, y });
                y
            }
            Step::SwiGlu { names: [gate, up, down], inner, out } => {
                let h = self.gate_up([gate, up], Activation::SwiGlu, *inner, x);
                self.product(down, *out, false, h)
            }
            Step::Pool { scale } => {
                let parts = self.spec.merge.pow(2);
                let (out, scale) = (self.new_rows(self.cols(x) / parts, "averages"), scale / parts as f32);
                self.nodes.push(Node::AddParts { x, parts, scale, out });
                out
            }
            Step::Transposed { name, out } => {
                let act = self.prepare(x);
                let tensor = TensorSpec::new(format!("{name}.weight"), &[*out, self.cols(x)]).transposed();
                let weight = self.tensors.add_matrix(Role::Matrix, vec![tensor]);
                let y = self.new_rows(*out, "a product");
                self.nodes.push(Node::Matmul { weight, bias: None, act, epilogue: Epilogue::Store, y });
                y
            }
            Step::Activation(kind) => self.activation(*kind, x),
        }
    }

    /// weight · x + bias.
    fn product(&mut self, name: &str, out: usize, bias: bool, x: RowsId) -> RowsId {
        let act = self.prepare(x);
        let (weight, bias) = self.linear(name, [self.cols(x), out], bias);
        let y = self.new_rows(out, "a product");
        self.nodes.push(Node::Matmul { weight, bias, act, epilogue: Epilogue::Store, y });
        y
    }

    /// x · kind(x).
    fn activation(&mut self, kind: GateKind, x: RowsId) -> RowsId {
        let (out, all) = (self.new_rows(self.cols(x), "an activation"), self.all(x));
        self.nodes.push(Node::Multiply { x: all, gate: all, kind, out, act: None });
        out
    }

    fn norm(&mut self, name: &str, kind: NormKind, eps: f32, x: RowsId) -> RowsId {
        let (cols, out) = (self.cols(x), self.new_rows(self.cols(x), "a norm"));
        let weight = self.vector(&format!("{name}.weight"), cols);
        let node = match kind {
            NormKind::Rms => Node::RmsNorm(RmsNorm { x, weight, out }),
            NormKind::Layer => {
                let bias = self.vector(&format!("{name}.bias"), cols);
                Node::LayerNorm { x, weight, bias, eps, out }
            }
            NormKind::LayerUnbiased => {
                let bias = self.tensors.add_vector(VectorSpec::Repeated { values: &[0.0], count: cols });
                Node::LayerNorm { x, weight, bias, eps, out }
            }
        };
        self.nodes.push(node);
        out
    }

    fn linear(&mut self, name: &str, [inputs, outputs]: [usize; 2], bias: bool) -> (MatrixId, Option<VectorId>) {
        let weight = TensorSpec::new(format!("{name}.weight"), &[inputs, outputs]);
        let weight = self.tensors.add_matrix(Role::Matrix, vec![weight]);
        (weight, bias.then(|| self.vector(&format!("{name}.bias"), outputs)))
    }

    fn vector(&mut self, name: &str, len: usize) -> VectorId {
        self.tensors.add_vector(VectorSpec::Tensors(vec![TensorSpec::new(name, &[len])]))
    }

    fn prepare(&mut self, x: RowsId) -> ActId {
        let act = self.new_act(self.cols(x));
        self.nodes.push(Node::Prepare { x, act });
        act
    }

    fn new_rows(&mut self, cols: usize, what: &'static str) -> RowsId {
        self.rows.push(RowsShape { unit: self.unit, per_unit: 1, cols, what });
        RowsId(self.rows.len() - 1)
    }

    fn new_act(&mut self, cols: usize) -> ActId {
        self.acts.push(ActShape { unit: self.unit, per_unit: 1, cols, exact: false });
        ActId(self.acts.len() - 1)
    }

    fn cols(&self, rows: RowsId) -> usize {
        self.rows[rows.0].cols
    }

    fn all(&self, rows: RowsId) -> Columns {
        Columns { rows, first: 0, end: self.cols(rows) }
    }

    fn part(&mut self, stage: Stage) -> Part {
        Part::new(stage, std::mem::take(&mut self.nodes))
    }
}
