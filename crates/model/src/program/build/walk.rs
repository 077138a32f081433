//! The walk through a model: its ends, and what its layers have in common.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_files::gguf::GgufFile;
use gristmill_kernels::ops::Epilogue;
use gristmill_kernels::weight::Role;

use super::builder::{Builder, Input, Layer, Output};
use crate::program::node::Node;
use crate::program::tensors::{TensorSpec, Tensors};
use crate::program::{ActId, Factor, MatrixId, Program, RowsId, RowsShape, Unit, VectorId};
use crate::ranks::RankPart;
use crate::spec::{BlockInputs, LayerSpec, ModelSpec, RopeScaling};
use crate::stage::Stage;

/// The program of a model whose weights are in `file`. It ends at the first layer of which the file lacks a tensor, so that
/// its size is bounded by the file, whatever number of layers the metadata has. The survey of the weights, which follows,
/// refuses such a file.
/// `whole` is the model, `spec` what a rank has of it.
pub(crate) fn build(spec: &ModelSpec, whole: &ModelSpec, file: &GgufFile, part: &RankPart) -> Program {
    let builder = Builder {
        spec,
        whole: &whole.layers,
        part,
        summed: BTreeSet::new(),
        file,
        tensors: Tensors::default(),
        rows: Vec::new(),
        acts: Vec::new(),
        groups: Vec::new(),
        nodes: Vec::new(),
        residual: RowsId(0),
        choices: 0,
        heads: Vec::new(),
    };
    builder.program()
}

/// The name of the norm before a mixer, and before the MLP of a layer that has no mixer.
const MIXER_NORM: &str = "attn_norm";

