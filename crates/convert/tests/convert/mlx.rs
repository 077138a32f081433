//! Folders quantised by MLX, which `scripts/golden/mlx_folders.py` wrote: they become the values that MLX decodes.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gristmill_conformance::golden;
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::format::Format;
use serde_json::{Value, json};

use super::folder::{FIRST, Folder, INDEX};

pub(crate) const WEIGHTS: &str = "model.safetensors";

/// The folders, and those of `golden/convert` that they were made of.
pub(crate) const FOLDERS: [(&str, &str); 5] = [
    ("qwen3moe-4bit", "qwen3moe"),
    ("llama3-mixed", "llama3"),
    ("llama3-wide", "llama3"),
    ("qwen3moe-mxfp4", "qwen3moe"),
    ("llama3-floats", "llama3"),
];

pub(crate) fn golden(name: &str) -> PathBuf {
    golden::models_folder().join("mlx").join(name)
}

/// The weights of a folder as MLX decodes them; wider models have none.
fn decoded(name: &str) -> PathBuf {
    golden(&format!("{name}.decoded.safetensors"))
}

/// A folder of `golden/convert` with only the weights of this file.
pub(crate) fn with_weights(source: &str, case: &str, weights: &Path) -> Folder {
    let folder = Folder::copy(source, case);
    for file in fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        if file.ends_with(".safetensors") || file == INDEX {
            folder.remove(&file);
        }
    }
    assert!(!folder.path(FIRST).exists());
    folder.write(WEIGHTS, fs::read(weights).unwrap());
    folder
}

pub(crate) fn quantised(name: &str, source: &str, case: &str) -> Folder {
    let folder = with_weights(source, case, &golden(name).join(WEIGHTS));
    for file in ["config.json", INDEX] {
        folder.write(file, fs::read(golden(name).join(file)).unwrap());
    }
    folder
}

/// The bits of all values; of −0 those of 0, because MXFP4 and NVFP4 have one zero.
pub(crate) fn values(file: &GgufFile, name: &str) -> Vec<u32> {
    let tensor = file.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    let mut values = vec![f32::NAN; tensor.elements() as usize];
    tensor.format.decode(file.data(tensor), &mut values).unwrap();
    values.into_iter().map(|value| (value + 0.0).to_bits()).collect()
}

#[test]
fn values_are_those_that_mlx_decodes() {
    for (name, source) in FOLDERS.into_iter().filter(|(name, _)| decoded(name).exists()) {
        let found = quantised(name, source, "mlx").convert();
        let wanted = with_weights(source, "mlx-decoded", &decoded(name)).convert();
        assert_eq!(found.tensors().len(), wanted.tensors().len());
        for tensor in wanted.tensors() {
            assert_eq!(found.tensor(&tensor.name).unwrap().shape, tensor.shape, "{name}: {}", tensor.name);
            assert!(values(&found, &tensor.name) == values(&wanted, &tensor.name), "{name}: {}", tensor.name);
        }
    }
}

#[test]
fn formats_are_the_smallest_that_hold_all_values() {
    let format = |file: &GgufFile, name: &str| file.tensor(name).unwrap().format;
    let file = quantised("qwen3moe-4bit", "qwen3moe", "formats").convert();
    for name in ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_down_exps.weight", "output.weight"] {
        assert_eq!(format(&file, name), Format::Q4_1, "{name}");
    }
    assert_eq!(format(&file, "blk.0.ffn_gate_inp.weight"), Format::F32);
    let mixed = quantised("llama3-mixed", "llama3", "formats").convert();
    let expected =
        [("attn_q", Format::F32), ("attn_k", Format::Q5_1), ("attn_v", Format::F32), ("ffn_down", Format::Q4_1)];
    for (name, expected) in expected {
        assert_eq!(format(&mixed, &format!("blk.1.{name}.weight")), expected, "{name}");
    }
}

