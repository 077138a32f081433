//! A synthetic model as a folder of Hugging Face whose matrices GPTQ or compressed-tensors has quantised, so that other
//! engines are measured on the same weights: `qwen3-30b-a3b:GPTQ`.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use gristmill_files::gguf::WriteError;
use gristmill_files::safetensors::{NewTensor, header};
use gristmill_kernels::format::{Format, e4m3};
use gristmill_model::family::published::{Family, Rule};
use half::f16;
use serde_json::{Value, json};

use super::blocks::{Pool, run_bytes};
use super::error::SyntheticError;
use super::shapes::{Model, TensorPlan};
use super::vocabulary;
use super::write::{self, Progress, Slice};
use crate::random::Random;

/// The codes of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codes {
    /// 4 bits in groups of 128, symmetric, without `desc_act`.
    Gptq,
    /// E4M3 with a scale for each row.
    Fp8,
}

/// Part of the recipe of a folder: raised with each change of its codes.
pub(super) const REVISION: u32 = 2;
/// Columns of a group.
const GROUP: u64 = 128;
/// The most bytes of a piece.
const PIECE: u64 = 1 << 22;
/// Bytes from which on a slice has enough pieces.
const ENOUGH: usize = 1 << 23;
/// The file that is written last, so that a folder with it is complete.
const LAST: &str = "config.json";
/// Models of these architectures are written: `model_type` and the class.
const KNOWN: [(&str, &str, &str); 2] =
    [("qwen3", "qwen3", "Qwen3ForCausalLM"), ("qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM")];

impl Codes {
    /// Their name after the model's.
    pub(super) const ALL: [(&str, Codes); 2] = [("GPTQ", Codes::Gptq), ("FP8", Codes::Fp8)];

    pub(super) fn named(name: &str) -> Option<Codes> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|&(_, codes)| codes)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, codes)| *codes == self).map_or("", |&(name, _)| name)
    }

    fn settings(self) -> Value {
        match self {
            Codes::Gptq => json!({
                "quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": false, "sym": true,
                "checkpoint_format": "gptq", "lm_head": false,
                // Routers are floats, which other engines do not find by themselves.
                "dynamic": {"-:.*mlp\\.gate$": {}},
            }),
            Codes::Fp8 => json!({
                "quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
                "ignore": ["lm_head", "re:.*mlp.gate$"], "kv_cache_scheme": null,
                "config_groups": {"group_0": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false},
                    "input_activations":
                        {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true, "dynamic": true},
                }},
            }),
        }
    }
}

/// The data of a tensor.
enum Data {
    /// Those of this tensor of a file; an expert's matrix starts at this byte.
    Plain(usize, u64),
    /// Random codes of 4 bits, of which the middle, 8, is the mean.
    Nibbles,
    /// The same word.
    Constant(u32),
    /// The group of each column.
    Order,
    /// F16 near this.
    Halves(f32),
    /// F32 near this.
    Singles(f32),
    /// Codes of normal values.
    Floats,
}

/// Whether a model can be written as a folder.
pub(super) fn check(model: &Model) -> Result<(), SyntheticError> {
    if family(model).is_some() && !model.special.mtp {
        return Ok(());
    }
    let known = KNOWN.map(|(architecture, _, _)| architecture).join(", ");
    Err(SyntheticError::Folder { name: model.name.to_owned(), known })
}

fn family(model: &Model) -> Option<(&'static Family, &'static str, &'static str)> {
    let &(_, model_type, class) = KNOWN.iter().find(|(known, _, _)| *known == model.architecture)?;
    Some((Family::find(model_type)?, model_type, class))
}

/// The published name of a tensor.
fn theirs(family: &Family, name: &str) -> Option<String> {
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()).unwrap_or("0");
    let lists = [family.globals, family.layer, family.mixers, family.mlps];
    let is_it = |rule: &&Rule| rule.ours.replace("{layer}", layer) == name;
    let rule = lists.into_iter().flatten().copied().flatten().find(is_it)?;
    Some(rule.theirs.replace("{layer}", layer))
}

/// The format in which the engine loads a tensor, if it has codes.
pub(super) fn loaded(model: &Model, codes: Codes, plan: &TensorPlan) -> Option<Format> {
    let (family, _, _) = family(model)?;
    theirs(family, &plan.name).filter(|name| is_coded(name, plan)).map(|_| match codes {
        Codes::Gptq => Format::Q4_0,
        Codes::Fp8 => Format::FP8_64,
    })
}

/// Whether a tensor of this name is quantised.
fn is_coded(name: &str, plan: &TensorPlan) -> bool {
    name.ends_with("_proj.weight") && plan.shape.first().is_some_and(|columns| columns.is_multiple_of(GROUP))
}

