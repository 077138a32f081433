//! Folders in the codes of GPTQ, AutoRound, AWQ, compressed-tensors and ModelOpt, which `packed_folders.py`,
//! `quantised_folders.py` and `modelopt_stacks.py` of `scripts/golden` wrote with the programs themselves: they have the values
//! that these unpack, and the logits of transformers with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_conformance::simulated::Simulator;
use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertOptions, open_folder};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_files::safetensors;
use gristmill_kernels::Backend;
use gristmill_kernels::format::{Format, e4m3};
use serde_json::{Value, json};

use super::direct::open;
use super::folder::{Folder, INDEX};
use super::mlx::{WEIGHTS, with_weights};
use super::nmse;

/// The folders, and the formats of some of their tensors.
pub(crate) const FOLDERS: [(&str, &[(&str, Format)]); 28] = [
    ("gptq", &[("attn_q", Format::INT4_64), ("ffn_down", Format::INT4_64)]),
    ("gptq-order", &[("attn_q", Format::Q4_0), ("ffn_down", Format::Q4_0)]),
    ("auto-round", &[("attn_q", Format::INT4_64)]),
    ("awq", &[("attn_k", Format::INT4_64), ("ffn_down_exps", Format::INT4_64), ("ffn_gate_inp", Format::F32)]),
    ("w4a16", &[("attn_v", Format::Q4_0), ("ffn_up_exps", Format::Q4_0)]),
    ("w4a16-asymmetric", &[("attn_output", Format::INT4_64), ("ffn_down", Format::INT4_64)]),
    (
        "w8a16-channel",
        &[
            ("attn_q", Format::Q8_0),
            ("ffn_gate", Format::Q8_0),
            ("ffn_up", Format::Q4_0),
            ("ffn_down", Format::AFFINE8_32),
        ],
    ),
    ("fp8", &[("attn_q", Format::FP8_64), ("ffn_up", Format::FP8_64), ("ffn_down", Format::FP8_64)]),
    ("fp4", &[("ffn_down_exps", Format::NVFP4_SCALED), ("attn_q", Format::BF16), ("attn_k", Format::MXFP4)]),
    ("modelopt", &[("ffn_gate", Format::NVFP4_SCALED), ("attn_q", Format::FP8_64)]),
    ("gptqmodel-v2", &[("attn_q", Format::AFFINE4_32), ("ffn_down", Format::AFFINE4_32)]),
    ("gptqmodel-order", &[("attn_k", Format::Q4_0), ("attn_output", Format::Q4_0), ("ffn_down", Format::Q4_0)]),
    ("gptqmodel-dynamic", &[("attn_q", Format::Q8_0), ("attn_output", Format::BF16), ("ffn_down_exps", Format::Q4_0)]),
    ("gptqmodel-head", &[("attn_q", Format::Q4_0), ("ffn_down", Format::Q4_0)]),
    ("llmcompressor-w4a16", &[("attn_q", Format::Q4_0), ("ffn_down", Format::Q4_0)]),
    ("llmcompressor-w4a16-head", &[("attn_q", Format::INT4_64), ("ffn_down", Format::INT4_64)]),
    ("llmcompressor-embedding", &[("attn_q", Format::Q8_0)]),
    ("llmcompressor-fp8", &[("attn_q", Format::FP8_64), ("ffn_down_exps", Format::FP8_64)]),
    ("gptqmodel-3bit", &[("attn_q", Format::Q4_0), ("ffn_down", Format::Q4_0)]),
    ("gptqmodel-5bit", &[("attn_q", Format::Q8_0), ("ffn_down", Format::Q8_0)]),
    ("gptqmodel-awq", &[("attn_q", Format::AFFINE4_32), ("ffn_down_exps", Format::AFFINE4_32)]),
    ("autoround-w4a16", &[("attn_q", Format::Q4_0), ("ffn_down_exps", Format::Q4_0)]),
    (
        "autoround-mixed",
        &[
            ("attn_q", Format::Q8_0),
            ("attn_k", Format::Q8_0),
            ("attn_v", Format::Q8_0),
            ("attn_output", Format::Q8_0),
            ("ffn_gate", Format::Q4_0),
            ("ffn_down", Format::AFFINE4_32),
        ],
    ),
    ("autoround-awq", &[("attn_q", Format::Q8_0), ("attn_output", Format::AFFINE4_32)]),
    ("gptqmodel-order-experts", &[("ffn_gate_exps", Format::F16), ("ffn_down_exps", Format::Q4_0)]),
    ("modelopt-stacks-fp8", &[("ffn_gate_exps", Format::FP8_64), ("ffn_down_exps", Format::FP8_64)]),
    ("modelopt-stacks-nvfp4", &[("ffn_up_exps", Format::NVFP4_SCALED), ("ffn_down_exps", Format::NVFP4_SCALED)]),
    ("llmcompressor-nvfp4", &[("attn_q", Format::NVFP4_SCALED), ("ffn_down", Format::NVFP4_SCALED)]),
];

