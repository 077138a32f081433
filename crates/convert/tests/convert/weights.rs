//! Weights that must be refused: each case is a golden folder with one thing wrong, and what the message must say.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use gristmill_convert::quantize::{EncodeError, Mix};
use gristmill_convert::{ConvertError, ConvertOptions, Converter};
use gristmill_transcode::TranscodeError;
use serde_json::{Value, json};

use super::folder::{FIRST, Folder, INDEX, SECOND, case};

#[test]
fn weights_that_are_damaged_or_incomplete() {
    case("half", |f| f.bytes(SECOND, |b| b.truncate(b.len() / 2)), &[SECOND, "bytes of data, but", "fetch it again"]);
    case("header-cut", |f| f.bytes(SECOND, |b| b.truncate(100)), &[SECOND, "ends after 100 bytes"]);
    case("empty", |f| f.write(SECOND, ""), &[SECOND, "ends after 0 bytes"]);
    case("longer", |f| f.bytes(SECOND, |b| b.push(0)), &[SECOND, "bytes of data, but"]);
    case("huge", |f| f.bytes(FIRST, |b| b[..8].fill(0xff)), &[FIRST, "header has 18446744073709551615 bytes"]);
    case("no-json", |f| f.bytes(FIRST, |b| b[8] = b'x'), &[FIRST, "header is not valid"]);
    case("lfs", |f| f.write(FIRST, "version https://git-lfs.github.com/spec/v1\n"), &["Git LFS pointer"]);
    case("missing-shard", |f| f.remove(SECOND), &[SECOND, "is missing", INDEX]);
    case("two-copies", |f| fs::copy(f.path(FIRST), f.path(SECOND)).map(drop).unwrap(), &["in another file as well"]);
}

#[test]
fn an_index_that_lies() {
    let map = |change: fn(&mut Value)| move |f: &Folder| f.json(INDEX, |index| change(&mut index["weight_map"]));
    case(
        "extra-name",
        map(|map| map["model.more.weight"] = json!(SECOND)),
        &["names tensor `model.more.weight`", SECOND],
    );
    case("moved", map(|map| map["lm_head.weight"] = json!(SECOND)), &["lm_head.weight", SECOND, "does not have"]);
    let unnamed = map(|map| drop(map.as_object_mut().unwrap().remove("lm_head.weight")));
    case("unnamed", unnamed, &[FIRST, "`lm_head.weight`", "does not name"]);
    case("elsewhere", map(|map| map["lm_head.weight"] = json!("../secret")), &["../secret", "not a file name"]);
    case("no-map", |f| f.write(INDEX, "{}"), &[INDEX, "weight_map"]);
}

