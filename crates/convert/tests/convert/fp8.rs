//! Folders in FP8 with a scale for each block or for each matrix, which `scripts/golden/fp8_folders.py` wrote: they have
//! the values of the numbers times their scales.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gristmill_conformance::golden;
use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertOptions, open_folder};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::GgufFile;
use gristmill_kernels::format::Format;
use serde_json::{Value, json};

use super::direct::open;
use super::folder::Folder;
use super::mlx::{WEIGHTS, values, with_weights};
use super::nmse;

const SOURCE: &str = "qwen3moe";

/// A scale for each block, and for each matrix.
const NAMES: [&str; 2] = [SOURCE, "qwen3moe-matrix"];

fn golden(name: &str, kind: &str) -> PathBuf {
    golden::models_folder().join("fp8").join(format!("{name}.{kind}"))
}

/// A copy of the folder with a scale for each block.
fn fp8(case: &str) -> Folder {
    named(SOURCE, case)
}

/// A copy of a folder.
fn named(name: &str, case: &str) -> Folder {
    let folder = with_weights(SOURCE, case, &golden(name, "safetensors"));
    let block = if name == SOURCE { json!([16, 24]) } else { Value::Null };
    let settings = json!({
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": block
    });
    folder.set("quantization_config", settings);
    folder
}

#[test]
fn values_are_the_numbers_times_their_scales() {
    NAMES.into_iter().for_each(values_of);
}

fn values_of(name: &str) {
    let folder = named(name, "fp8-values");
    let converted = folder.convert();
    let opened = open(&folder.0);
    let wanted = with_weights(SOURCE, "fp8-decoded", &golden(name, "decoded.safetensors")).convert();
    assert_eq!(converted.tensors().len(), wanted.tensors().len());
    for tensor in wanted.tensors() {
        let found = converted.tensor(&tensor.name).unwrap();
        assert_eq!((found.format, &found.shape), (tensor.format, &tensor.shape), "{}", tensor.name);
        assert!(values(&converted, &tensor.name) == values(&wanted, &tensor.name), "{}", tensor.name);
        let found = opened.tensor(&tensor.name).unwrap();
        if found.format == Format::FP8_64 {
            // Blocks of rows with one scale are not rounded.
            let mut exact = vec![f32::NAN; found.elements() as usize];
            found.format.decode(opened.load(found).unwrap().as_slice(), &mut exact).unwrap();
            let mut rounded = vec![0; 2 * exact.len()];
            Format::BF16.encode(&exact, &mut rounded).unwrap();
            assert!(name != SOURCE && rounded == wanted.data(tensor), "{}", tensor.name);
            continue;
        }
        assert_eq!(found.format, tensor.format, "{}", tensor.name);
        assert!(opened.load(found).unwrap().as_slice() == wanted.data(tensor), "{}", tensor.name);
    }
}

#[test]
fn other_formats_are_made_of_the_values_in_f32() {
    let folder = fp8("fp8-mix");
    let convert = |mix: &str| {
        let options = ConvertOptions { mix: Mix::named(mix), ..ConvertOptions::default() };
        open_folder(&folder.0, &options, 2).unwrap().0
    };
    let (exact, quantised) = (convert("F32"), convert("Q8_0"));
    let mut rounded = 0;
    for tensor in quantised.tensors().iter().filter(|tensor| tensor.format == Format::Q8_0) {
        let of = exact.load(exact.tensor(&tensor.name).unwrap()).unwrap();
        let floats: Vec<f32> = of.as_slice().as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
        let mut wanted = vec![0; tensor.bytes as usize];
        Format::Q8_0.encode(&floats, &mut wanted).unwrap();
        assert!(quantised.load(tensor).unwrap().as_slice() == wanted, "{}", tensor.name);
        rounded += floats.iter().filter(|x| x.to_bits() & 0xffff != 0).count();
    }
    assert!(rounded > 1000, "{rounded} values that BF16 lacks");
}

