//! The table of all tensors: their names, shapes and roles.

use std::ops::Range;

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::weight::Role;

use super::mixers::mixer;
use super::{
    BesideWeights, Block, BlockInput, LayerInputWeights, LayerInputsWeights, LayerWeights, MlpWeights, MoeBiases,
    MoeWeights, NormWeights, SharedWeights, Weights,
};
use crate::error::{Error, Result};
use crate::model::spec::{BlockInputs, LayerSpec, MlpSpec, ModelSpec, NormKind, RopeScaling, SharedExpert};

/// A tensor that is needed: its name, and its shape with the innermost dimension first.
pub(super) struct TensorSpec {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    /// The order of its rows, if not that of the file.
    pub(super) order: Option<RowOrder>,
    /// A tensor `X.scale` in the file is the scale of this `X.weight`, and not another weight of the model.
    pub(super) scaled: bool,
}

/// Rows of a matrix that lie in equal groups of several parts, and are loaded part by part.
pub(super) struct RowOrder {
    /// Rows of each part of a group.
    pub(super) parts: Vec<usize>,
    /// The parts that are loaded, in order.
    pub(super) order: Vec<usize>,
}

impl RowOrder {
    /// How many of so many rows, whole groups, are loaded.
    fn loaded(&self, rows: usize) -> usize {
        let of_group: usize = self.order.iter().map(|&part| self.parts[part]).sum();
        rows / self.parts.iter().sum::<usize>().max(1) * of_group
    }

    /// The loaded rows of so many, if they are neighbours: one part of a single group.
    pub(super) fn slice(&self, rows: usize) -> Option<Range<usize>> {
        let &[part] = self.order.as_slice() else { return None };
        let start = self.parts[..part].iter().sum();
        (rows == self.parts.iter().sum::<usize>()).then(|| start..start + self.parts[part])
    }

    /// The bytes of a matrix with rows of `row` bytes.
    pub(super) fn apply(&self, bytes: &[u8], row: usize) -> Vec<u8> {
        let group = self.parts.iter().sum::<usize>() * row;
        let mut ordered = Vec::with_capacity(bytes.len());
        for &part in &self.order {
            let start = self.parts[..part].iter().sum::<usize>() * row;
            let of_group = |group: &[u8]| group[start..start + self.parts[part] * row].to_vec();
            bytes.chunks_exact(group.max(1)).for_each(|group| ordered.extend(of_group(group)));
        }
        ordered
    }
}

impl TensorSpec {
    /// (experts, rows, cols) of a matrix, with those rows that are loaded. The dimensions are those of a tensor in
    /// memory, or on a disk: they fit.
    pub(super) fn matrix(&self) -> (usize, usize, usize) {
        let dim = |i: usize| self.shape.get(i).map_or(1, |&n| n as usize);
        let rows = self.order.as_ref().map_or(dim(1), |order| order.loaded(dim(1)));
        (dim(2), rows, dim(0))
    }

    /// Rows of all experts in the file.
    pub(super) fn file_rows(&self) -> usize {
        self.shape.iter().skip(1).map(|&n| n as usize).product()
    }
}

pub(super) fn tensor_spec(name: impl Into<String>, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.into(), shape: shape.iter().map(|&n| n as u64).collect(), order: None, scaled: true }
}

/// The first and the second half of the rows of each matrix of a tensor: `[cols, rows of a half, matrices]`.
fn halves(name: String, [cols, rows, experts]: [usize; 3]) -> [TensorSpec; 2] {
    [0, 1].map(|half| {
        let order = RowOrder { parts: vec![rows; 2], order: vec![half] };
        TensorSpec { order: Some(order), ..tensor_spec(name.clone(), &[cols, 2 * rows, experts]) }
    })
}

/// Makes weights of tensors.
pub(super) trait Make {
    type Matrix;
    type Vector;
    /// The shape of a tensor, if the file has it.
    fn shape(&self, name: &str) -> Option<&[u64]>;
    fn matrix(&mut self, role: Role, tensors: &[TensorSpec]) -> Result<Self::Matrix>;
    /// A vector, several tensors one after another; of a matrix, its rows one after another.
    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<Self::Vector>;
    /// A vector whose elements are multiplied by a number.
    fn scaled(&mut self, tensor: &TensorSpec, factor: f32) -> Result<Self::Vector>;
    /// A vector of a value, so many times, which is in no file.
    fn filled(&mut self, value: f32, len: usize) -> Result<Self::Vector>;
    /// A vector of so many ones.
    fn ones(&mut self, len: usize) -> Result<Self::Vector> {
        self.filled(1.0, len)
    }
    /// The value of a tensor of one element; any value where only shapes are checked.
    fn scalar(&mut self, tensor: &TensorSpec) -> Result<f32>;
}

