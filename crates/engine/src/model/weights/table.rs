//! The table of all tensors: their names, shapes and roles.

use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::weight::Role;

use super::mixers::mixer;
use super::{Block, LayerWeights, MlpWeights, MoeBiases, MoeWeights, NormWeights, SharedWeights, Weights};
use crate::error::{Error, Result};
use crate::model::spec::{LayerSpec, MlpSpec, ModelSpec, NormKind, RopeScaling, SharedExpert};

/// A tensor that is needed: its name, and its shape with the innermost dimension first.
pub(super) struct TensorSpec {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    /// The order of its rows, if not that of the file.
    pub(super) order: Option<RowOrder>,
}

/// Rows of a matrix that lie in equal groups of several parts, and are loaded part by part.
pub(super) struct RowOrder {
    /// Rows of each part of a group.
    pub(super) parts: Vec<usize>,
    /// The parts in the order in which they are loaded.
    pub(super) order: Vec<usize>,
}

impl RowOrder {
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
    /// (experts, rows, cols) of a matrix. The dimensions are those of a tensor in memory, or on a disk: they fit.
    pub(super) fn matrix(&self) -> (usize, usize, usize) {
        let dim = |i: usize| self.shape.get(i).map_or(1, |&n| n as usize);
        (dim(2), dim(1), dim(0))
    }
}

pub(super) fn tensor_spec(name: impl Into<String>, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.into(), shape: shape.iter().map(|&n| n as u64).collect(), order: None }
}

/// Makes weights of tensors.
pub(super) trait Make {
    type Matrix;
    type Vector;
    fn matrix(&mut self, role: Role, tensors: &[TensorSpec]) -> Result<Self::Matrix>;
    /// A vector, several tensors one after another; of a matrix, its rows one after another.
    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<Self::Vector>;
    /// A vector of so many ones, which is in no file.
    fn ones(&mut self, len: usize) -> Result<Self::Vector>;
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
        embedding: make.matrix(table_role, &[tensor_spec("token_embd.weight", &[hidden, vocab])])?,
        layers: (0..).zip(&spec.layers).map(|(i, layer)| self::layer(i, spec, layer, make)).collect::<Result<_>>()?,
        output_norm: norm(spec.output_norm.to_owned(), spec, make)?,
        output: output.map(|output| make.matrix(Role::Matrix, &[output])).transpose()?,
        output_bias: spec.output_bias.then(|| make.vector(&[tensor_spec("output.bias", &[vocab])])).transpose()?,
    })
}

fn norm<T: Make>(name: String, spec: &ModelSpec, make: &mut T) -> Result<NormWeights<T::Vector>> {
    let mut vector = |part| make.vector(&[tensor_spec(format!("{name}.{part}"), &[spec.hidden])]);
    Ok(match spec.norm {
        NormKind::Rms => NormWeights::Rms { weight: vector("weight")? },
        NormKind::Layer => NormWeights::Layer { weight: vector("weight")?, bias: vector("bias")? },
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
    Ok(LayerWeights {
        mixer: Block {
            norm: norm("attn_norm", make)?,
            weights: mixer(&name, model.hidden, &spec.mixer, make)?,
            post_norm: post_norm("post_attention_norm", make)?,
        },
        mlp: match &spec.mlp {
            None => None,
            Some(spec) => Some(Block {
                norm: norm(model.mlp_norm, make)?,
                weights: mlp(&name, model.hidden, spec, make)?,
                post_norm: post_norm("post_ffw_norm", make)?,
            }),
        },
        output_scale: match model.layer_scales {
            true => Some(make.scalar(&tensor_spec(name("layer_output_scale.weight"), &[1]))?),
            false => None,
        },
    })
}

fn mlp<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    spec: &MlpSpec,
    make: &mut T,
) -> Result<MlpWeights<T::Matrix, T::Vector>> {
    Ok(match *spec {
        MlpSpec::Dense { inner, activation } => {
            let gate_up = ["ffn_gate.weight", "ffn_up.weight"].map(|part| tensor_spec(name(part), &[hidden, inner]));
            MlpWeights::Dense {
                activation,
                gate_up: make.matrix(Role::GateUp, &gate_up)?,
                down: make.matrix(Role::Matrix, &[tensor_spec(name("ffn_down.weight"), &[inner, hidden])])?,
            }
        }
        MlpSpec::Moe { experts, inner, activation, routing, selection_bias, bias, shared } => {
            let gate_up = ["ffn_gate_exps.weight", "ffn_up_exps.weight"];
            let gate_up = gate_up.map(|part| tensor_spec(name(part), &[hidden, inner, experts]));
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
                router: make.matrix(Role::Matrix, &[tensor_spec(name("ffn_gate_inp.weight"), &[hidden, experts])])?,
                selection_bias: selection_bias
                    .then(|| make.vector(&[tensor_spec(name("exp_probs_b.bias"), &[experts])]))
                    .transpose()?,
                gate_up: make.matrix(Role::GateUp, &gate_up)?,
                down: make
                    .matrix(Role::Matrix, &[tensor_spec(name("ffn_down_exps.weight"), &[inner, hidden, experts])])?,
                shared: shared.map(|shared| shared_expert(name, hidden, shared, make)).transpose()?,
            })
        }
    })
}

fn shared_expert<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    SharedExpert { inner, gated }: SharedExpert,
    make: &mut T,
) -> Result<SharedWeights<T::Matrix>> {
    let gate = tensor_spec(name("ffn_gate_inp_shexp.weight"), &[hidden, 1]);
    let gate_up =
        ["ffn_gate_shexp.weight", "ffn_up_shexp.weight"].map(|part| tensor_spec(name(part), &[hidden, inner]));
    Ok(SharedWeights {
        gate: gated.then(|| make.matrix(Role::Matrix, &[gate])).transpose()?,
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
