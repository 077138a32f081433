//! A model's weights: which tensors they are, of what shape and for what role. [`assemble`] is that table; it is
//! walked twice, by [`Survey`] to check the file before anything is loaded, and by [`Load`] to load it.

use std::collections::HashSet;
use std::sync::Arc;

use gristmill_kernels::ops::{Activation, Backend, Rope, Routing};
use gristmill_kernels::tensor::{Buffer, SharedBytes};
use gristmill_kernels::weight::{Role, TensorView, Weight};

use super::rope;
use super::spec::{AttentionSpec, LayerSpec, MlpSpec, ModelSpec, NormKind, QkNorm, RopeScaling, SharedExpert};
use crate::error::{Error, Result};
use crate::gguf::{GgufFile, TensorInfo};

/// All weights of a model. `M` is a matrix, `V` a vector.
#[derive(Debug)]
pub(crate) struct Weights<M = Weight, V = Buffer<f32>> {
    /// Embedding table, vocabulary × hidden.
    pub(crate) embedding: M,
    pub(crate) layers: Vec<LayerWeights<M, V>>,
    pub(crate) output_norm: NormWeights<V>,
    /// Output head, vocabulary × hidden.
    pub(crate) output: M,
    pub(crate) output_bias: Option<V>,
    /// `rope_freqs.weight`, if the model has it.
    rope_factors: Option<V>,
    /// LongRoPE's factors for short and for long contexts.
    long_rope_factors: Option<[V; 2]>,
}

#[derive(Debug)]
pub(crate) struct LayerWeights<M, V> {
    pub(crate) attention_norm: NormWeights<V>,
    pub(crate) attention: AttentionWeights<M, V>,
    pub(crate) attention_post_norm: Option<NormWeights<V>>,
    pub(crate) mlp_norm: NormWeights<V>,
    pub(crate) mlp_post_norm: Option<NormWeights<V>>,
    pub(crate) mlp: MlpWeights<M, V>,
}

/// A norm of rows.
#[derive(Debug)]
pub(crate) enum NormWeights<V> {
    Rms { weight: V },
    Layer { weight: V, bias: V },
}

#[derive(Debug)]
pub(crate) struct AttentionWeights<M, V> {
    /// Queries, keys and values side by side.
    pub(crate) qkv: M,
    pub(crate) qkv_bias: Option<V>,
    /// Of queries and of keys.
    pub(crate) qk_norm: Option<[V; 2]>,
    /// One logit for each head.
    pub(crate) sinks: Option<V>,
    pub(crate) output: M,
    pub(crate) output_bias: Option<V>,
}

/// An MLP's weights, and what to do with them.
#[derive(Debug)]
pub(crate) enum MlpWeights<M, V> {
    Dense { activation: Activation, gate_up: M, down: M },
    Moe(MoeWeights<M, V>),
}

/// A router and its experts.
#[derive(Debug)]
pub(crate) struct MoeWeights<M, V> {
    pub(crate) activation: Activation,
    pub(crate) routing: Routing,
    pub(crate) router: M,
    pub(crate) gate_up: M,
    pub(crate) down: M,
    pub(crate) biases: Option<MoeBiases<V>>,
    pub(crate) shared: Option<SharedWeights<M>>,
}

/// Biases of the router (E) and of each expert's matrices (E × rows).
#[derive(Debug)]
pub(crate) struct MoeBiases<V> {
    pub(crate) router: V,
    pub(crate) gate: V,
    pub(crate) up: V,
    pub(crate) down: V,
}

/// The weights of an expert that serves every token.
#[derive(Debug)]
pub(crate) struct SharedWeights<M> {
    /// Makes the logit whose sigmoid multiplies the output.
    pub(crate) gate: Option<M>,
    pub(crate) gate_up: M,
    pub(crate) down: M,
}

/// A tensor that is needed: its name, and its shape with the innermost dimension first.
struct Wanted {
    name: String,
    shape: Vec<u64>,
}

fn wanted(name: impl Into<String>, shape: &[usize]) -> Wanted {
    Wanted { name: name.into(), shape: shape.iter().map(|&n| n as u64).collect() }
}

/// Makes weights of tensors.
trait Make {
    type Matrix;
    type Vector;
    fn matrix(&mut self, role: Role, tensors: &[Wanted]) -> Result<Self::Matrix>;
    /// A vector, several tensors one after another; of a matrix, its rows one after another.
    fn vector(&mut self, tensors: &[Wanted]) -> Result<Self::Vector>;
}