/// The table of all tensors.
pub(super) fn assemble<T: Make>(spec: &ModelSpec, make: &mut T) -> Result<Weights<T::Matrix, T::Vector>> {
    let ModelSpec { hidden, vocab, .. } = *spec;
    let (table_role, output) = match spec.tied_embeddings {
        true => (Role::Tied, None),
        false => (Role::Table, Some(tensor_spec("output.weight", &[hidden, vocab]))),
    };
    let ropes = || spec.layers.iter().filter_map(LayerSpec::rope);
    let rope = ropes().find(|rope| rope.factors);
    let long_rope = ropes().find(|rope| matches!(rope.scaling, RopeScaling::Long { .. }));
    let mut factors = |part, width: usize| make.vector(&[tensor_spec(format!("rope_{part}.weight"), &[width / 2])]);
    Ok(Weights {
        rope_factors: rope.map(|rope| factors("freqs", rope.width)).transpose()?,
        long_rope_factors: match long_rope {
            Some(rope) => Some([factors("factors_short", rope.width)?, factors("factors_long", rope.width)?]),
            None => None,
        },
        layer_inputs: spec.layer_inputs.map(|width| layer_inputs(spec, width, make)).transpose()?,
        embedding: make.matrix(table_role, &[tensor_spec("token_embd.weight", &[hidden, vocab])])?,
        layers: (0..).zip(&spec.layers).map(|(i, layer)| self::layer(i, spec, layer, make)).collect::<Result<_>>()?,
        output_norm: norm(spec.output_norm.to_owned(), spec, make)?,
        output: output.map(|output| make.matrix(Role::Matrix, &[output])).transpose()?,
        output_bias: spec.output_bias.then(|| make.vector(&[tensor_spec("output.bias", &[vocab])])).transpose()?,
    })
}

fn layer_inputs<T: Make>(
    spec: &ModelSpec,
    width: usize,
    make: &mut T,
) -> Result<LayerInputsWeights<T::Matrix, T::Vector>> {
    let columns = width.saturating_mul(spec.layers.len());
    let table = tensor_spec("per_layer_token_embd.weight", &[columns, spec.vocab]);
    Ok(LayerInputsWeights {
        table: make.matrix(Role::Table, &[table])?,
        projection: make
            .matrix(Role::Matrix, &[tensor_spec("per_layer_model_proj.weight", &[spec.hidden, columns])])?,
        norm: make.scaled(&tensor_spec("per_layer_proj_norm.weight", &[width]), std::f32::consts::FRAC_1_SQRT_2)?,
    })
}

fn layer_input<T: Make>(
    name: &dyn Fn(&str) -> String,
    model: &ModelSpec,
    width: usize,
    make: &mut T,
) -> Result<LayerInputWeights<T::Matrix, T::Vector>> {
    Ok(LayerInputWeights {
        gate: make.matrix(Role::Matrix, &[tensor_spec(name("inp_gate.weight"), &[model.hidden, width])])?,
        projection: make.matrix(Role::Matrix, &[tensor_spec(name("proj.weight"), &[width, model.hidden])])?,
        post_norm: norm(name("post_norm"), model, make)?,
    })
}

fn norm<T: Make>(name: String, spec: &ModelSpec, make: &mut T) -> Result<NormWeights<T::Vector>> {
    let vector = |part, make: &mut T| make.vector(&[tensor_spec(format!("{name}.{part}"), &[spec.hidden])]);
    let weight = vector("weight", make)?;
    Ok(match spec.norm {
        NormKind::Rms => NormWeights::Rms { weight },
        NormKind::Layer => NormWeights::Layer { weight, bias: vector("bias", make)? },
        NormKind::LayerUnbiased => NormWeights::Layer { weight, bias: make.filled(0.0, spec.hidden)? },
    })
}