/// The tensors of the folder, and their data.
fn tensors(model: &Model, codes: Codes, plans: &[TensorPlan]) -> Vec<(NewTensor, Data)> {
    let Some((family, _, _)) = family(model) else { return Vec::new() };
    let mut made = Vec::new();
    let mut add = |name: String, dtype: &str, shape: &[u64], element: u64, data| {
        let bytes = element * shape.iter().product::<u64>();
        made.push((NewTensor { name, dtype: dtype.to_owned(), shape: shape.to_vec(), bytes }, data));
    };
    for (number, plan) in plans.iter().enumerate() {
        let Some(name) = theirs(family, &plan.name) else { continue };
        let &[columns, ref outer @ ..] = plan.shape.as_slice() else { continue };
        let is_coded = is_coded(&name, plan);
        let (rows, experts) = match *outer {
            [rows, experts] => (rows, experts),
            [rows] => (rows, 1),
            _ => (1, 1),
        };
        for expert in 0..experts {
            let name = name.replace("{expert}", &expert.to_string());
            let module = name.strip_suffix("weight").unwrap_or(&name);
            let deviation = Pool::deviation(plan);
            match codes {
                _ if !is_coded => {
                    let shape: Vec<u64> = if outer.is_empty() { vec![columns] } else { vec![rows, columns] };
                    let element = plan.format.block_bytes() as u64;
                    let data = Data::Plain(number, expert * rows * columns * element);
                    add(name.clone(), plan.format.name(), &shape, element, data);
                }
                Codes::Gptq => {
                    let groups = columns / GROUP;
                    // Less 8 they have this mean square; of 0 there is none, which is 8 instead.
                    let root = (1..16).map(|code| (code as f32 - 8.0).powi(2) / 16.0).sum::<f32>().sqrt();
                    add(format!("{module}qweight"), "I32", &[columns / 8, rows], 4, Data::Nibbles);
                    add(format!("{module}qzeros"), "I32", &[groups, rows / 8], 4, Data::Constant(0x7777_7777));
                    add(format!("{module}scales"), "F16", &[groups, rows], 2, Data::Halves(deviation / root));
                    add(format!("{module}g_idx"), "I32", &[columns], 4, Data::Order);
                }
                Codes::Fp8 => {
                    add(name.clone(), "F8_E4M3", &[rows, columns], 1, Data::Floats);
                    let scale = deviation / root_mean_square(&floats());
                    add(format!("{module}weight_scale"), "F32", &[rows, 1], 4, Data::Singles(scale));
                }
            }
        }
    }
    made
}

/// E4M3 codes of normal values.
fn floats() -> Vec<u8> {
    let mut random = Random::named("codes in FP8");
    let values: Vec<f32> = (0..1 << 15).map(|_| random.normal()).collect();
    let (block, size) = (Format::FP8_64.block_len(), Format::FP8_64.block_bytes());
    let mut blocks = vec![0; values.len() / block * size];
    let encoded = gristmill_transcode::encode(Format::FP8_64, &values, &mut blocks);
    debug_assert!(encoded.is_some(), "whole blocks");
    blocks.chunks_exact(size).flat_map(|bytes| bytes[size - block..].to_vec()).collect()
}

fn root_mean_square(codes: &[u8]) -> f32 {
    (codes.iter().map(|&code| e4m3::decode(code).powi(2)).sum::<f32>() / codes.len() as f32).sqrt()
}

/// Writes a folder; one that is not complete lacks `config.json`.
pub(super) fn write(
    folder: &Path,
    model: &Model,
    codes: Codes,
    plans: &[TensorPlan],
    recipe: &str,
    progress: Progress<'_>,
) -> Result<(), SyntheticError> {
    let io = |error| SyntheticError::Write(WriteError::Io(error));
    fs::create_dir_all(folder).map_err(io)?;
    let _ = fs::remove_file(folder.join(LAST));
    let made = tensors(model, codes, plans);
    let records: Vec<NewTensor> = made.iter().map(|(record, _)| record.clone()).collect();
    let header = header(&records, &[("format", "pt")]);
    let slices = slices(&records, header.len() as u64);
    let total = header.len() as u64 + records.iter().map(|record| record.bytes).sum::<u64>();
    let mut out = File::create(folder.join("model.safetensors")).map_err(io)?;
    out.write_all(&header).and_then(|()| out.set_len(total)).map_err(io)?;
    let floats = floats();
    let make = |pieces: &Vec<Piece>, pool: &mut write::LastPool, mut out: &mut [u8]| {
        for piece in pieces {
            let (bytes, rest) = out.split_at_mut(piece.bytes);
            let (record, data) = &made[piece.tensor];
            match data {
                Data::Plain(number, start) => {
                    let run = run_bytes(plans[*number].format) as u64;
                    pool.get(*number).fill((start + piece.first) / run, bytes);
                }
                data => fill(&record.name, data, piece.first, &floats, bytes),
            }
            out = rest;
        }
    };
    let progress = |done| progress(header.len() as u64 + done, total);
    if write::fill(&out, plans, &slices, &make, &progress).map_err(io)?.is_break() {
        drop(out);
        let _ = fs::remove_dir_all(folder);
        return Err(SyntheticError::Stopped);
    }
    let save = |name: &str, value: &Value| fs::write(folder.join(name), format!("{value:#}\n"));
    vocabulary::write_folder(model.vocabulary, &save).map_err(io)?;
    save(LAST, &config(model, codes, recipe)).map_err(io)
}

