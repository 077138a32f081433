//! Folders written as MLX quantises them, against those that mlx-lm made of the same models.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use gristmill_convert::{ConvertError, MlxQuantizer, MlxWidths};
use gristmill_files::gguf::{GgufFile, TensorInfo};
use gristmill_files::safetensors;
use serde_json::{Value, json};

use super::direct::{open, same};
use super::folder::{FIRST, Folder};
use super::mlx::{WEIGHTS, golden, quantised};
use super::mlx_written::same_logits;
use gristmill_conformance::golden::{folders, folders_folder};

/// A tensor of a folder: its type, shape and data.
type Stored = (String, Vec<u64>, Vec<u8>);

fn weights(folder: &Path) -> BTreeMap<String, Stored> {
    let file = fs::read(folder.join(WEIGHTS)).unwrap();
    let tensors = safetensors::read(&file).unwrap().into_iter();
    tensors.map(|t| (t.name, (t.dtype, t.shape, file[t.data].to_vec()))).collect()
}

pub(crate) fn write(folder: &Folder, widths: &str) -> Result<Folder, ConvertError> {
    let out = folder.path("mlx");
    MlxQuantizer::new(&folder.0, MlxWidths::parse(widths)?)?.write(&out, 2, &mut |_| ControlFlow::Continue(()))?;
    Ok(Folder(out))
}

#[test]
fn tensors_are_those_of_mlx_lm() {
    let folder = Folder::copy("qwen3moe", "mlx-write");
    let found = weights(&write(&folder, "4bit:32").unwrap().0);
    let wanted = weights(&golden("qwen3moe-4bit"));
    // There these have 8 bits.
    let other = |name: &str| [".mlp.gate.", ".switch_mlp.gate_proj."].iter().any(|part| name.contains(part));
    let mut codes = 0;
    for (name, wanted) in wanted.iter().filter(|(name, _)| !other(name)) {
        assert!(found.get(name) == Some(wanted), "{name}");
        codes += usize::from(wanted.0 == "U32");
    }
    assert_eq!(codes, 2 + 2 * 6);
    let names: Vec<&String> =
        wanted.keys().filter(|name| !name.contains(".mlp.gate.") || name.ends_with("weight")).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), names);
    // Routers stay as they are.
    let (dtype, shape, _) = &found["model.layers.0.mlp.gate.weight"];
    assert_eq!((dtype.as_str(), shape.as_slice()), ("BF16", &[4, 32][..]));
}

/// Families whose tensors MLX has in another form, or which it does not know.
const REFUSED: &[&str] = &[
    "afmoe",
    "bailingmoe2",
    "bailingmoe3",
    "bamba",
    "cohere2moe",
    "deepseek2",
    "deepseek2-lite",
    "dots1",
    "ernie4_5",
    "ernie4_5-moe",
    "exaone",
    "exaone-moe",
    "falcon-h1",
    "gemma",
    "gemma4",
    "gemma4-e",
    "gemma4-moe",
    "glm4-lite",
    "gpt-oss",
    "gpt-oss-dense",
    "glm4v",
    "glm4v-moe",
    "granitehybrid",
    "granitehybrid-dense",
    "granitemoe",
    "hunyuan-dense",
    "hunyuan-moe",
    "hy_v3",
    "internlm2",
    "internlm3",
    "jamba",
    "jamba-dense",
    "kimi-linear",
    "laguna",
    "lfm2",
    "lfm2moe",
    "llama4",
    "mamba2",
    "mellum",
    "mimo2",
    "minicpm",
    "minimax-m3",
    "mistral3",
    "mistral4",
    "muse-glimmer",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen2vl",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen3vl",
    "qwen3vlmoe",
    "step35",
    "youtu",
];

#[test]
fn folders_of_other_families_are_refused() {
    for name in folders() {
        let opened = MlxQuantizer::new(&folders_folder().join(name), MlxWidths::parse("8bit:32").unwrap());
        let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error.contains("is not supported"), REFUSED.contains(&name), "{name}: {error}");
    }
}