#[test]
fn codes_of_floats_keep_their_values() {
    let format = |file: &GgufFile, name: &str| file.tensor(name).unwrap().format;
    let file = quantised("llama3-floats", "llama3", "floats").convert();
    for (name, expected) in
        [("attn_k", Format::MXFP4), ("attn_q", Format::BF16), ("attn_v", Format::BF16), ("ffn_gate", Format::MXFP4)]
    {
        assert_eq!(format(&file, &format!("blk.1.{name}.weight")), expected, "{name}");
    }
    // The scale 2^(2 − 127) makes floats that BF16 lacks.
    let folder = quantised("llama3-floats", "llama3", "floats-small");
    let scales = "model.layers.0.self_attn.v_proj.scales";
    first_byte(&folder, scales, 2);
    assert_eq!(format(&folder.convert(), "blk.0.attn_v.weight"), Format::F32);
    for (scales, nan) in [(scales, 255), ("model.embed_tokens.scales", 0x7f), ("model.embed_tokens.scales", 0xff)] {
        let folder = quantised("llama3-floats", "llama3", "floats-nan");
        first_byte(&folder, scales, nan);
        folder.refused(&[scales, "not finite", "fetch it again"]);
    }
}

#[test]
fn routers_are_f32_whatever_their_codes() {
    let folder = quantised("qwen3moe-4bit", "qwen3moe", "router");
    // The same bytes as twice as many codes of half the width do not fit the scales.
    let router = "model.layers.0.mlp.gate";
    folder.json("config.json", |config| config["quantization"][router]["bits"] = json!(4));
    folder.refused(&["model.layers.0.mlp.gate.scales", "64 columns in groups of 32"]);
    // With twice as many columns of scales they would, but the model has other rows.
    folder.tensors(WEIGHTS, |name, shape, bytes| {
        if name == format!("{router}.scales") || name == format!("{router}.biases") {
            shape[1] *= 2;
            bytes.extend(bytes.clone());
        }
    });
    folder.refused(&["model.layers.0.mlp.gate.weight (blk.0.ffn_gate_inp.weight)", "[4, 64]"]);
}

/// Replaces the first bytes of this tensor.
fn first_bytes(folder: &Folder, tensor: &str, first: &[u8]) {
    let mut changed = 0;
    folder.tensors(WEIGHTS, |name, _, bytes| {
        if name == tensor {
            bytes[..first.len()].copy_from_slice(first);
            changed += 1;
        }
    });
    assert_eq!(changed, 1);
}

fn first_byte(folder: &Folder, tensor: &str, byte: u8) {
    first_bytes(folder, tensor, &[byte]);
}

/// Replaces the first number of this tensor, in BF16.
pub(crate) fn first_number(folder: &Folder, tensor: &str, number: u16) {
    first_bytes(folder, tensor, &number.to_le_bytes());
}

#[test]
fn scales_that_f16_lacks() {
    // 2^100, and the lowest power of two with a neighbour in BF16 that F16 lacks.
    for number in [0x7180, 0x3301] {
        let folder = quantised("qwen3moe-4bit", "qwen3moe", "f16");
        first_number(&folder, "model.layers.0.self_attn.q_proj.scales", number);
        let file = folder.convert();
        assert_eq!(file.tensor("blk.0.attn_q.weight").unwrap().format, Format::F32);
        assert_eq!(file.tensor("blk.0.attn_k.weight").unwrap().format, Format::Q4_1);
    }
    for (tensor, number) in [("scales", 0x7fc0), ("biases", 0x7f80)] {
        let folder = quantised("qwen3moe-4bit", "qwen3moe", "nan");
        first_number(&folder, &format!("model.layers.0.self_attn.q_proj.{tensor}"), number);
        let path = folder.path("out.gguf");
        let error = folder.open().unwrap().write(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains("blk.0.attn_q.weight"), "{error}");
        assert!(!path.exists());
    }
}

#[track_caller]
fn config_case(case: &str, change: impl FnOnce(&mut Value), says: &[&str]) {
    let folder = quantised("qwen3moe-4bit", "qwen3moe", case);
    folder.json("config.json", change);
    folder.refused(says);
}

