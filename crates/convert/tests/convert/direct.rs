//! Folders that run as they lie: they have the values, metadata and logits of what they are converted to.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use gristmill_conformance::simulated::Simulator;
use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertError, ConvertOptions, Converter, is_model_folder, open_folder};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::{LoadOptions, Model, Precision};
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_kernels::Backend;
use gristmill_kernels::format::{Format, nvfp4_scaled};

use super::folder::{FIRST, Folder};
use super::mlx::{FOLDERS, WEIGHTS, first_number, golden, quantised};
use super::{converted, nmse};
use gristmill_conformance::golden::{folders, folders_folder};

pub(crate) fn open(folder: &Path) -> GgufFile {
    let options = ConvertOptions { without_heads: true, ..ConvertOptions::default() };
    open_folder(folder, &options, 2).unwrap_or_else(|error| panic!("{folder:?}: {error}")).0
}

/// The bits of all values; of −0 those of 0, because MXFP4 and NVFP4 have one zero.
fn values(file: &GgufFile, tensor: &TensorInfo) -> Vec<u32> {
    let mut values = vec![f32::NAN; tensor.elements() as usize];
    tensor.format.decode(file.load(tensor).unwrap().as_slice(), &mut values).unwrap();
    values.into_iter().map(|value| (value + 0.0).to_bits()).collect()
}

/// The same tensors with the same values, and the same metadata except the type of the file.
pub(crate) fn same(name: &str, found: &GgufFile, wanted: &GgufFile) {
    assert_eq!(found.tensors().len(), wanted.tensors().len(), "{name}");
    for wanted_tensor in wanted.tensors() {
        let tensor = found.tensor(&wanted_tensor.name).unwrap_or_else(|| panic!("{name}: no {}", wanted_tensor.name));
        assert_eq!(tensor.shape, wanted_tensor.shape, "{name}: {}", tensor.name);
        assert_eq!(found.is_made(tensor), found.data(tensor).is_empty(), "{name}: {}", tensor.name);
        assert!(values(found, tensor) == values(wanted, wanted_tensor), "{name}: {}", tensor.name);
    }
    let pairs = |file: &GgufFile| {
        let not = ["general.name", "general.file_type", "general.quantization_version"];
        // Files have no flags of added tokens.
        let is_compared = |key: &str| !not.contains(&key) && !key.starts_with("gristmill.added_tokens.");
        let pairs = file.metadata().iter().filter(|(key, _)| is_compared(key));
        pairs.map(|(key, value)| format!("{key} = {value:?}")).collect::<Vec<_>>()
    };
    assert_eq!(pairs(found), pairs(wanted), "{name}");
}

#[test]
fn every_published_folder_is_what_it_is_converted_to() {
    let (mut mapped, mut made) = (0, 0);
    for name in folders() {
        let folder = folders_folder().join(name);
        assert!(is_model_folder(&folder));
        let file = open(&folder);
        assert!(!file.is_gguf() && file.paths().count() > 0, "{name}");
        same(name, &file, &converted("direct", name, None));
        let is_made = |tensor: &&TensorInfo| file.is_made(tensor);
        made += file.tensors().iter().filter(is_made).count();
        mapped += file.tensors().iter().filter(|tensor| !file.is_made(tensor)).count();
    }
    assert!(mapped > 0 && made > 0, "{mapped} {made}");
}

#[test]
fn folders_of_mlx_have_the_values_that_they_are_converted_to() {
    for (name, source) in FOLDERS {
        let folder = quantised(name, source, "direct");
        same(name, &open(&folder.0), &folder.convert());
    }
}