/// The values of a tensor.
fn values(file: &GgufFile, tensor: &TensorInfo) -> Vec<f32> {
    let mut values = vec![f32::NAN; tensor.elements() as usize];
    tensor.format.decode(file.load(tensor).unwrap().as_slice(), &mut values).unwrap();
    values
}

/// Name, shape (innermost dimension first) and values.
type Named = (String, Vec<u64>, Vec<f32>);

/// The tensors of a model, but those whose names contain one of these.
fn tensors_but(file: &GgufFile, left_out: &[&str]) -> Vec<Named> {
    let kept = file.tensors().iter().filter(|tensor| !left_out.iter().any(|part| tensor.name.contains(part)));
    kept.map(|tensor| (tensor.name.clone(), tensor.shape.clone(), values(file, tensor))).collect()
}

/// Fails unless a folder has these tensors and no others, with values as near as codes of 8 bits.
fn near(name: &str, found: &GgufFile, wanted: &[Named]) {
    assert_eq!(found.tensors().len(), wanted.len(), "{name}");
    for (wanted_name, shape, wanted) in wanted {
        let tensor = found.tensor(wanted_name).unwrap_or_else(|| panic!("{name}: no {wanted_name}"));
        assert_eq!(&tensor.shape, shape, "{name}: {wanted_name}");
        let found = values(found, tensor);
        let error: f32 = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).powi(2)).sum();
        let nmse = error / wanted.iter().map(|wanted| wanted.powi(2)).sum::<f32>().max(f32::MIN_POSITIVE);
        // Normal values have 2e-5, and no tensor is another's.
        assert!(nmse < 1e-4, "{name}: {} has {nmse:.1e}", tensor.name);
    }
}

#[test]
fn written_folders_are_the_same_models() {
    for name in folders().into_iter().filter(|name| !REFUSED.contains(name)) {
        let folder = Folder::copy(name, "mlx-open");
        let written = write(&folder, "8bit:32").unwrap_or_else(|error| panic!("{name}: {error}"));
        near(name, &open(&written.0), &tensors_but(&open(&folder.0), &[]));
        let config: Value = serde_json::from_slice(&fs::read(written.path("config.json")).unwrap()).unwrap();
        let expected = json!({"bits": 8, "group_size": 32, "mode": "affine"});
        assert_eq!((&config["quantization"], &config["quantization_config"]), (&expected, &expected));
        for file in ["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "generation_config.json"] {
            assert_eq!(fs::read(written.path(file)).ok(), fs::read(folder.path(file)).ok(), "{name}: {file}");
        }
    }
}

/// Golden folders of families whose tensors MLX has in another form, and the tensors that mlx-lm leaves out.
const CHANGED: &[(&str, &[&str])] = &[
    ("afmoe", &[]),
    ("dots1", &[]),
    ("ernie4_5-moe", &["exp_probs_b"]),
    ("exaone-moe", &[]),
    ("gemma4", &[]),
    ("gemma4-e", &[]),
    ("gemma4-moe", &[]),
    ("gpt-oss", &[]),
    ("granitemoe", &["_shexp"]),
    ("laguna", &[]),
    ("lfm2", &[]),
    ("lfm2moe", &[]),
    ("llama4", &[]),
    ("mimo2", &[]),
    ("minimax-m3", &[]),
    ("mistral3", &[]),
    ("qwen35", &[]),
    ("qwen35moe", &[]),
    ("qwen3next", &[]),
    ("step35", &[]),
];

/// Families for which mlx-lm assumes that the total width of the heads is the model's; in the golden folder, heads are
/// wider.
const NARROWED: &[&str] = &["bailingmoe2"];

/// Families whose golden models mlx-lm 0.32.2 computes otherwise than transformers, whose logits gristmill has on the
/// unquantised folders: NMSE 7.2e-3, 2.1e-6, 1.5e-2 and 4.3e-3.
const OTHER_LOGITS: &[&str] = &["ernie4_5-moe", "gemma4-e", "gpt-oss", "llama4"];