/// Those whose values are also compared one by one.
fn with_sums() -> impl Iterator<Item = &'static (&'static str, &'static [(&'static str, Format)])> {
    FOLDERS.iter().filter(|(name, _)| golden(&format!("{name}.sums.json")).is_file())
}

fn golden(name: &str) -> PathBuf {
    golden::models_folder().join("packed").join(name)
}

/// A copy of a folder, with a tokenizer.
pub(crate) fn packed(name: &str, case: &str) -> Folder {
    let source = if name.contains("stacks") { "llama4" } else { "qwen3" };
    let folder = with_weights(source, case, &golden(name).join(WEIGHTS));
    folder.write("config.json", fs::read(golden(name).join("config.json")).unwrap());
    folder
}

fn opened(folder: &Folder, mix: Option<&str>) -> GgufFile {
    let options = ConvertOptions { mix: mix.map(|mix| Mix::parse(mix).unwrap()), ..ConvertOptions::default() };
    open_folder(&folder.0, &options, 2).unwrap_or_else(|error| panic!("{error}")).0
}

fn values(file: &GgufFile, tensor: &TensorInfo) -> Vec<f32> {
    let mut values = vec![f32::NAN; tensor.elements() as usize];
    tensor.format.decode(file.load(tensor).unwrap().as_slice(), &mut values).unwrap();
    values
}

/// The values with their columns in the order of the folder.
fn values_in_order(file: &GgufFile, tensor: &TensorInfo) -> Vec<f32> {
    let found = values(file, tensor);
    let Some(order) = file.tensor(&gristmill_model::column_order(&tensor.name)) else { return found };
    let order = values(file, order);
    let mut ordered = vec![f32::NAN; found.len()];
    for (ordered, found) in ordered.chunks_mut(order.len()).zip(found.chunks(order.len())) {
        order.iter().zip(found).for_each(|(&column, &value)| ordered[column as usize] = value);
    }
    ordered
}

/// The sum over the bits of all values that the script computes.
fn sum(values: &[f32]) -> u64 {
    let bits = values.iter().map(|value| u64::from((value + 0.0).to_bits()));
    let sum = bits.zip(0..).fold(0u64, |sum, (bits, place)| sum.wrapping_add(bits.wrapping_mul(2 * place + 1)));
    sum & (u64::MAX >> 1)
}

fn sums(name: &str) -> BTreeMap<String, u64> {
    serde_json::from_slice(&fs::read(golden(&format!("{name}.sums.json"))).unwrap()).unwrap()
}

#[test]
fn values_are_those_that_the_programs_unpack() {
    assert_eq!(with_sums().count(), 10);
    for (name, formats) in FOLDERS {
        let file = opened(&packed(name, "packed-values"), None);
        for (tensor, format) in formats {
            let tensor = format!("blk.0.{tensor}.weight");
            assert_eq!(file.tensor(&tensor).unwrap().format, *format, "{name}: {tensor}");
        }
        if !with_sums().any(|(with, _)| *with == name) {
            continue;
        }
        let mut compared = 0;
        for (tensor, wanted) in sums(name) {
            let tensor = file.tensor(&tensor).unwrap();
            // Values in floats are rounded, and the two scales of NVFP4 are multiplied in another order.
            if [Format::BF16, Format::F16].contains(&tensor.format) || tensor.format == Format::NVFP4_SCALED {
                continue;
            }
            assert_eq!(sum(&values_in_order(&file, tensor)), wanted, "{name}: {}", tensor.name);
            compared += 1;
        }
        let least = match name {
            "fp8" => 7,
            "modelopt" => 4,
            "fp4" => 3,
            _ => 7,
        };
        assert!(compared >= least, "{name}: {compared}");
    }
}