#[test]
fn codes_have_the_smallest_formats_that_hold_them() {
    let folder = quantised("llama3-wide", "llama3", "direct-formats");
    let format = |file: &GgufFile, name: &str| file.tensor(name).unwrap().format;
    let file = open(&folder.0);
    for (name, expected) in [
        ("token_embd.weight", Format::AFFINE8_64),
        ("output.weight", Format::Q4_1),
        ("blk.0.attn_q.weight", Format::AFFINE4_64),
        ("blk.0.attn_k.weight", Format::Q5_1),
        ("blk.0.attn_v.weight", Format::AFFINE8_64),
        ("blk.1.attn_output.weight", Format::AFFINE4_64),
        ("blk.0.ffn_up.weight", Format::AFFINE8_32),
        ("blk.1.ffn_up.weight", Format::AFFINE8_64),
        ("blk.1.ffn_down.weight", Format::AFFINE4_64),
        ("blk.1.ffn_norm.weight", Format::F32),
    ] {
        assert_eq!(format(&file, name), expected, "{name}");
    }
    // 2^100, which F16 lacks, for all of the tensor.
    first_number(&folder, "model.layers.0.mlp.down_proj.scales", 0x7180);
    let file = open(&folder.0);
    assert_eq!(format(&file, "blk.0.ffn_down.weight"), Format::AFFINE4_32);
    same("llama3-wide", &file, &folder.convert());
    let floats = open(&quantised("llama3-floats", "llama3", "direct-floats").0);
    for (name, expected) in [
        ("token_embd.weight", Format::NVFP4),
        ("output.weight", Format::AFFINE8_64),
        ("blk.0.attn_q.weight", Format::NVFP4),
        ("blk.0.attn_k.weight", Format::MXFP4),
        ("blk.1.attn_v.weight", Format::BF16),
        ("blk.1.ffn_gate.weight", Format::MXFP4),
        ("blk.1.ffn_down.weight", Format::BF16),
    ] {
        assert_eq!(format(&floats, name), expected, "{name}");
    }
    // Rows of 32 are no whole blocks of 64.
    let narrow = open(&quantised("llama3-mixed", "llama3", "direct-narrow").0);
    assert_eq!(format(&narrow, "blk.0.attn_v.weight"), Format::F32);
}

#[test]
fn logits_of_mlx_are_those_of_transformers_also_on_simulated_gpus() {
    let mut backends: Vec<(&str, Backend)> = Vec::new();
    for level in Level::available() {
        backends.push((level.name(), Cpu::backend(level, 2).unwrap()));
    }
    let fast = gpu_sim::Mode::Fast;
    backends.push(("CUDA", Simulator::cuda(1, fast).unwrap()));
    backends.push(("Metal", Simulator::metal(1, fast).unwrap()));
    for (backend_name, backend) in backends {
        let backend = Arc::new(backend);
        for (name, source) in FOLDERS {
            let logits = GgufFile::open(golden(&format!("{name}.logits.gguf"))).unwrap();
            let file = open(&quantised(name, source, "direct-logits").0);
            let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
            let model = Arc::new(Model::with_backend(file, backend.clone(), options).unwrap());
            let error = nmse(&model, &logits);
            println!("{name} {backend_name}: {error:.1e}");
            // Also false for NaN.
            assert!(error <= 1e-6, "{name} on {backend_name}: NMSE {error:.1e}");
        }
    }
}

#[test]
fn a_folder_may_be_quantised_when_it_is_opened() {
    let options = ConvertOptions { mix: Some(Mix::parse("Q8_0").unwrap()), ..ConvertOptions::default() };
    let (file, _) = open_folder(&folders_folder().join("llama3"), &options, 2).unwrap();
    let wanted = converted("direct-mix", "llama3", Some("q8_0"));
    for tensor in wanted.tensors() {
        let found = file.tensor(&tensor.name).unwrap();
        assert_eq!(found.format, tensor.format, "{}", tensor.name);
        assert!(file.load(found).unwrap().as_slice() == wanted.data(tensor), "{}", tensor.name);
    }
    assert_eq!(file.metadata().value("general.file_type"), wanted.metadata().value("general.file_type"));
    // Weights that MLX quantised are not quantised again.
    let folder = quantised("llama3-mixed", "llama3", "direct-twice");
    let error = open_folder(&folder.0, &options, 1).expect_err("it is refused").to_string();
    assert!(error.contains("is quantised, and") && error.contains("leave the format out"), "{error}");
}