#[test]
fn settings_that_are_refused() {
    let set = |key: &'static str, value: Value| move |config: &mut Value| config["quantization"][key] = value;
    config_case("no-settings", |c| drop(c.as_object_mut().unwrap().remove("quantization")), &["dtype U32"]);
    config_case("null", |c| c["quantization"] = Value::Null, &["`quantization` is null", "an object"]);
    config_case("bits", set("bits", json!(7)), &["`bits` is 7", "2, 3, 4, 5, 6, 8"]);
    config_case("bits-0", set("bits", json!(0)), &["`bits` is 0"]);
    config_case("bits-text", set("bits", json!("4")), &["`bits` is \"4\" (a string)"]);
    config_case("no-bits", |c| drop(c["quantization"].as_object_mut().unwrap().remove("bits")), &["has no `bits`"]);
    config_case("group", set("group_size", json!(48)), &["`group_size` is 48", "32, 64, 128"]);
    let module = "model.layers.0.self_attn.q_proj";
    let wider = set(module, json!({"bits": 4, "group_size": 64}));
    let floats = set(module, json!({"bits": 4, "group_size": 32, "mode": "mxfp4"}));
    config_case("mxfp4", floats, &["q_proj.scales", "dtype BF16", "U8"]);
    config_case("groups", wider, &["scales", "32 columns in groups of 64"]);
    config_case("mode", set("mode", json!("int4")), &["`mode` is \"int4\"", "affine, mxfp4, mxfp8 or nvfp4"]);
    config_case("nvfp4", set("mode", json!("nvfp4")), &["`group_size` is 32", "16, as nvfp4 has it"]);
    config_case("mxfp8", set("mode", json!("mxfp8")), &["`bits` is 4", "8, as mxfp8 has it"]);
    config_case("false", set(module, json!(false)), &[module, "is false", "the file has codes"]);
    config_case("number", set(module, json!(8)), &[module, "is 8 (a number)", "an object"]);
    let norm = "model.norm";
    config_case("float", set(norm, json!({"bits": 4, "group_size": 32})), &[norm, "the file has floats"]);
    let awq = |c: &mut Value| c["quantization_config"] = json!({"quant_method": "awq"});
    config_case("awq", awq, &["`quant_method` is \"awq\"", "codes of MLX"]);
    let other = Folder::copy("hunyuan-moe", "mlx-family");
    other.set("quantization", json!({"bits": 4, "group_size": 32}));
    other.refused(&["`model_type` is \"hunyuan_v1_moe\"", "qwen2, qwen2_moe, qwen3, ", "quantised by MLX"]);
}

#[test]
fn tensors_that_are_missing_or_of_another_kind() {
    let folder = quantised("qwen3moe-4bit", "qwen3moe", "missing");
    folder.remove(INDEX);
    let scales = "model.layers.0.mlp.switch_mlp.up_proj.scales";
    folder.header(WEIGHTS, scales, &scales.replace("scales", "scalas"));
    folder.refused(&[scales, "is missing"]);
    let folder = quantised("qwen3moe-4bit", "qwen3moe", "flat");
    folder.tensors(WEIGHTS, |name, shape, _| {
        if name == scales {
            *shape = vec![shape.iter().product()];
        }
    });
    folder.refused(&[scales, "32 columns in groups of 32"]);
    let folder = quantised("qwen3moe-4bit", "qwen3moe", "vector");
    folder.tensors(WEIGHTS, |name, shape, _| {
        if name.starts_with("model.layers.0.self_attn.q_proj.") {
            *shape = vec![shape.iter().product()];
        }
    });
    folder.refused(&["model.layers.0.self_attn.q_proj.weight", "which is no matrix in codes of 4 bits"]);
    let folder = quantised("qwen3moe-4bit", "qwen3moe", "half-groups");
    folder.tensors(WEIGHTS, |name, shape, bytes| {
        if name == "model.layers.0.self_attn.q_proj.weight" {
            bytes.extend_from_within(..bytes.len() / 2);
            shape[1] += shape[1] / 2;
        }
    });
    folder.refused(&["model.layers.0.self_attn.q_proj.weight", "whose 48 columns are not whole groups of 32"]);
}