#[test]
fn numbers_in_fp8_times_their_scales_in_f32() {
    let file = opened(&packed("fp8", "packed-fp8"), Some("F32"));
    for (tensor, wanted) in sums("fp8") {
        assert_eq!(sum(&values(&file, file.tensor(&tensor).unwrap())), wanted, "{tensor}");
    }
}

/// GGUF files have the same values: exact in F32 where no format of theirs holds them.
#[test]
fn converted_files_have_the_same_values() {
    for (name, _) in FOLDERS {
        let folder = packed(name, "packed-converted");
        let file = opened(&folder, None);
        let converted = folder.convert();
        let mut rounds = false;
        for wanted in file.tensors().iter().filter(|wanted| !wanted.name.ends_with(".column_order")) {
            // Rows of gate and up, and columns of down, have another order.
            if name == "gptqmodel-order-experts" && wanted.name.contains("_exps") {
                continue;
            }
            let found = converted.tensor(&wanted.name).unwrap();
            let scale = match converted.tensor(&wanted.name.replace(".weight", ".scale")) {
                Some(scale) => values(&converted, scale),
                None => vec![1.0],
            };
            let of_matrix = found.elements() as usize / scale.len();
            // Files have no FP8.
            let rounding = if found.format == Format::BF16 { 1.0 / 256.0 } else { 2e-7 };
            rounds |= wanted.format == Format::FP8_64;
            let found = values(&converted, found);
            let wanted_values = values_in_order(&file, wanted);
            for (i, (found, wanted_value)) in found.iter().zip(&wanted_values).enumerate() {
                let found = found * scale[i / of_matrix];
                assert!((found - wanted_value).abs() <= rounding * wanted_value.abs(), "{name}: {} {i}", wanted.name);
            }
        }
        if rounds {
            continue;
        }
        let logits = GgufFile::open(golden(&format!("{name}.logits.gguf"))).unwrap();
        let options = LoadOptions { precision: Precision::Exact, threads: Some(2), ..LoadOptions::default() };
        let error = nmse(&Arc::new(Model::from_file(converted, options).unwrap()), &logits);
        assert!(error <= 1e-6, "{name}: NMSE {error:.1e}");
    }
}

#[test]
fn logits_are_those_of_transformers_on_every_level_and_simulator() {
    let mut backends: Vec<(&str, Backend)> = vec![];
    for level in Level::available() {
        backends.push((level.name(), Cpu::backend(level, 2).unwrap()));
    }
    backends.push(("CUDA", Simulator::cuda(1, gpu_sim::Mode::Fast).unwrap()));
    backends.push(("Metal", Simulator::metal(1, gpu_sim::Mode::Fast).unwrap()));
    for (backend_name, backend) in backends {
        let backend = Arc::new(backend);
        for (name, _) in FOLDERS {
            let logits = GgufFile::open(golden(&format!("{name}.logits.gguf"))).unwrap();
            let file = open(&packed(name, "packed-logits").0);
            let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
            let model = Arc::new(Model::with_backend(file, backend.clone(), options).unwrap());
            let error = nmse(&model, &logits);
            println!("{name} {backend_name}: {error:.1e}");
            // Also false for NaN.
            assert!(error <= 1e-6, "{name} on {backend_name}: NMSE {error:.1e}");
        }
    }
}

/// A quantised LM head is the output matrix; GPTQModel gives it 8 bits.
#[test]
fn heads_may_be_quantised() {
    for (name, format) in [("gptqmodel-head", Format::Q8_0), ("llmcompressor-w4a16-head", Format::INT4_64)] {
        let file = opened(&packed(name, "packed-head"), None);
        assert_eq!(file.tensor("output.weight").unwrap().format, format, "{name}");
        assert_eq!(file.tensor("token_embd.weight").unwrap().format, Format::BF16, "{name}");
    }
}

