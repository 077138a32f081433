//! Builds the program of a tower.

use std::sync::Arc;

use gristmill_kernels::ops::{Activation, Epilogue, GateKind};
use gristmill_kernels::weight::Role;

use super::spec::{Step, TABLE, TowerSpec};
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
}

impl Ends {
    /// Those of a program of [`build`], whose first node states them.
    pub(super) fn of(program: &Program) -> Option<Self> {
        match program.layers.first()?.nodes.first()? {
            Node::Input { rows } => Some(Self { patches: *rows.first()?, residual: *rows.get(1)? }),
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
}

impl Builder<'_> {
    fn program(mut self) -> Program {
        let TowerSpec { patch, width, .. } = *self.spec;
        let values = 3 * patch * patch;
        let (patches, residual) = (self.new_rows(values, "patches"), self.new_rows(width, "the residual stream"));
        self.nodes.push(Node::Input { rows: vec![patches, residual] });
        if let Some(side) = self.spec.table_side() {
            // Only checked here: the host reads the table.
            self.tensors.add_host(TensorSpec::new(TABLE, &[width, side * side]));
        }
        let mut bias = self.spec.patch_bias.then(|| self.vector("v.patch_embd.bias", width));
        let (act, epilogue) = (self.prepare(patches), Epilogue::Add { scale: 1.0 });
        // A tower for videos has a kernel for each of two frames; a picture is both.
        for kernel in ["weight", "weight.1"].into_iter().take(self.spec.kernels) {
            let tensor = TensorSpec::new(format!("v.patch_embd.{kernel}"), &[patch, patch, 3, width]).of_patches();
            let weight = self.tensors.add_matrix(Role::Matrix, vec![tensor]);
            self.nodes.push(Node::Matmul { weight, bias: bias.take(), act, epilogue, y: residual });
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

    fn layer(&mut self, layer: usize, residual: RowsId) {
        let &TowerSpec { width, heads, inner, norm, norm_eps, activation, biases, .. } = self.spec;
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        let add = Epilogue::Add { scale: 1.0 };

        let x = self.norm(&name("ln1"), norm, norm_eps, residual);
        let act = self.prepare(x);
        let (parts, rows): (&[&str], _) = match self.spec.is_fused {
            true => (&["attn_qkv"], 3 * width),
            false => (&["attn_q", "attn_k", "attn_v"], width),
        };
        let tensors = |part: &'static str, shape: &[usize]| -> Vec<TensorSpec> {
            parts.iter().map(|of| TensorSpec::new(format!("{}.{part}", name(of)), shape)).collect()
        };
        let weight = self.tensors.add_matrix(Role::Matrix, tensors("weight", &[width, rows]));
        let bias = biases.then(|| self.tensors.add_vector(VectorSpec::Tensors(tensors("bias", &[rows]))));
        let qkv = self.new_rows(3 * width, "queries, keys and values");
        self.nodes.push(Node::Matmul { weight, bias, act, epilogue: Epilogue::Store, y: qkv });
        let (out, act) = (self.new_rows(width, "attention"), self.new_act(width));
        let options = Attention {
            heads,
            scale: (heads as f32 / width as f32).sqrt(),
            cap: None,
            temperature: None,
            window: None,
            first: 0,
            sinks: None,
        };
        if self.spec.rope.is_some() {
            let x = Columns { rows: qkv, first: 0, end: 2 * width };
            self.nodes.push(Node::Rope { layer, x, head_width: width / heads });
        }
        let qkv = Columns { rows: qkv, first: 0, end: 3 * width };
        self.nodes.push(Node::AttendWhole { layer, qkv, norms: None, options, out, act });
        let (weight, bias) = self.linear(&name("attn_out"), [width, width], biases);
        self.nodes.push(Node::Matmul { weight, bias, act, epilogue: add, y: residual });

        let x = self.norm(&name("ln2"), norm, norm_eps, residual);
        let h = match self.spec.is_gated {
            true => self.gate_up([&name("ffn_gate"), &name("ffn_up")], inner, x),
            false => {
                let up = self.product(&name("ffn_up"), inner, biases, x);
                self.activation(activation, up)
            }
        };
        let act = self.prepare(h);
        let (weight, bias) = self.linear(&name("ffn_down"), [inner, width], biases);
        self.nodes.push(Node::Matmul { weight, bias, act, epilogue: add, y: residual });
    }

    /// activation(gate · x) · (up · x).
    fn gate_up(&mut self, names: [&str; 2], inner: usize, x: RowsId) -> RowsId {
        let (act, cols) = (self.prepare(x), self.cols(x));
        let tensors = names.map(|name| TensorSpec::new(format!("{name}.weight"), &[cols, inner])).to_vec();
        let weight = self.tensors.add_matrix(Role::GateUp, tensors);
        let activation = if self.spec.activation == GateKind::Sigmoid { Activation::SwiGlu } else { Activation::GeGlu };
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
            Step::Join => {
                self.unit = Unit::Output;
                let out = self.new_rows(self.cols(x) * self.spec.merge.pow(2), "joined patches");
                self.nodes.push(Node::Join { x, out });
                out
            }
            Step::Linear { name, out, bias } => self.product(name, *out, *bias, x),
            Step::JoinedByChannel { name, out } => {
                let (act, cols) = (self.prepare(x), self.cols(x));
                let tensor =
                    TensorSpec::new(format!("{name}.weight"), &[cols, *out]).by_channel(self.spec.merge.pow(2));
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