fn layer<T: Make>(
    index: usize,
    model: &ModelSpec,
    spec: &LayerSpec,
    make: &mut T,
) -> Result<LayerWeights<T::Matrix, T::Vector>> {
    let name = |part: &str| format!("blk.{index}.{part}");
    let norm = |part, make: &mut T| norm(name(part), model, make);
    let post_norm = |part, make: &mut T| model.post_norms.then(|| norm(part, make)).transpose();
    let input = |part, shared, make: &mut T| -> Result<_> {
        Ok(match model.inputs {
            BlockInputs::Residual => BlockInput::Residual,
            BlockInputs::Shared if shared => BlockInput::Mixer,
            BlockInputs::Normed | BlockInputs::Shared => BlockInput::Norm(norm(part, make)?),
        })
    };
    Ok(LayerWeights {
        mixer: Block {
            input: input("attn_norm", false, make)?,
            weights: mixer(&name, model.hidden, &spec.mixer, make)?,
            post_norm: post_norm("post_attention_norm", make)?,
        },
        mlp: match &spec.mlp {
            None => None,
            Some(spec) => Some(Block {
                input: input(model.mlp_norm, true, make)?,
                weights: mlp(&name, model, spec, make)?,
                post_norm: match spec {
                    MlpSpec::Moe { beside: Some(_), .. } => None,
                    _ => post_norm("post_ffw_norm", make)?,
                },
            }),
        },
        input: model.layer_inputs.map(|width| layer_input(&name, model, width, make)).transpose()?,
        output_scale: match model.layer_scales {
            true => Some(make.scalar(&tensor_spec(name("layer_output_scale.weight"), &[1]))?),
            false => None,
        },
    })
}

fn mlp<T: Make>(
    name: &dyn Fn(&str) -> String,
    model: &ModelSpec,
    spec: &MlpSpec,
    make: &mut T,
) -> Result<MlpWeights<T::Matrix, T::Vector>> {
    let hidden = model.hidden;
    Ok(match *spec {
        MlpSpec::Dense { inner, activation } => {
            let up = name("ffn_up.weight");
            let twice = make.shape(&up) == Some(&[hidden as u64, 2 * inner as u64]);
            let gate_up = match twice && make.shape(&name("ffn_gate.weight")).is_none() {
                true => halves(up, [hidden, inner, 1]),
                false => ["ffn_gate.weight", "ffn_up.weight"].map(|part| tensor_spec(name(part), &[hidden, inner])),
            };
            MlpWeights::Dense {
                activation,
                gate_up: make.matrix(Role::GateUp, &gate_up)?,
                down: make.matrix(Role::Matrix, &[tensor_spec(name("ffn_down.weight"), &[inner, hidden])])?,
            }
        }
        MlpSpec::Moe {
            experts,
            inner,
            activation,
            routing,
            selection_bias,
            bias,
            shared,
            router_norm,
            expert_scales,
            weighs_input,
            fused_gate_up,
            beside,
        } => {
            let mut vector = |part, shape: &[usize]| make.vector(&[tensor_spec(name(part), shape)]);
            let biases = match bias {
                false => None,
                true => Some(MoeBiases {
                    router: vector("ffn_gate_inp.bias", &[experts])?,
                    gate: vector("ffn_gate_exps.bias", &[inner, experts])?,
                    up: vector("ffn_up_exps.bias", &[inner, experts])?,
                    down: vector("ffn_down_exps.bias", &[hidden, experts])?,
                }),
            };
            MlpWeights::Moe(MoeWeights {
                activation,
                routing,
                biases,
                router: router(name, [hidden, experts], shared.is_some_and(|shared| shared.gated), make)?,
                selection_bias: selection_bias
                    .then(|| make.vector(&[tensor_spec(name("exp_probs_b.bias"), &[experts])]))
                    .transpose()?,
                gate_up: make.matrix(Role::GateUp, &expert_gate_up(name, [hidden, inner, experts], fused_gate_up))?,
                down: make.matrix(
                    Role::Matrix,
                    &[TensorSpec {
                        scaled: !expert_scales,
                        ..tensor_spec(name("ffn_down_exps.weight"), &[inner, hidden, experts])
                    }],
                )?,
                shared: shared.map(|shared| shared_expert(name, hidden, shared, make)).transpose()?,
                router_norm: router_norm.then(|| self::router_norm(name, hidden, make)).transpose()?,
                expert_scales: expert_scales
                    .then(|| make.vector(&[tensor_spec(name("ffn_down_exps.scale"), &[experts])]))
                    .transpose()?,
                beside: beside.map(|inner| self::beside(name, model, inner, make)).transpose()?,
                weighs_input,
            })
        }
    })
}