#[test]
fn embeddings_may_be_quantised() {
    let file = opened(&packed("llmcompressor-embedding", "packed-embedding"), None);
    for name in ["token_embd.weight", "output.weight"] {
        assert_eq!(file.tensor(name).unwrap().format, Format::Q8_0, "{name}");
    }
}

/// Columns are put in the order of their groups only where all matrices of an input agree.
#[test]
fn columns_keep_their_order_where_matrices_disagree() {
    let folder = packed("gptq-order", "packed-disagree");
    let wanted = opened(&folder, None);
    // Two columns of different groups.
    tensor("g_idx", |_, bytes| {
        let (first, rest) = bytes.split_at_mut(4);
        let other = rest.chunks_mut(4).find(|other| *other != first).unwrap();
        first.swap_with_slice(other);
    })(&folder);
    let file = opened(&folder, None);
    for name in ["attn_q", "attn_k", "attn_v"].map(|part| format!("blk.0.{part}.weight")) {
        assert_eq!(file.tensor(&name).unwrap().format, Format::F16, "{name}");
        assert!(file.tensor(&gristmill_model::column_order(&name)).is_none(), "{name}");
    }
    let name = "blk.0.attn_k.weight";
    let found = values(&file, file.tensor(name).unwrap());
    let wanted = values_in_order(&wanted, wanted.tensor(name).unwrap());
    assert!(found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() <= wanted.abs() / 1024.0));
    assert_eq!(file.tensor("blk.0.attn_output.weight").unwrap().format, Format::Q4_0);
}

#[test]
fn codes_are_not_quantised_again_but_fp8_is() {
    let options = ConvertOptions { mix: Mix::named("Q8_0"), ..ConvertOptions::default() };
    let error = open_folder(&packed("awq", "packed-again").0, &options, 1).expect_err("it is refused").to_string();
    assert!(error.contains("is quantised, and another format would add an error"), "{error}");
    let file = opened(&packed("fp8", "packed-fp8-again"), Some("Q8_0"));
    assert_eq!(file.tensor("blk.0.attn_q.weight").unwrap().format, Format::Q8_0);
}

/// Settings in a file of an older program.
#[test]
fn settings_may_be_in_a_file_of_their_own() {
    for (name, file, wrapped) in [
        ("modelopt", "hf_quant_config.json", true),
        ("gptq", "quantize_config.json", false),
        ("awq", "quant_config.json", false),
    ] {
        let folder = packed(name, "packed-file");
        let wanted = opened(&folder, None);
        let mut settings = Value::Null;
        folder.json("config.json", |config| settings = config["quantization_config"].take());
        settings.as_object_mut().unwrap().remove("quant_method");
        let settings = if wrapped { json!({"producer": {}, "quantization": settings}) } else { settings };
        folder.write(file, settings.to_string());
        let found = opened(&folder, None);
        for tensor in wanted.tensors() {
            let found_values = values(&found, found.tensor(&tensor.name).unwrap());
            let wanted = values(&wanted, tensor);
            assert!(found_values == wanted, "{name}: {}", tensor.name);
        }
    }
}

/// AutoGPTQ writes biases of zeros for modules without any.
#[test]
fn biases_of_zeros_are_left_out() {
    let bias = |zero: u8| {
        let folder = packed("gptq", "packed-bias");
        // The input norm is another vector of the width.
        folder.bytes(WEIGHTS, |bytes| add_tensor(bytes, "model.layers.0.mlp.down_proj.bias", &[zero; 256]));
        folder
    };
    opened(&bias(0), None);
    bias(1).refused(&["model.layers.0.mlp.down_proj.bias", "tensors are not weights"]);
}

/// Adds a vector in F16 to a file of safetensors.
fn add_tensor(file: &mut Vec<u8>, name: &str, data: &[u8]) {
    let length = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let start = file.len() - 8 - length;
    header[name] = json!({"dtype": "F16", "shape": [data.len() / 2], "data_offsets": [start, start + data.len()]});
    let header = header.to_string();
    *file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &file[8 + length..], data].concat();
}