/// The table of all tensors.
fn assemble<T: Make>(spec: &ModelSpec, make: &mut T) -> Result<Weights<T::Matrix, T::Vector>> {
    let ModelSpec { hidden, vocab, .. } = *spec;
    let table = || wanted("token_embd.weight", &[hidden, vocab]);
    let output = if spec.tied_embeddings { table() } else { wanted("output.weight", &[hidden, vocab]) };
    let ropes = || spec.layers.iter().map(|layer| &layer.attention.rope);
    let rope = ropes().find(|rope| rope.factors);
    let long_rope = ropes().find(|rope| matches!(rope.scaling, RopeScaling::Long { .. }));
    let mut factors = |part, width: usize| make.vector(&[wanted(format!("rope_{part}.weight"), &[width / 2])]);
    Ok(Weights {
        rope_factors: rope.map(|rope| factors("freqs", rope.width)).transpose()?,
        long_rope_factors: match long_rope {
            Some(rope) => Some([factors("factors_short", rope.width)?, factors("factors_long", rope.width)?]),
            None => None,
        },
        embedding: make.matrix(Role::Table, &[table()])?,
        layers: (0..).zip(&spec.layers).map(|(i, layer)| self::layer(i, spec, layer, make)).collect::<Result<_>>()?,
        output_norm: norm("output_norm".to_owned(), spec, make)?,
        output: make.matrix(Role::Matrix, &[output])?,
        output_bias: match spec.output_bias {
            true => Some(make.vector(&[wanted("output.bias", &[vocab])])?),
            false => None,
        },
    })
}

fn norm<T: Make>(name: String, spec: &ModelSpec, make: &mut T) -> Result<NormWeights<T::Vector>> {
    let mut vector = |part| make.vector(&[wanted(format!("{name}.{part}"), &[spec.hidden])]);
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
        attention_norm: norm("attn_norm", make)?,
        attention: attention(&name, model.hidden, &spec.attention, make)?,
        attention_post_norm: post_norm("post_attention_norm", make)?,
        mlp_norm: norm(model.mlp_norm, make)?,
        mlp: mlp(&name, model.hidden, &spec.mlp, make)?,
        mlp_post_norm: post_norm("post_ffw_norm", make)?,
    })
}

fn attention<T: Make>(
    name: &dyn Fn(&str) -> String,
    hidden: usize,
    spec: &AttentionSpec,
    make: &mut T,
) -> Result<AttentionWeights<T::Matrix, T::Vector>> {
    let parts = [("q", spec.query_columns()), ("k", spec.key_columns()), ("v", spec.value_columns())];
    let weights = parts.map(|(part, rows)| wanted(name(&format!("attn_{part}.weight")), &[hidden, rows]));
    let biases = parts.map(|(part, rows)| wanted(name(&format!("attn_{part}.bias")), &[rows]));
    let norms = spec.qk_norm.map(|over| {
        let [q, k] = match over {
            QkNorm::PerHead => [spec.key_width; 2],
            QkNorm::WholeRow => [spec.query_columns(), spec.key_columns()],
        };
        [wanted(name("attn_q_norm.weight"), &[q]), wanted(name("attn_k_norm.weight"), &[k])]
    });
    Ok(AttentionWeights {
        qkv: make.matrix(Role::Matrix, &weights)?,
        qkv_bias: spec.qkv_bias.then(|| make.vector(&biases)).transpose()?,
        qk_norm: match norms {
            None => None,
            Some([q, k]) => Some([make.vector(&[q])?, make.vector(&[k])?]),
        },
        sinks: match spec.sinks {
            true => Some(make.vector(&[wanted(name("attn_sinks.weight"), &[spec.heads])])?),
            false => None,
        },
        output: make.matrix(Role::Matrix, &[wanted(name("attn_output.weight"), &[spec.attended_columns(), hidden])])?,
        output_bias: match spec.output_bias {
            true => Some(make.vector(&[wanted(name("attn_output.bias"), &[hidden])])?),
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
            let gate_up = ["ffn_gate.weight", "ffn_up.weight"].map(|part| wanted(name(part), &[hidden, inner]));
            MlpWeights::Dense {
                activation,
                gate_up: make.matrix(Role::GateUp, &gate_up)?,
                down: make.matrix(Role::Matrix, &[wanted(name("ffn_down.weight"), &[inner, hidden])])?,
            }
        }
        MlpSpec::Moe { experts, inner, activation, routing, bias, shared } => {
            let gate_up = ["ffn_gate_exps.weight", "ffn_up_exps.weight"];
            let gate_up = gate_up.map(|part| wanted(name(part), &[hidden, inner, experts]));
            let mut vector = |part, shape: &[usize]| make.vector(&[wanted(name(part), shape)]);
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
                router: make.matrix(Role::Matrix, &[wanted(name("ffn_gate_inp.weight"), &[hidden, experts])])?,
                gate_up: make.matrix(Role::GateUp, &gate_up)?,
                down: make.matrix(Role::Matrix, &[wanted(name("ffn_down_exps.weight"), &[inner, hidden, experts])])?,
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
    let gate_up = ["ffn_gate_shexp.weight", "ffn_up_shexp.weight"].map(|part| wanted(name(part), &[hidden, inner]));
    Ok(SharedWeights {
        gate: match gated {
            true => Some(make.matrix(Role::Matrix, &[wanted(name("ffn_gate_inp_shexp.weight"), &[hidden, 1])])?),
            false => None,
        },
        gate_up: make.matrix(Role::GateUp, &gate_up)?,
        down: make.matrix(Role::Matrix, &[wanted(name("ffn_down_shexp.weight"), &[inner, hidden])])?,
    })
}

/// The tensor, if it has the wanted shape.
fn find<'a>(file: &'a GgufFile, wanted: &Wanted) -> Result<&'a TensorInfo> {
    let Some(tensor) = file.tensor(&wanted.name) else {
        return Err(Error::MissingTensor { name: wanted.name.clone(), shape: wanted.shape.clone() });
    };
    // Trailing dimensions of 1 say nothing: one expert may be stored as a matrix.
    let trim = |shape: &[u64]| shape.len() - shape.iter().rev().take_while(|&&n| n == 1).count();
    if tensor.shape[..trim(&tensor.shape)] != wanted.shape[..trim(&wanted.shape)] {
        return Err(Error::TensorShape {
            name: wanted.name.clone(),
            offset: tensor.offset,
            found: tensor.shape.clone(),
            expected: wanted.shape.clone(),
        });
    }
    Ok(tensor)
}

/// What loading a model will take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightBytes {
    /// Read from the file.
    pub(crate) file: u64,
    /// Read from the file's map while the model runs; the system may drop these pages and read them again.
    pub(crate) mapped: u64,
    /// Prepared in memory.
    pub(crate) prepared: u64,
}