#[test]
fn logits_are_those_of_transformers_with_the_decoded_weights() {
    for name in NAMES {
        let logits = GgufFile::open(golden(name, "logits.gguf")).unwrap();
        let backend = Arc::new(Cpu::backend(Level::best(), 2).unwrap());
        let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
        // Files have the rounded weights.
        let folder = named(name, "fp8-logits");
        let file = if name == SOURCE { open(&folder.0) } else { folder.convert() };
        let model = Model::with_backend(file, backend, options).unwrap();
        let error = nmse(&Arc::new(model), &logits);
        // Also false for NaN.
        assert!(error <= 1e-6, "{name}: NMSE {error:.1e}");
    }
}

/// AutoFP8 has other names, and no size of blocks.
#[test]
fn other_programs_name_scales_of_matrices_otherwise() {
    let name = "qwen3moe-matrix";
    let wanted = named(name, "fp8-names").convert();
    let folder = named(name, "fp8-other-names");
    let renamed = |bytes: &mut Vec<u8>| {
        // The header keeps its length.
        for (from, to) in
            [("weight_scale_inv\":", "weight_scale\":    "), ("activation_scale\":", "input_scale\":     ")]
        {
            assert_eq!(from.len(), to.len());
            while let Some(at) = bytes.windows(from.len()).position(|part| part == from.as_bytes()) {
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        }
    };
    folder.bytes(WEIGHTS, renamed);
    folder.set("quantization_config", json!({"activation_scheme": "static", "quant_method": "fp8"}));
    let found = folder.convert();
    for tensor in wanted.tensors() {
        assert!(values(&found, &tensor.name) == values(&wanted, &tensor.name), "{}", tensor.name);
    }
}

#[track_caller]
fn refused(case: &str, change: impl FnOnce(&Folder), says: &[&str]) {
    let folder = fp8(case);
    change(&folder);
    folder.refused(says);
}

#[test]
fn damaged_folders_are_refused() {
    let set = |key: &'static str, value: Value| {
        move |folder: &Folder| folder.json("config.json", |config| config["quantization_config"][key] = value)
    };
    let size = "weight_block_size";
    refused("fp8-kind", set("fmt", json!("e5m2")), &["`fmt` is \"e5m2\"", "e4m3"]);
    let says = ["_proj.weight_scale_inv", "`weight_block_size` is missing", "has one scale"];
    refused("fp8-null", set(size, Value::Null), &says);
    let other = |folder: &Folder| {
        folder.json("config.json", |config| {
            config["quantization_config"].as_object_mut().unwrap().remove(size);
        })
    };
    refused("fp8-no-size", other, &says);
    for (case, sizes) in [("zero", json!([0, 16])), ("one", json!([16])), ("half", json!([16, 0.5]))] {
        refused(case, set(size, sizes), &["`weight_block_size` is", "as [128, 128]"]);
    }
    let module = "model.layers.0.self_attn.q_proj.weight";
    refused("fp8-other", set(size, json!([16, 16])), &["_proj.weight_scale_inv", "in blocks of 16 × 16"]);
    let none = |folder: &Folder| folder.set("quantization_config", Value::Null);
    refused("fp8-none", none, &["dtype F8_E4M3", "F32, F16, BF16"]);
    let scales = format!("{module}_scale_inv");
    let missing = |folder: &Folder| folder.header(WEIGHTS, &scales, &scales.replace("_inv", "_int"));
    refused("fp8-missing", missing, &[&scales, "is missing"]);
    // A number that is NaN is found when it is written.
    let folder = fp8("fp8-nan");
    folder.tensors(WEIGHTS, |name, _, bytes| {
        if name == module {
            bytes[5] = 0x7f;
        }
    });
    let path = folder.path("out.gguf");
    let error = folder.open().unwrap().write(&path, 1, &mut |_| std::ops::ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("`blk.0.attn_q.weight`: element 5 is NaN"), "{error}");
    assert!(!fs::exists(&path).unwrap());
}