#[track_caller]
fn refused(name: &str, change: impl FnOnce(&Folder), says: &[&str]) {
    let folder = packed(name, "packed-refused");
    change(&folder);
    folder.refused(says);
    let error = open_folder(&folder.0, &ConvertOptions::default(), 1).expect_err("it is refused").to_string();
    assert!(says.iter().all(|says| error.contains(says)), "{error}");
}

const Q: &str = "model.layers.0.self_attn.q_proj";

/// Renames a tensor of a module.
fn rename(tensor: &str, to: &str) -> impl FnOnce(&Folder) {
    let (from, to) = (format!("{Q}.{tensor}\""), format!("{Q}.{to}\""));
    move |folder: &Folder| folder.header(WEIGHTS, &from, &to)
}

/// Changes a tensor of a module.
fn tensor(name: &str, change: impl Fn(&mut Vec<usize>, &mut Vec<u8>)) -> impl FnOnce(&Folder) {
    let wanted = format!("{Q}.{name}");
    move |folder: &Folder| {
        let mut changed = 0;
        folder.tensors(WEIGHTS, |name, shape, bytes| {
            if name == wanted {
                change(shape, bytes);
                changed += 1;
            }
        });
        assert_eq!(changed, 1);
    }
}

fn set(key: &'static str, value: Value) -> impl FnOnce(&Folder) {
    move |folder: &Folder| folder.json("config.json", |config| config["quantization_config"][key] = value)
}

#[test]
fn damaged_folders_are_refused() {
    let zeros = format!("{Q}.qzeros");
    refused("gptq", rename("qzeros", "qzero_"), &[&zeros, "is missing"]);
    refused("gptq-order", rename("g_idx", "g_id_"), &[&format!("{Q}.g_idx"), "is missing"]);
    refused("gptq", set("bits", json!(8)), &[&zeros, "codes of 8 bits"]);
    refused("gptq", set("group_size", json!(32)), &["_proj.scales", "columns are not", "groups of 32"]);
    refused("awq", set("group_size", json!(-1)), &["_proj.scales", "columns are not 2 groups"]);
    let order = tensor("g_idx", |_, bytes| bytes[..4].copy_from_slice(&77u32.to_le_bytes()));
    refused("gptq-order", order, &[&format!("{Q}.g_idx"), "group 77", "there are 4 groups"]);
    let nan = |_: &mut Vec<usize>, bytes: &mut Vec<u8>| bytes[..2].copy_from_slice(&0x7e00u16.to_le_bytes());
    refused("gptq", tensor("scales", nan), &[&format!("{Q}.scales"), "not finite"]);
    refused("awq", tensor("scales", nan), &[&format!("{Q}.scales"), "not finite"]);
    let nan = |_: &mut Vec<usize>, bytes: &mut Vec<u8>| bytes[..2].copy_from_slice(&0x7fc0u16.to_le_bytes());
    refused("w4a16", tensor("weight_scale", nan), &[&format!("{Q}.weight_scale"), "not finite"]);
    let infinite = |_: &mut Vec<usize>, bytes: &mut Vec<u8>| bytes[0] = 0xff;
    refused("fp4", tensor("weight_scale", infinite), &["weight_scale", "not finite"]);
    let shape = |_: &mut Vec<usize>, bytes: &mut Vec<u8>| bytes[..8].copy_from_slice(&7i64.to_le_bytes());
    refused("w4a16", tensor("weight_shape", shape), &[&format!("{Q}.weight_packed"), "7 × 128"]);
    refused("w4a16", rename("weight_shape", "weight_shap_"), &[&format!("{Q}.weight_shape"), "is missing"]);
    let bits = |folder: &Folder| {
        folder.json("config.json", |config| {
            config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = json!(8)
        })
    };
    refused("w4a16", bits, &["weight_packed", "in codes of [8] bits"]);
    let rows = |shape: &mut Vec<usize>, bytes: &mut Vec<u8>| {
        shape[0] /= 2;
        bytes.truncate(bytes.len() / 2);
    };
    refused("w4a16-asymmetric", tensor("weight_zero_point", rows), &["weight_zero_point", "zero points of 4 bits"]);
    refused("fp8", tensor("weight_scale", rows), &["weight_scale"]);
    refused("w4a16", set("quant_method", json!("hqq")), &["hqq", "take the unquantised model, quantised to Q4_K_M"]);
    refused("gptq", set("adapter", json!({"name": "lora", "rank": 8})), &["`adapter` is", "it is not read"]);
    let adapter = |folder: &Folder| folder.write("adapter_config.json", "{}");
    refused("gptq", adapter, &["adapter_config.json", "adapters (LoRA, EoRA) are not read"]);
    let words = |shape: &mut Vec<usize>, bytes: &mut Vec<u8>| {
        shape[1] /= 2;
        bytes.truncate(bytes.len() / 2);
    };
    let bits = |folder: &Folder| {
        folder.json("config.json", |config| config["quantization_config"]["extra_config"][Q] = json!({"bits": 7}))
    };
    refused("autoround-mixed", bits, &[&format!("{Q}.qweight"), "in codes of 7 bits"]);
    refused("awq", tensor("qweight", words), &[&format!("{Q}.qweight"), "in codes of 4 bits"]);
    let none = |folder: &Folder| folder.set("quantization_config", Value::Null);
    refused("gptq", none, &["qweight", "dtype I32"]);
}