/// Prepared weights are in tiles of this many rows; the last may be partly empty.
const TILE_ROWS: u64 = gristmill_kernels::cpu::layout::ROWS as u64;

/// Checks that the file has every tensor in its shape, and none besides, and counts bytes.
pub(crate) fn survey(file: &GgufFile, spec: &ModelSpec) -> Result<WeightBytes> {
    let mut survey = Survey { file, seen: HashSet::new(), bytes: WeightBytes::default() };
    assemble(spec, &mut survey)?;
    match file.tensors().iter().find(|tensor| !survey.seen.contains(&tensor.name)) {
        None => Ok(survey.bytes),
        Some(tensor) => Err(Error::UnusedTensor { name: tensor.name.clone(), architecture: spec.architecture.clone() }),
    }
}

struct Survey<'a> {
    file: &'a GgufFile,
    seen: HashSet<String>,
    bytes: WeightBytes,
}

impl Survey<'_> {
    fn see(&mut self, wanted: &Wanted) -> Result<&TensorInfo> {
        let tensor = find(self.file, wanted)?;
        self.seen.insert(tensor.name.clone());
        // No sum of these overflows: the tensors of a file do not overlap, and each is used at most twice.
        self.bytes.file += tensor.bytes;
        Ok(tensor)
    }
}

impl Make for Survey<'_> {
    type Matrix = ();
    type Vector = ();

    fn matrix(&mut self, role: Role, tensors: &[Wanted]) -> Result<()> {
        for wanted in tensors {
            let (bytes, rows) = {
                let tensor = self.see(wanted)?;
                (tensor.bytes, wanted.shape.get(1).copied().unwrap_or(1).max(1))
            };
            match role {
                Role::Table => self.bytes.mapped += bytes,
                _ => self.bytes.prepared += bytes / rows * rows.next_multiple_of(TILE_ROWS),
            }
        }
        Ok(())
    }

    fn vector(&mut self, tensors: &[Wanted]) -> Result<()> {
        for wanted in tensors {
            self.bytes.prepared += self.see(wanted)?.elements() * size_of::<f32>() as u64;
        }
        Ok(())
    }
}

/// Loads all weights. `progress` is told how many bytes were just read from the file.
pub(crate) fn load(
    file: &GgufFile,
    spec: &ModelSpec,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(u64),
) -> Result<Weights> {
    assemble(spec, &mut Load { file, backend, progress })
}

struct Load<'a> {
    file: &'a GgufFile,
    backend: &'a dyn Backend,
    progress: &'a mut dyn FnMut(u64),
}

