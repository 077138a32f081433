//! Folders as Hugging Face publishes them, converted: against llama.cpp's converter and transformers' logits, which
//! `scripts/golden/convert.py` wrote.

#[cfg(all(target_arch = "x86_64", unix))]
mod changed;
#[cfg(all(target_arch = "x86_64", unix))]
mod direct;
mod files;
mod folder;
#[cfg(all(target_arch = "x86_64", unix))]
mod fp8;
#[cfg(all(target_arch = "x86_64", unix))]
mod fused;
#[cfg(all(target_arch = "x86_64", unix))]
mod hostile;
mod mlx;
#[cfg(all(target_arch = "x86_64", unix))]
mod mlx_folder;
#[cfg(all(target_arch = "x86_64", unix))]
mod mlx_written;
mod other_classes;
#[cfg(all(target_arch = "x86_64", unix))]
mod packed;
#[cfg(all(target_arch = "x86_64", unix))]
mod saved;
mod settings;
mod tokenizers;
mod types;
mod weights;

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use gristmill_convert::quantize::Mix;
use gristmill_convert::{ConvertOptions, Converter};
use gristmill_engine::tokenizer::EncodeOptions;
use gristmill_engine::{Batch, Limits, LoadOptions, Model, Outputs, Precision, Runner};
use gristmill_files::gguf::{Array, GgufFile, Value};
use gristmill_kernels::format::Format;
use serde_json::Value as Json;

use folder::Folder;
use gristmill_conformance::golden::{architectures, folders, folders_folder};

const TYPES: &[&str] = &["f32", "f16", "bf16", "q8_0"];

/// Keys that are not compared: llama.cpp makes up names and sizes by rules of thumb, and keeps keys that no text model
/// needs.
const NOT_COMPARED: &[&str] = &[
    "general.name",
    "general.basename",
    "general.finetune",
    "general.version",
    "general.organization",
    "general.size_label",
    "general.file_type",
    "tokenizer.ggml.add_sep_token",
];

fn expected(name: &str) -> Json {
    serde_json::from_slice(&fs::read(folders_folder().join(format!("{name}.json"))).unwrap()).unwrap()
}