/// Scales of 0 are those of groups of zeros.
#[test]
fn scales_of_zero_are_values_of_zero() {
    for name in ["gptq", "awq", "w4a16"] {
        let folder = packed(name, "packed-zero");
        let of = if name == "w4a16" { "weight_scale" } else { "scales" };
        tensor(of, |_, bytes| bytes.fill(0))(&folder);
        let file = opened(&folder, None);
        let values = values(&file, file.tensor("blk.0.attn_q.weight").unwrap());
        assert!(values.iter().all(|&value| value == 0.0), "{name}");
    }
}

/// Programs that quantise split stacks of experts: `[experts, inputs, outputs]`, with gate and up as halves of the outputs.
#[test]
fn experts_of_stacks_may_be_tensors_of_their_own() {
    for name in ["llama4", "qwen3vlmoe"] {
        let folder = Folder::copy(name, "packed-experts");
        let wanted = opened(&folder, None);
        split_experts(&folder);
        let found = opened(&folder, None);
        for tensor in wanted.tensors() {
            let same = values(&found, found.tensor(&tensor.name).unwrap()) == values(&wanted, tensor);
            assert!(same, "{name}: {}", tensor.name);
        }
    }
}

/// Writes all tensors to one file, and splits the stacks of experts.
fn split_experts(folder: &Folder) {
    let files = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: Vec<String> = files.filter(|file| file.ends_with(".safetensors")).collect();
    let all: Vec<Vec<u8>> = files.iter().map(|file| fs::read(folder.path(file)).unwrap()).collect();
    files.iter().map(String::as_str).chain([INDEX]).for_each(|file| folder.remove(file));
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    let mut stacks = 0;
    let mut add = |name: String, dtype: &str, shape: Vec<u64>, some: &[u8]| {
        let places = json!([data.len(), data.len() + some.len()]);
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": places}));
        data.extend_from_slice(some);
    };
    let tensors = all.iter().flat_map(|bytes| safetensors::read(bytes).unwrap().into_iter().map(move |it| (bytes, it)));
    for (bytes, tensor) in tensors {
        let all = &bytes[tensor.data.clone()];
        let Some((module, stack)) = tensor.name.split_once(".experts.") else {
            add(tensor.name.clone(), &tensor.dtype, tensor.shape.clone(), all);
            continue;
        };
        let &[experts, inputs, outputs] = tensor.shape.as_slice() else { panic!("{tensor:?}") };
        stacks += 1;
        let size = all.len() / (experts * inputs * outputs) as usize;
        let parts: &[(&str, u64)] = match stack {
            "gate_up_proj" => &[("gate_proj", 0), ("up_proj", 1)],
            _ => &[("down_proj", 0)],
        };
        let width = outputs / parts.len() as u64;
        for expert in 0..experts {
            for (part, which) in parts {
                let places = (0..width).flat_map(|output| (0..inputs).map(move |input| (output, input)));
                let element = |(output, input)| (expert * inputs + input) * outputs + which * width + output;
                let some: Vec<u8> =
                    places.flat_map(|place| all[element(place) as usize * size..][..size].to_vec()).collect();
                let name = format!("{module}.experts.{expert}.{part}.weight");
                add(name, &tensor.dtype, vec![width, inputs], &some);
            }
        }
    }
    let header = Value::Object(header).to_string();
    assert!(stacks > 0);
    folder.write(WEIGHTS, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat());
}