/// Cuts tensors with the gate and the up matrix of each expert in two, as MLX has them.
fn cut(tensors: Vec<Named>) -> Vec<Named> {
    let cut = |(name, shape, values): Named| {
        let Some((start, end)) = name.split_once("gate_up_exps") else { return vec![(name, shape, values)] };
        let columns = shape[0];
        let rows = shape[1] / 2;
        let halves: Vec<&[f32]> = values.chunks((columns * rows) as usize).collect();
        let half = |part: &str, which: usize| {
            let values = halves.iter().skip(which).step_by(2).copied().flatten().copied().collect();
            (format!("{start}{part}_exps{end}"), vec![columns, rows, shape[2]], values)
        };
        vec![half("gate", 0), half("up", 1)]
    };
    tensors.into_iter().flat_map(cut).collect()
}

#[test]
fn folders_of_families_that_mlx_changes_are_the_same_models() {
    for (source, left_out) in CHANGED {
        let folder = quantised(&format!("{source}-8bit"), source, "mlx-changed");
        let wanted = tensors_but(&open(&folders_folder().join(source)), left_out);
        near(source, &open(&folder.0), &cut(wanted));
        same(source, &open(&folder.0), &folder.convert());
    }
}

#[test]
fn mlx_lm_computes_the_same_logits_of_families_that_it_changes() {
    let names = CHANGED.iter().map(|(source, _)| *source).filter(|source| !OTHER_LOGITS.contains(source));
    let same = |source: &&str| {
        let name = format!("{source}-8bit");
        same_logits(&name, &quantised(&name, source, "mlx-logits").0, &name)
    };
    let others: Vec<_> = names.chain(NARROWED.iter().copied()).filter(|source| !same(source)).collect();
    assert!(others.is_empty(), "not the logits of mlx-lm: {others:?}");
}

#[track_caller]
fn refused(result: Result<Folder, ConvertError>, says: &[&str]) {
    let error = result.err().expect("it is refused").to_string();
    assert!(says.iter().all(|text| error.contains(text)), "{error}");
}

#[test]
fn a_refusal_leaves_no_file() {
    let folder = Folder::copy("llama3", "mlx-refused");
    let files = || fs::read_dir(&folder.0).unwrap().count();
    let before = files();
    for widths in ["4", "4bits", "7bit:64", "4bit:48", "4bit:", "bit"] {
        refused(write(&folder, widths), &[&format!("`{widths}`"), "as 4bit:64"]);
    }
    let mut broken = Folder::copy("llama3", "mlx-nan");
    broken.tensors(FIRST, |name, _, bytes| {
        if name.ends_with("_proj.weight") {
            bytes[2..4].copy_from_slice(&0x7f80_u16.to_le_bytes());
        }
    });
    refused(write(&broken, "4bit:32"), &["_proj.weight", "not finite"]);
    assert!(!broken.path("mlx").exists() && fs::read_dir(&broken.0).unwrap().count() == before);
    broken = Folder::copy("llama3", "mlx-stop");
    let quantizer = MlxQuantizer::new(&broken.0, MlxWidths::parse("4bit:32").unwrap()).unwrap();
    let stopped = quantizer.write(&broken.path("mlx"), 1, &mut |_| ControlFlow::Break(()));
    assert!(stopped.unwrap_err().to_string().contains("stopped; nothing was written"));
    assert_eq!(fs::read_dir(&broken.0).unwrap().count(), before);

    assert_eq!(files(), before);
    let written = write(&folder, "4bit:32").unwrap();
    refused(write(&folder, "4bit:32"), &["mlx exists", "name a new folder"]);
    refused(write(&written, "4bit:32"), &["is quantised already"]);
    refused(write(&Folder::copy("gpt-oss", "mlx-again"), "4bit:32"), &["is not supported"]);
}