/// A copy of a golden folder whose experts have 64 inner columns, a block of NVFP4: the same ones several times. Experts of
/// `qwen3moe` are tensors of their own, experts of `llama4` a stack.
fn with_wide_experts(name: &str) -> Folder {
    let folder = Folder::copy(name, "direct-wide");
    let files = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for file in files.filter(|file| file.ends_with(".safetensors")).collect::<Vec<_>>() {
        folder.tensors(&file, |name, shape, data| {
            let bytes = data.len() / shape.iter().product::<usize>();
            // The dimension that grows, how often it has its elements, and how many of these are repeated at once.
            let (dimension, times, elements) = match (name.contains(".experts."), shape.len()) {
                (true, 2) if name.contains("down") => (1, 2, 32),
                (true, 2) => (0, 2, 32 * 32),
                (true, 3) if name.contains("down") => (1, 4, 16 * 32),
                (true, 3) => (2, 4, 16),
                _ if name.contains(".shared_expert.down") => (1, 4, 16),
                _ if name.contains(".shared_expert.") => (0, 4, 16 * 32),
                _ => return,
            };
            shape[dimension] *= times;
            *data = data.chunks(elements * bytes).flat_map(|part| part.repeat(times)).collect();
        });
    }
    folder.json("config.json", |config| match config.get_mut("text_config") {
        Some(text) => text["intermediate_size"] = 64.into(),
        None => config["moe_intermediate_size"] = 64.into(),
    });
    folder
}

/// Σ (weight · scale − unquantised weight)² / Σ (unquantised weight)².
fn nvfp4_error(file: &GgufFile, unquantised: &GgufFile, name: &str) -> f64 {
    let decoded = |file: &GgufFile, name: String| {
        let tensor = file.tensor(&name).unwrap();
        let mut values = vec![0.0; tensor.elements() as usize];
        tensor.format.decode(file.load(tensor).unwrap().as_slice(), &mut values).unwrap();
        values
    };
    let [found, scales] = ["weight", "scale"].map(|kind| decoded(file, format!("{name}.{kind}")));
    let wanted = decoded(unquantised, format!("{name}.weight"));
    let each = found.len() / scales.len();
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = (0..found.len()).map(|i| square(found[i] * scales[i / each] - wanted[i])).sum();
    error / wanted.iter().map(|value| square(*value)).sum::<f64>()
}

#[test]
fn nvfp4_has_the_scales_of_files_in_its_blocks() {
    let mix = Some(Mix::parse("NVFP4").unwrap());
    let options = ConvertOptions { mix, without_heads: true, ..ConvertOptions::default() };
    let mut scaled = 0;
    for name in ["qwen3moe", "llama4"] {
        let folder = with_wide_experts(name);
        let (file, _) = open_folder(&folder.0, &options, 2).unwrap();
        let path = folder.path("nvfp4.gguf");
        let converter = Converter::new(&folder.0, &options).unwrap();
        converter.write(&path, 2, &mut |_| ControlFlow::Continue(())).unwrap();
        let wanted = GgufFile::open(&path).unwrap();
        assert_eq!(wanted.file_bytes(), converter.file_bytes());
        for tensor in wanted.tensors().iter().filter(|tensor| !tensor.name.ends_with(".scale")) {
            let blocks = wanted.data(tensor);
            let (format, bytes) = match wanted.tensor(&tensor.name.replace(".weight", ".scale")) {
                Some(scales) if tensor.format == Format::NVFP4 => {
                    let count = scales.elements() as usize;
                    assert_eq!(count as u64, tensor.shape.iter().skip(2).product::<u64>(), "{}", tensor.name);
                    let mut values = vec![0.0; count];
                    Format::F32.decode(wanted.data(scales), &mut values).unwrap();
                    let mut bytes = Vec::new();
                    for (matrix, value) in blocks.chunks(blocks.len() / count).zip(values) {
                        nvfp4_scaled::put_blocks(matrix, value, &mut bytes);
                    }
                    scaled += count;
                    (Format::NVFP4_SCALED, bytes)
                }
                _ => (tensor.format, blocks.to_vec()),
            };
            let found = file.tensor(&tensor.name).unwrap();
            assert_eq!(found.format, format, "{name}: {}", tensor.name);
            assert!(file.load(found).unwrap().as_slice() == bytes, "{name}: {}", tensor.name);
        }
        let error = nvfp4_error(&wanted, &open(&folder.0), "blk.1.ffn_down_exps");
        assert!((1e-4..1e-2).contains(&error), "{name}: {error}");
    }
    assert!(scaled >= 16, "{scaled}");
}