/// transformers saves the experts of Qwen 3.5 in FP8 as stacks, with scales of the blocks of each.
#[test]
fn stacks_of_experts_in_fp8() {
    const BLOCK: [u64; 2] = [24, 16];
    let folder = Folder::copy("qwen35moe", "packed-stacks");
    let plain = opened(&folder, None);
    let files = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: Vec<String> = files.filter(|file| file.ends_with(".safetensors")).collect();
    let all: Vec<Vec<u8>> = files.iter().map(|file| fs::read(folder.path(file)).unwrap()).collect();
    files.iter().for_each(|file| folder.remove(file));
    let _ = fs::remove_file(folder.path(INDEX));
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    let mut add = |name: String, dtype: &str, shape: &[u64], some: &[u8]| {
        let places = json!([data.len(), data.len() + some.len()]);
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": places}));
        data.extend_from_slice(some);
    };
    // Codes and scales that differ everywhere.
    let code = |i: u64| ((i * 37) % 0x7e) as u8 | ((i / 3 % 2) as u8) << 7;
    let scale = |i: u64| 0.01 * (1.0 + i as f32 / 7.0);
    let mut stacks = 0;
    for (bytes, tensor) in
        all.iter().flat_map(|file| safetensors::read(file).unwrap().into_iter().map(move |it| (file, it)))
    {
        if !tensor.name.ends_with("experts.gate_up_proj") {
            add(tensor.name, &tensor.dtype, &tensor.shape, &bytes[tensor.data]);
            continue;
        }
        stacks += 1;
        let &[experts, rows, columns] = tensor.shape.as_slice() else { panic!("{tensor:?}") };
        let codes: Vec<u8> = (0..experts * rows * columns).map(code).collect();
        let shape = [experts, rows.div_ceil(BLOCK[0]), columns.div_ceil(BLOCK[1])];
        let scales: Vec<u8> = (0..shape.iter().product()).flat_map(|i| scale(i).to_le_bytes()).collect();
        add(format!("{}_scale_inv", tensor.name), "F32", &shape, &scales);
        add(tensor.name, "F8_E4M3", &tensor.shape, &codes);
    }
    assert!(stacks > 0);
    let header = Value::Object(header).to_string();
    folder.write(WEIGHTS, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat());
    folder.set("quantization_config", json!({"quant_method": "fp8", "weight_block_size": BLOCK}));
    let file = opened(&folder, Some("F32"));
    for (name, half) in [("blk.0.ffn_gate_exps.weight", 0), ("blk.0.ffn_up_exps.weight", 1)] {
        let &[columns, rows, experts] = plain.tensor(name).unwrap().shape.as_slice() else { panic!("{name}") };
        let found = values(&file, file.tensor(name).unwrap());
        let blocks = [(2 * rows).div_ceil(BLOCK[0]), columns.div_ceil(BLOCK[1])];
        for (i, &found) in (0..).zip(&found) {
            let expert = i / (rows * columns);
            let row = i / columns % rows + half * rows;
            let column = i % columns;
            assert!(expert < experts);
            let block = (expert * blocks[0] + row / BLOCK[0]) * blocks[1] + column / BLOCK[1];
            let number = e4m3::decode(code((expert * 2 * rows + row) * columns + column));
            assert_eq!(found, scale(block) * number, "{name}: {i}");
        }
    }
}