#[test]
fn tensors_of_another_kind() {
    let lm_head = r#""lm_head.weight":{"dtype":"BF16","shape":[288,32]"#;
    let as_integers = lm_head.replace(r#""BF16""#, r#""I16" "#);
    case("dtype", |f| f.header(FIRST, lm_head, &as_integers), &["`lm_head.weight`", "dtype I16", "F32, F16, BF16"]);
    let turned = lm_head.replace("[288,32]", "[32,288]");
    case("turned", |f| f.header(FIRST, lm_head, &turned), &["lm_head.weight", "[32, 288]", "[288, 32]"]);
    let flat = lm_head.replace("[288,32]", "[ 9216 ]");
    case("flat", |f| f.header(FIRST, lm_head, &flat), &["lm_head.weight", "[9216]", "[288, 32]"]);
    let renamed = lm_head.replace("lm_head.w", "lm_heat.w");
    let change = |f: &Folder| {
        f.header(FIRST, lm_head, &renamed);
        f.bytes(INDEX, |b| *b = String::from_utf8_lossy(b).replace("lm_head", "lm_heat").into_bytes());
    };
    case("renamed", change, &["`lm_head.weight` is missing"]);
}

/// Changes the header of whichever file has this text, and runs the case.
#[track_caller]
fn header_case(golden: &str, name: &str, from: &str, to: &str, says: &[&str]) {
    let folder = Folder::copy(golden, name);
    let files = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let has = |file: &str| fs::read(folder.path(file)).unwrap().windows(from.len()).any(|w| w == from.as_bytes());
    let file = files.filter(|file| file.ends_with(".safetensors")).find(|file| has(file)).expect("a file has it");
    folder.header(&file, from, to);
    folder.refused(says);
}

#[test]
fn experts_that_are_not_as_their_layout_asks() {
    let blocks = r#""model.layers.0.mlp.experts.down_proj_blocks":{"dtype":"U8","shape":[3,32,1,16]"#;
    let scales = r#""model.layers.0.mlp.experts.down_proj_scales":{"dtype":"U8","shape":[3,32,1]"#;
    let case = |name: &str, from: &str, old: &str, new: &str, says: &[&str]| {
        header_case("gpt-oss", name, from, &from.replace(old, new), says);
    };
    case("mxfp4-dtype", blocks, "U8", "I8", &["down_proj_blocks", "dtype I8", "known: U8"]);
    case("mxfp4-groups", blocks, "[3,32,1,16]", "[3,32,16,1]", &["down_proj_blocks", "groups of 16 bytes"]);
    case("mxfp4-flat", blocks, "[3,32,1,16]", "[ 3,32,16 ]", &["down_proj_blocks", "groups of 16 bytes"]);
    case("mxfp4-scales", scales, "[3,32,1]", "[32,3,1]", &["down_proj_scales", "3 × 32 × 1 groups"]);
    let bias = r#""model.layers.0.mlp.experts.gate_up_proj_bias":{"dtype":"BF16","shape":[3,64]"#;
    case("turns-odd", bias, "[3,64]", "[64,3]", &["gate_up_proj_bias", "two matrices together"]);
    case("turns-flat", bias, "[3,64]", "[ 192]", &["gate_up_proj_bias", "two matrices together"]);
    let dense = r#""model.layers.0.mlp.experts.down_proj":{"dtype":"BF16","shape":[3,32,32]"#;
    header_case(
        "gpt-oss-dense",
        "columns-flat",
        dense,
        &dense.replace("[3,32,32]", "[ 96,32 ]"),
        &["no stack of matrices"],
    );
    let norm = r#""model.norm.weight":{"dtype":"BF16","shape":[32]"#;
    // As many bytes.
    header_case(
        "gemma3",
        "norm",
        norm,
        &norm.replace("BF16\",\"shape\":[32]", "F32\",\"shape\":[4,4]"),
        &["no vector"],
    );
}

#[test]
fn what_is_no_folder_with_weights() {
    let file = Converter::new(Path::new(file!()), &ConvertOptions::default());
    assert!(matches!(file, Err(ConvertError::NoFolder(_))));
    case("no-index", |f| f.remove(INDEX), &["neither model.safetensors nor", "have no index"]);
    let only = |name: &'static str| {
        move |f: &Folder| {
            for entry in fs::read_dir(&f.0).unwrap() {
                let path = entry.unwrap().path();
                if path.to_string_lossy().contains("safetensors") {
                    fs::remove_file(path).unwrap();
                }
            }
            f.write(name, "x");
        }
    };
    case("pytorch", only("pytorch_model.bin"), &["PyTorch"]);
    case("gguf", only("model.gguf"), &["contains GGUF files"]);
    case("other", only("README"), &["use a folder"]);
}

#[test]
fn weights_that_no_format_holds_are_named_and_leave_nothing() {
    let folder = Folder::copy("qwen3moe", "infinite");
    // The last value of the last tensor of the file, BF16 infinity.
    folder.bytes(SECOND, |bytes| {
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(&0x7f80u16.to_le_bytes());
    });
    let options = ConvertOptions { mix: Some(Mix::parse("F16").unwrap()), ..ConvertOptions::default() };
    let converter = Converter::new(&folder.0, &options).unwrap();
    let before = fs::read_dir(&folder.0).unwrap().count();
    let error = converter.write(&folder.path("out.gguf"), 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, ConvertError::Encode(EncodeError::Weights { .. })), "{error}");
    let stopped = converter.write(&folder.path("out.gguf"), 1, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(ConvertError::Encode(EncodeError::Stopped))));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), before);
}

#[test]
fn a_weight_that_is_not_finite_is_named_by_its_place_in_a_large_tensor() {
    let folder = Folder::copy("smollm", "far");
    // More elements than are converted at once.
    let (inner, place) = (48_000, (1 << 20) + 77);
    folder.set("intermediate_size", json!(inner));
    let bad = "model.layers.1.mlp.down_proj.weight";
    folder.tensors("model.safetensors", |name, shape, data| {
        if name.contains(".mlp.") {
            shape.iter_mut().filter(|dim| **dim == 40).for_each(|dim| *dim = inner);
            *data = vec![0; 4 * shape.iter().product::<usize>()];
        }
        if name == bad {
            data[4 * place..][..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
        }
    });
    // Also where the format stays as it is.
    for mix in [None, Some("F16"), Some("Q8_0")] {
        let options = ConvertOptions { mix: mix.map(|mix| Mix::parse(mix).unwrap()), ..ConvertOptions::default() };
        let converter = Converter::new(&folder.0, &options).unwrap();
        match converter.write(&folder.path("out.gguf"), 2, &mut |_| ControlFlow::Continue(())) {
            Err(ConvertError::Encode(EncodeError::Weights {
                name,
                source: TranscodeError::NotFinite { element, .. },
            })) => {
                assert_eq!((name.as_str(), element), ("blk.1.ffn_down.weight", place), "{mix:?}");
            }
            other => panic!("{mix:?}: {other:?}"),
        }
        assert!(!folder.path("out.gguf").exists());
    }
}