#[test]
fn fingerprints_tell_folders_apart() {
    let folder = quantised("llama3-wide", "llama3", "direct-print");
    let first = open(&folder.0).fingerprint();
    assert_eq!(first, open(&folder.0).fingerprint());
    first_number(&folder, "model.layers.0.mlp.down_proj.scales", 0x3c00);
    assert_ne!(first, open(&folder.0).fingerprint());
}

#[track_caller]
fn refused(folder: &Folder, says: &[&str]) {
    let error: ConvertError = open_folder(&folder.0, &ConvertOptions::default(), 1).expect_err("it is refused");
    for text in says {
        assert!(error.to_string().contains(text), "{text:?} is not in: {error}");
    }
}

#[test]
fn damaged_folders_are_refused() {
    let (scales, biases) = ("model.layers.0.mlp.down_proj.scales", "model.layers.0.mlp.down_proj.biases");
    for (tensor, number) in [(scales, 0x7fc0), (biases, 0x7f80)] {
        let folder = quantised("llama3-wide", "llama3", "direct-nan");
        first_number(&folder, tensor, number);
        refused(&folder, &[tensor, "not finite", "fetch it again"]);
    }
    let router = quantised("qwen3moe-4bit", "qwen3moe", "direct-router");
    first_number(&router, "model.layers.0.mlp.gate.scales", 0x7fc0);
    refused(&router, &["model.layers.0.mlp.gate.scales", "not finite"]);
    let folder = quantised("llama3-wide", "llama3", "direct-dtype");
    folder.header(WEIGHTS, "\"U32\"", "\"I32\"");
    refused(&folder, &["config.json", "the file has floats"]);
    let folder = quantised("llama3-wide", "llama3", "direct-scales");
    folder.tensors(WEIGHTS, |name, shape, _| {
        if name == scales {
            // The same bytes of another type would be half as many numbers.
            shape[1] /= 2;
        }
    });
    refused(&folder, &["model.safetensors", scales, "does not match its"]);
    let folder = quantised("llama3-wide", "llama3", "direct-cut");
    folder.bytes(WEIGHTS, |bytes| bytes.truncate(bytes.len() - 1));
    refused(&folder, &["incomplete or damaged"]);
    let folder = quantised("llama3-wide", "llama3", "direct-wide");
    folder.json("config.json", |config| config["quantization"]["group_size"] = 48.into());
    refused(&folder, &["`group_size` is 48"]);
    let folder = quantised("llama3-wide", "llama3", "direct-many");
    // 10 MB of modules that the model does not have.
    folder.json("config.json", |config| {
        for module in 0..100_000 {
            config["quantization"][format!("model.layers.{module}.mlp.no_module_{module}.and_its_long_name")] =
                serde_json::json!({"bits": 4, "group_size": 64});
        }
    });
    assert!(open(&folder.0).tensors().len() > 20);
    let folder = Folder::copy("qwen3moe", "direct-shard");
    folder.remove(FIRST);
    refused(&folder, &[FIRST, "is missing"]);
}