impl Builder<'_> {
    fn program(mut self) -> Program {
        let ModelSpec { hidden, vocab, tied_embeddings, .. } = *self.spec;
        self.rope_factors();
        let table_role = if tied_embeddings { Role::Tied } else { Role::Table };
        let table = self.matrix(table_role, vec![TensorSpec::new("token_embd.weight", &[hidden, vocab])]);
        self.residual = self.new_rows(hidden, "the residual stream");
        self.push(Node::Embed { table, scale: self.spec.embedding_scale, out: self.residual });
        self.push(Node::Pictures { out: self.residual });
        if self.spec.embedding_norm {
            let weight = self.repeated(&[1.0], hidden);
            let eps = self.spec.norm_eps;
            self.push(Node::QkNorm { x: self.all(self.residual), weight, eps });
        }
        let layer_inputs = self.spec.layer_inputs.map(|width| self.layer_inputs(width));
        let mut layers = vec![self.part(Stage::Embedding)];
        for (index, spec) in self.spec.layers.iter().enumerate() {
            let declared = self.tensors.len();
            self.layer(Layer { index, first: 0 }, spec, layer_inputs);
            if index < self.spec.picture_layers {
                self.push(Node::AddPictures { level: index + 1, out: self.residual });
            }
            layers.push(self.part(Stage::Layer(index)));
            if !self.tensors.since(declared).all(|tensor| self.contains(&tensor.name)) {
                break;
            }
        }

        let norm = self.norm_vectors(self.spec.output_norm);
        let hidden_states = self.normalise(norm, self.residual);
        let act = self.prepare(hidden_states);
        let norm = self.part(Stage::Output);

        let weight = match tied_embeddings {
            true => table,
            false => self.matrix(Role::Matrix, vec![TensorSpec::new("output.weight", &[hidden, vocab])]),
        };
        let bias = self.spec.output_bias.then(|| self.vector(TensorSpec::new("output.bias", &[vocab])));
        let logits = self.add_rows(RowsShape { unit: Unit::Output, per_unit: 1, cols: vocab, what: "logits" });
        let output = Output { table, weight, bias, logits };
        self.logits(output, act);
        let head = self.part(Stage::Output);

        let residual = self.residual;
        let head_input = if self.spec.head_inputs.normed { hidden_states } else { residual };
        let heads = self.prediction_heads(head_input, output);
        let Self { tensors, rows, acts, groups, choices, file, part, summed, .. } = self;
        let eps = self.spec.norm_eps;
        let hidden = hidden_states;
        let replay = Default::default();
        let slots = Default::default();
        let mut program = Program {
            tensors,
            rows,
            acts,
            groups,
            layers,
            norm,
            head,
            heads,
            residual,
            hidden,
            head_input,
            logits,
            choices,
            eps,
            replay,
            slots,
        };
        program.reorder_inputs(file);
        program.split(file, part, summed);
        program.finish();
        program.replay = program.find_replay();
        program.slots = Arc::new(program.find_slots());
        program
    }

    /// Logits of the rows whose logits are computed.
    pub(super) fn logits(&mut self, Output { weight, bias, logits, .. }: Output, act: ActId) {
        self.push(Node::OutputMatmul { weight, bias, act, y: logits });
        self.scale(Factor::Constant(self.spec.logit_scale), logits);
        if let Some(cap) = self.spec.logit_cap {
            self.push(Node::SoftCap { cap, y: logits });
        }
    }

    /// The factors that divide the frequencies of RoPE, one for each pair of the widest rotation. Layers that rotate fewer
    /// pairs use the first ones.
    fn rope_factors(&mut self) {
        let ropes = || self.spec.all_layers().filter_map(LayerSpec::rope);
        let widest = ropes().map(|rope| rope.width).max().filter(|_| ropes().any(|rope| rope.factors));
        let long = ropes().find(|rope| matches!(rope.scaling, RopeScaling::Long { .. }));
        let tensor = |part, width: usize| TensorSpec::new(format!("rope_{part}.weight"), &[width / 2]);
        self.tensors.rope_factors = widest.map(|width| self.vector(tensor("freqs", width)));
        self.tensors.long_rope_factors =
            long.map(|rope| ["factors_short", "factors_long"].map(|part| self.vector(tensor(part, rope.width))));
    }

    pub(super) fn layer(&mut self, layer: Layer, spec: &LayerSpec, layer_inputs: Option<RowsId>) {
        // The last block of a layer multiplies its output.
        let factor = match self.spec.layer_scales {
            true => {
                Factor::Weight(self.tensors.add_scalar(TensorSpec::new(layer.name("layer_output_scale.weight"), &[1])))
            }
            false => Factor::Constant(1.0),
        };
        let last = |is_last: bool| if is_last { factor } else { Factor::Constant(1.0) };

        let input = self.block_input(&layer.name(MIXER_NORM));
        let mixed = self.mixers(layer, spec.mixer.parts(), input);
        if let Some((output, _)) = mixed {
            let norm = self.post_norm(&layer.name("post_attention_norm"));
            self.finish_block(output, norm, last(spec.mlp.is_none() && layer_inputs.is_none()));
        }
        if let Some(mlp) = &spec.mlp {
            let input = match (mixed, self.spec.inputs) {
                (None, _) => input,
                (Some((_, read)), BlockInputs::Shared) => Input::Rows(read),
                (Some(_), BlockInputs::Residual | BlockInputs::Normed) => {
                    self.block_input(&layer.name(self.spec.mlp_norm))
                }
            };
            self.mlp(layer, mlp, input, last(layer_inputs.is_none()));
        }
        if let Some(inputs) = layer_inputs {
            self.layer_input(layer, inputs, last(true));
        }
    }

    /// The destination of a block's last product: the residual stream, or rows of their own if a norm follows.
    pub(super) fn destination(&mut self, is_normalised: bool) -> (Epilogue, RowsId) {
        match is_normalised {
            true => (Epilogue::Store, self.new_rows(self.spec.hidden, "the residual stream")),
            false => (Epilogue::Add { scale: self.spec.residual_scale }, self.residual),
        }
    }

    /// The input of a block that reads the residual stream; `name` is its norm.
    pub(super) fn block_input(&mut self, name: &str) -> Input {
        match self.spec.inputs {
            BlockInputs::Residual => Input::Rows(self.residual),
            BlockInputs::Normed | BlockInputs::Shared => Input::Norm(self.norm_vectors(name)),
        }
    }

    /// The rows of a block's input.
    pub(super) fn input_rows(&mut self, input: Input) -> RowsId {
        match input {
            Input::Rows(rows) => rows,
            Input::Norm(norm) => self.normalise(norm, self.residual),
        }
    }

    /// y = weight · input + bias. Returns the product and the rows of the input.
    pub(super) fn input_matmul(
        &mut self,
        input: Input,
        weight: MatrixId,
        bias: Option<VectorId>,
        cols: usize,
        what: &'static str,
    ) -> (RowsId, RowsId) {
        let x = self.input_rows(input);
        let act = self.prepare(x);
        let y = self.new_rows(cols, what);
        self.push(Node::Matmul { weight, bias, act, epilogue: Epilogue::Store, y });
        (y, x)
    }
}