/// Keeps the file open as long as the bytes are in use.
struct TensorBytes {
    file: GgufFile,
    tensor: TensorInfo,
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self.file.data(&self.tensor)
    }
}

impl Load<'_> {
    fn view(&self, wanted: &Wanted) -> Result<TensorView> {
        let tensor = find(self.file, wanted)?;
        let len = self.file.data(tensor).len();
        let owner = Arc::new(TensorBytes { file: self.file.clone(), tensor: tensor.clone() });
        // The dimensions are those of a tensor whose bytes are in memory: they fit.
        let dim = |i: usize| wanted.shape.get(i).map_or(1, |&n| n as usize);
        Ok(TensorView {
            name: wanted.name.clone(),
            format: tensor.format,
            experts: dim(2),
            rows: dim(1),
            cols: dim(0),
            bytes: SharedBytes::new(owner, 0..len).unwrap_or_else(|| Vec::new().into()),
        })
    }

    fn done(&mut self, tensors: &[Wanted]) -> Result<()> {
        for wanted in tensors {
            let tensor = find(self.file, wanted)?;
            self.file.advise_done(tensor);
            (self.progress)(tensor.bytes);
        }
        Ok(())
    }
}

impl Make for Load<'_> {
    type Matrix = Weight;
    type Vector = Buffer<f32>;

    fn matrix(&mut self, role: Role, tensors: &[Wanted]) -> Result<Weight> {
        let views = tensors.iter().map(|wanted| self.view(wanted)).collect::<Result<Vec<_>>>()?;
        let weight = self.backend.prepare(&views, role)?;
        self.done(tensors)?;
        Ok(weight)
    }

    fn vector(&mut self, tensors: &[Wanted]) -> Result<Buffer<f32>> {
        let mut values = Vec::new();
        for wanted in tensors {
            let view = self.view(wanted)?;
            view.check()?;
            let start = values.len();
            values.resize(start + view.rows * view.cols, 0.0);
            // Checked: the bytes are exactly these values.
            view.format.decode(view.bytes.as_slice(), &mut values[start..]);
        }
        self.done(tensors)?;
        let mut buffer = self.backend.alloc_f32(values.len(), "a vector of weights")?;
        self.backend.upload_f32(&values, &mut buffer)?;
        Ok(buffer)
    }
}

impl Weights {
    /// RoPE of every layer for sequences of up to `context` tokens. Layers with the same spec share one.
    pub(crate) fn ropes(&self, spec: &ModelSpec, context: usize, backend: &dyn Backend) -> Result<Vec<Arc<Rope>>> {
        let mut ropes: Vec<Arc<Rope>> = Vec::new();
        for (index, layer) in spec.layers.iter().enumerate() {
            let wanted = &layer.attention.rope;
            let known = spec.layers[..index].iter().position(|layer| layer.attention.rope == *wanted);
            ropes.push(match known {
                Some(known) => ropes[known].clone(),
                None => {
                    let factors = match (wanted.scaling, &self.long_rope_factors) {
                        (RopeScaling::Long { original_context, .. }, Some([short, long])) => {
                            Some(if context > original_context { long } else { short })
                        }
                        _ => self.rope_factors.as_ref().filter(|_| wanted.factors),
                    };
                    let mut divisors = vec![1.0; factors.map_or(0, Buffer::len)];
                    if let Some(buffer) = factors {
                        backend.download_f32(buffer.view(1, buffer.len())?, &mut divisors)?;
                    }
                    let (frequencies, magnitude) = rope::frequencies(wanted, factors.and(Some(&divisors)));
                    let mut buffer = backend.alloc_f32(frequencies.len(), "RoPE frequencies")?;
                    backend.upload_f32(&frequencies, &mut buffer)?;
                    Arc::new(Rope { style: wanted.style, frequencies: buffer, magnitude })
                }
            });
        }
        Ok(ropes)
    }

    /// Bytes that preparing the weights took beyond the file's.
    pub(crate) fn owned_bytes(&self) -> u64 {
        let layers = self.layers.iter().flat_map(|layer| {
            let mlp = match &layer.mlp {
                MlpWeights::Dense { gate_up, down, .. } => vec![gate_up, down],
                MlpWeights::Moe(MoeWeights { router, gate_up, down, shared, .. }) => {
                    let shared = shared.iter().flat_map(|s| s.gate.iter().chain([&s.gate_up, &s.down]));
                    [router, gate_up, down].into_iter().chain(shared).collect()
                }
            };
            mlp.into_iter().chain([&layer.attention.qkv, &layer.attention.output])
        });
        layers.chain([&self.embedding, &self.output]).map(|weight| weight.owned_bytes() as u64).sum()
    }
}