fn converter(name: &str, mix: Option<&str>) -> Converter {
    let mix = mix.map(|mix| Mix::parse(mix).unwrap());
    // As llama.cpp converted them, with --no-mtp.
    let options = ConvertOptions { mix, without_heads: true, ..ConvertOptions::default() };
    Converter::new(&folders_folder().join(name), &options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A golden folder, converted. `who`: the test, whose files no other writes.
fn converted(who: &str, name: &str, mix: Option<&str>) -> GgufFile {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("convert-{who}-{name}.gguf"));
    let converter = converter(name, mix);
    converter.write(&path, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    let file = GgufFile::from_bytes(fs::read(&path).unwrap()).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.file_bytes(), converter.file_bytes());
    let tensors: usize = converter.tensors().iter().map(|tensor| 1 + usize::from(tensor.scales > 0)).sum();
    assert_eq!(file.tensors().len(), tensors);
    file
}

fn fnv1a(data: &[u8]) -> String {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", data.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// A value as the script writes it: its type, and itself.
fn json(value: &Value) -> Json {
    let (kind, value): (&str, Json) = match value {
        Value::U32(n) => ("UINT32", (*n).into()),
        Value::I32(n) => ("INT32", (*n).into()),
        Value::F32(x) => ("FLOAT32", (*x).into()),
        Value::Bool(flag) => ("BOOL", (*flag).into()),
        Value::String(text) => ("STRING", text.as_str().into()),
        Value::Array(Array::String(texts)) => ("ARRAY of STRING", texts.clone().into()),
        Value::Array(Array::I32(numbers)) => ("ARRAY of INT32", numbers.clone().into()),
        Value::Array(Array::Bool(flags)) => ("ARRAY of BOOL", flags.clone().into()),
        Value::Array(Array::F32(numbers)) => ("ARRAY of FLOAT32", numbers.clone().into()),
        other => panic!("no such value is expected: {other:?}"),
    };
    Json::Array(vec![kind.into(), value])
}

#[test]
fn every_architecture_is_converted() {
    let architecture = |name| {
        let file = converted("architecture", name, None);
        file.metadata().required::<&str>("general.architecture").unwrap().to_owned()
    };
    let known: BTreeSet<String> = folders().into_iter().map(architecture).collect();
    assert_eq!(known, architectures());
}

#[test]
fn tensors_are_those_of_llama_cpp() {
    for name in folders() {
        let expected = expected(name);
        for kind in TYPES {
            let file = converted("tensors", name, Some(kind));
            let wanted = expected["tensors"][kind].as_object().unwrap();
            for (tensor, wanted) in wanted {
                let found = file.tensor(tensor).unwrap_or_else(|| panic!("{name} {kind}: no tensor {tensor}"));
                let shape = found.shape.clone();
                let hash = fnv1a(file.data(found));
                assert_eq!(found.format.name(), wanted[0], "{name} {kind}: {tensor}");
                assert_eq!(Json::from(shape), wanted[1], "{name} {kind}: {tensor}");
                // The only bytes that may differ: our Q8_0 rounds to the nearest code of the stored scale, llama.cpp's
                // to that of the scale before it was rounded to f16; some codes differ by one.
                if found.format == Format::Q8_0 {
                    continue;
                }
                assert_eq!(hash, wanted[2].as_str().unwrap(), "{name} {kind}: bytes of {tensor}");
            }
            assert_eq!(file.tensors().len(), wanted.len(), "{name} {kind}");
        }
    }
}

#[test]
fn metadata_is_that_of_llama_cpp() {
    let mut wrong = Vec::new();
    for name in folders() {
        let expected = expected(name);
        let file = converted("metadata", name, None);
        let wanted = expected["metadata"].as_object().unwrap();
        for (key, wanted) in wanted.iter().filter(|(key, _)| !NOT_COMPARED.contains(&key.as_str())) {
            // llama.cpp gives all tokens one score where only tokenizer.json is there; ours are checked by the ids of
            // texts.
            if name == "llama-json" && key == "tokenizer.ggml.scores" {
                continue;
            }
            // llama.cpp computes it by a rule of its own, transformers multiplies by what the settings say.
            if name == "phimoe" && key == "phimoe.rope.scaling.attn_factor" {
                continue;
            }
            // It is the width of no part of these models.
            if ["kimi-linear", "bailingmoe3"].contains(&name) && key.ends_with(".attention.value_length") {
                continue;
            }
            // Only images have rows for several layers.
            if key.ends_with(".n_deepstack_layers") {
                continue;
            }
            // transformers forgets the setting once it has made a list of it; the list is there too.
            if name == "qwen3next" && key == "qwen3next.full_attention_interval" {
                continue;
            }
            match file.metadata().value(key).map(json) {
                // It says no more than no key at all.
                None if key.ends_with(".rope.scaling.type") && wanted[1] == "none" => {}
                None => wrong.push(format!("{name}: no key {key}; llama.cpp has {wanted}")),
                Some(found) if found == *wanted => {}
                Some(found) => wrong.push(format!("{name}: {key} is {found:.300}, llama.cpp has {wanted:.300}")),
            }
        }
        for (key, value) in file.metadata().iter() {
            // llama.cpp's converter leaves out what every reader takes without the key, whatever the settings say.
            let default = [
                "gemma.rope.freq_base",
                "gemma2.rope.freq_base",
                "jamba.rope.freq_base",
                "kimi-linear.rope.freq_base",
                "mamba2.rope.freq_base",
                "nemotron_h.rope.freq_base",
                "nemotron_h_moe.rope.freq_base",
            ]
            .contains(&key)
                && json(value)[1] == 10_000.0;
            if !wanted.contains_key(key) && !default {
                wrong.push(format!("{name}: key {key} = {:.100}, which llama.cpp does not have", json(value)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ids_of_texts_are_those_of_transformers() {
    for name in folders() {
        let expected = expected(name);
        let file = converted("ids", name, None);
        let tokenizer = gristmill_engine::model::tokenizer(&file).unwrap().unwrap();
        for case in expected["texts"].as_array().unwrap() {
            let text = case[0].as_str().unwrap();
            let ids = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap();
            assert_eq!(Json::from(ids), case[1], "{name}: {text:?}");
        }
    }
}

/// Qwen 2's rules without its Unicode normalisation have a name too, which the runner knows: only texts that it would
/// change get other ids.
#[test]
fn a_tokenizer_that_lacks_normalisation_is_recognised_and_runs() {
    let folder = Folder::copy("qwen3moe", "no-nfc");
    folder.json("tokenizer.json", |json| assert_eq!(json["normalizer"].take()["type"], "NFC"));

    let ids = |pre: Option<&str>, text: &str| {
        let options = ConvertOptions { pre: pre.map(str::to_owned), ..ConvertOptions::default() };
        let path = folder.path("out.gguf");
        let converter = Converter::new(&folder.0, &options).unwrap();
        converter.write(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        let model = Model::open(&path, LoadOptions { threads: Some(1), ..LoadOptions::default() }).unwrap();
        let name = GgufFile::open(&path).unwrap().metadata().required::<&str>("tokenizer.ggml.pre").unwrap().to_owned();
        let tokenizer = model.tokenizer().unwrap();
        (name, tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap())
    };
    let ascii: String = (0..128).map(char::from).chain("It's 1847:\n\n  the old   mill, we'll".chars()).collect();
    let ((own, found), (qwen, wanted)) = (ids(None, &ascii), ids(Some("qwen2"), &ascii));
    assert_eq!((own.as_str(), qwen.as_str()), ("deepseek-r1-qwen", "qwen2"));
    assert_eq!(found, wanted);
    assert_ne!(ids(None, "u\u{308}").1, ids(Some("qwen2"), "u\u{308}").1);
}

/// NMSE of a model's logits against those in a file, of all its sequences together.
fn nmse(model: &Arc<Model>, logits: &GgufFile) -> f64 {
    let (mut error, mut sum, mut sequences) = (0.0, 0.0, 0);
    while let Ok(tokens) = logits.metadata().required::<Vec<u32>>(&format!("golden.tokens.{sequences}")) {
        let tensor = logits.tensor(&format!("logits.{sequences}")).unwrap();
        let mut wanted = vec![0.0; tensor.elements() as usize];
        tensor.format.decode(logits.data(tensor), &mut wanted).unwrap();
        let limits = Limits { context: Some(32), output_rows: Some(tokens.len()), ..Limits::default() };
        let mut runner = Runner::new(model.clone(), limits).unwrap();
        let mut batch = Batch::new();
        batch.push(runner.open_sequence().unwrap(), &tokens, Outputs::All);
        let found = runner.forward(&batch).unwrap().to_vec().unwrap();
        assert_eq!(found.len(), wanted.len());
        for (&found, &wanted) in found.iter().zip(&wanted) {
            error += (f64::from(found) - f64::from(wanted)).powi(2);
            sum += f64::from(wanted).powi(2);
        }
        sequences += 1;
    }
    assert_eq!(sequences, 3);
    error / sum
}

#[test]
fn logits_are_those_of_transformers() {
    for name in folders() {
        let logits = GgufFile::open(folders_folder().join(format!("{name}.logits.gguf"))).unwrap();
        let tolerance = f64::from(logits.metadata().required::<f32>("golden.tolerance").unwrap());
        // F32 holds the values of every checkpoint.
        let file = converted("logits", name, Some("f32"));
        let options = LoadOptions { precision: Precision::Exact, threads: Some(2), ..LoadOptions::default() };
        let model = Arc::new(Model::from_file(file, options).unwrap());
        let error = nmse(&model, &logits);
        println!("{name:12} NMSE {error:.1e}");
        // Also false for NaN.
        assert!(error <= tolerance, "{name}: NMSE {error:.1e} > {tolerance:.0e}");
    }
}

#[test]
fn layers_that_predict_and_towers_are_left_out_by_name() {
    let said = |name| converter(name, None).notes().join("\n");
    let predicts = ["7 tensors, mtp.", "predict further tokens; they are left out"];
    assert!(predicts.iter().all(|text| said("qwen3next").contains(text)), "{}", said("qwen3next"));
    let sees = ["2 tensors, model.visual.", "belong to a tower for images; they are left out"];
    assert!(predicts.iter().chain(&sees).all(|text| said("qwen35moe").contains(text)), "{}", said("qwen35moe"));
    let hears = ["4 tensors, model.audio_tower.", "belong to towers for images and sound; they are left out"];
    assert!(hears.iter().all(|text| said("gemma4-moe").contains(text)), "{}", said("gemma4-moe"));
    assert_eq!(said("qwen35") + &said("gemma4"), "");
    let sees = ["2 tensors, multi_modal_projector.", "belong to a tower for images; they are left out"];
    assert!(sees.iter().all(|text| said("mistral3").contains(text)), "{}", said("mistral3"));
}

#[test]
fn the_format_is_that_of_the_checkpoint_unless_another_is_asked_for() {
    for (name, format) in [("llama3", Format::BF16), ("qwen3", Format::F16), ("smollm", Format::F32)] {
        let file = converted("format", name, None);
        assert_eq!(file.tensor("blk.0.attn_q.weight").unwrap().format, format);
        assert_eq!(file.tensor("blk.0.attn_norm.weight").unwrap().format, Format::F32);
    }
}

#[test]
fn rows_that_are_not_whole_blocks_fall_back_and_are_named() {
    // Rows of 32, where a K-quant has blocks of 256. Rows of 24 fit only floats.
    for (name, instead) in [("qwen3moe", Format::Q5_0), ("smollm", Format::F16)] {
        let converter = converter(name, Some("Q4_K"));
        let query = converter.tensors().iter().find(|t| t.name == "blk.0.attn_q.weight").unwrap();
        assert_eq!((query.to, query.instead_of), (instead, Some(Format::Q4_K)));
        assert_eq!(converted("fallback", name, Some("Q4_K")).tensor(&query.name).unwrap().format, instead);
    }
}