/// Gate and up of all experts: two tensors, or one that has for each expert the rows of its gate, then of its up.
fn expert_gate_up(name: &dyn Fn(&str) -> String, [hidden, inner, experts]: [usize; 3], fused: bool) -> [TensorSpec; 2] {
    if !fused {
        let gate_up = ["ffn_gate_exps.weight", "ffn_up_exps.weight"];
        return gate_up.map(|part| tensor_spec(name(part), &[hidden, inner, experts]));
    }
    halves(name("ffn_gate_up_exps.weight"), [hidden, inner, experts])
}

/// The router, and the gate of the expert that serves every token, which reads the same: one product less a layer.
fn router<T: Make>(
    name: &dyn Fn(&str) -> String,
    [hidden, experts]: [usize; 2],
    gated: bool,
    make: &mut T,
) -> Result<T::Matrix> {
    let router = tensor_spec(name("ffn_gate_inp.weight"), &[hidden, experts]);
    let gate = gated.then(|| tensor_spec(name("ffn_gate_inp_shexp.weight"), &[hidden, 1]));
    make.matrix(Role::Matrix, &[router].into_iter().chain(gate).collect::<Vec<_>>())
}

fn router_norm<T: Make>(name: &dyn Fn(&str) -> String, hidden: usize, make: &mut T) -> Result<BlockInput<T::Vector>> {
    let weight = tensor_spec(name("ffn_gate_inp.scale"), &[hidden]);
    let weight = make.scaled(&weight, (hidden as f32).sqrt().recip())?;
    Ok(BlockInput::Norm(NormWeights::Rms { weight }))
}

fn beside<T: Make>(
    name: &dyn Fn(&str) -> String,
    model: &ModelSpec,
    inner: usize,
    make: &mut T,
) -> Result<BesideWeights<T::Matrix, T::Vector>> {
    let gate_up = ["ffn_gate.weight", "ffn_up.weight"].map(|part| tensor_spec(name(part), &[model.hidden, inner]));
    let vector = |part, make: &mut T| make.vector(&[tensor_spec(name(part), &[model.hidden])]);
    Ok(BesideWeights {
        gate_up: make.matrix(Role::GateUp, &gate_up)?,
        down: make.matrix(Role::Matrix, &[tensor_spec(name("ffn_down.weight"), &[inner, model.hidden])])?,
        experts_norm: BlockInput::Norm(norm(name("pre_ffw_norm_2"), model, make)?),
        post_norms: [vector("post_ffw_norm_2.weight", make)?, vector("post_ffw_norm_1.weight", make)?],
        sum_norm: vector("post_ffw_norm.weight", make)?,
    })
}

fn shared_expert<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    SharedExpert { inner, gated }: SharedExpert,
    make: &mut T,
) -> Result<SharedWeights<T::Matrix>> {
    let gate_up =
        ["ffn_gate_shexp.weight", "ffn_up_shexp.weight"].map(|part| tensor_spec(name(part), &[hidden, inner]));
    Ok(SharedWeights {
        gated,
        gate_up: make.matrix(Role::GateUp, &gate_up)?,
        down: make.matrix(Role::Matrix, &[tensor_spec(name("ffn_down_shexp.weight"), &[inner, hidden])])?,
    })
}

/// The tensor, if it has the needed shape.
pub(super) fn find<'a>(file: &'a GgufFile, needed: &TensorSpec) -> Result<&'a TensorInfo> {
    let Some(tensor) = file.tensor(&needed.name) else {
        return Err(Error::MissingTensor { name: needed.name.clone(), shape: needed.shape.clone() });
    };
    // Trailing dimensions of 1 say nothing: one expert may be stored as a matrix.
    let trim = |shape: &[u64]| shape.len() - shape.iter().rev().take_while(|&&n| n == 1).count();
    if tensor.shape[..trim(&tensor.shape)] != needed.shape[..trim(&needed.shape)] {
        return Err(Error::TensorShape {
            name: needed.name.clone(),
            offset: tensor.offset,
            found: tensor.shape.clone(),
            expected: needed.shape.clone(),
        });
    }
    Ok(tensor)
}