/// Some bytes of a tensor.
struct Piece {
    tensor: usize,
    first: u64,
    bytes: usize,
}

/// The pieces of all tensors, which follow each other from `offset` on. Small ones are written together.
fn slices(records: &[NewTensor], mut offset: u64) -> Vec<Slice<Vec<Piece>>> {
    let mut slices: Vec<Slice<Vec<Piece>>> = Vec::new();
    for (tensor, record) in records.iter().enumerate() {
        for first in (0..record.bytes).step_by(PIECE as usize) {
            let bytes = (record.bytes - first).min(PIECE) as usize;
            let piece = Piece { tensor, first, bytes };
            match slices.last_mut().filter(|slice| slice.bytes < ENOUGH) {
                Some(slice) => {
                    slice.bytes += bytes;
                    slice.what.push(piece);
                }
                None => slices.push(Slice { offset, bytes, what: vec![piece] }),
            }
            offset += bytes as u64;
        }
    }
    slices
}

/// Fills some bytes of a tensor from byte `first` on.
fn fill(name: &str, data: &Data, first: u64, floats: &[u8], out: &mut [u8]) {
    let random = Random::named(name);
    let near = |mean: f32, i: u64| {
        // Within a tenth of the mean.
        mean * (1.0 + 0.2 * ((random.at(i) >> 40) as f32 / 16_777_216.0 - 0.5))
    };
    match data {
        Data::Plain(..) => {}
        Data::Nibbles => {
            for (word, i) in out.chunks_mut(8).zip(first / 8..) {
                word.copy_from_slice(&centred(random.at(i)).to_le_bytes()[..word.len()]);
            }
        }
        Data::Constant(word) => out.chunks_mut(4).for_each(|out| out.copy_from_slice(&word.to_le_bytes())),
        Data::Order => {
            for (out, column) in out.chunks_mut(4).zip(first / 4..) {
                out.copy_from_slice(&((column / GROUP) as u32).to_le_bytes());
            }
        }
        Data::Halves(mean) => {
            for (out, i) in out.chunks_mut(2).zip(first / 2..) {
                out.copy_from_slice(&f16::from_f32(near(*mean, i)).to_le_bytes());
            }
        }
        Data::Singles(mean) => {
            for (out, i) in out.chunks_mut(4).zip(first / 4..) {
                out.copy_from_slice(&near(*mean, i).to_le_bytes());
            }
        }
        Data::Floats => {
            const RUN: usize = 256;
            for (run, i) in out.chunks_mut(RUN).zip(first / RUN as u64..) {
                let start = (random.at(i) % (floats.len() - RUN) as u64) as usize;
                run.copy_from_slice(&floats[start..][..run.len()]);
            }
        }
    }
}

/// Sixteen nibbles with 8 in the place of 0. With 0, the mean is below 8, so that every matrix adds one direction to all
/// tokens, and routers choose few experts.
fn centred(nibbles: u64) -> u64 {
    const LOWEST: u64 = 0x1111_1111_1111_1111;
    let zeros = !(nibbles | nibbles >> 1 | nibbles >> 2 | nibbles >> 3) & LOWEST;
    nibbles | zeros << 3
}

fn config(model: &Model, codes: Codes, recipe: &str) -> Value {
    let (model_type, class) = family(model).map_or(("", ""), |(_, model_type, class)| (model_type, class));
    let mut config = json!({
        "architectures": [class], "model_type": model_type, "dtype": "bfloat16", "torch_dtype": "bfloat16",
        "hidden_size": model.hidden, "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads, "head_dim": model.head_width, "intermediate_size": model.inner,
        "vocab_size": model.vocabulary, "max_position_embeddings": model.context, "rope_theta": model.rope_base,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": model.tied, "hidden_act": "silu", "attention_bias": false,
        "bos_token_id": model.vocabulary - 3, "eos_token_id": model.vocabulary - 1,
        "quantization_config": codes.settings(), "gristmill_recipe": recipe,
    });
    if let Some(experts) = &model.experts {
        let own = json!({
            "num_experts": experts.count, "num_experts_per_tok": experts.used, "moe_intermediate_size": experts.inner,
            "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
        });
        if let (Value::Object(config), Value::Object(own)) = (&mut config, own) {
            config.extend(own);
        }
    }
    config
}

/// Whether a folder is this model, complete.
pub(super) fn is_written(folder: &Path, recipe: &str) -> bool {
    let config = fs::read(folder.join(LAST)).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    config.is_some_and(|config| config["gristmill_recipe"] == recipe) && folder.join("model.safetensors").is_file()
}

/// Bytes of the folder's weights.
pub(super) fn bytes(model: &Model, codes: Codes, plans: &[TensorPlan]) -> u64 {
    tensors(model, codes, plans).iter().map(|(record, _)| record.bytes).sum()
}
