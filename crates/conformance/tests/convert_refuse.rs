//! What `convert` must refuse: each case is a golden folder with one thing wrong, and what the message must say.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use gristmill_engine::convert::{ConvertError, ConvertOptions, Converter};
use gristmill_engine::quantize::Mix;
use serde_json::{Value, json};

/// A copy of a golden folder that may be damaged, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn copy(name: &str, case: &str) -> Folder {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/convert").join(name);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("refuse-{case}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(golden).unwrap() {
            let path = entry.unwrap().path();
            fs::write(folder.join(path.file_name().unwrap()), fs::read(&path).unwrap()).unwrap();
        }
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Changes bytes of a file.
    fn bytes(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        change(&mut bytes);
        self.write(name, bytes);
    }

    /// Replaces text in the header of a safetensors file by text of the same length.
    fn header(&self, name: &str, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        self.bytes(name, |bytes| {
            let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).expect("it is there");
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        });
    }

    /// Changes a JSON file.
    fn json(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap();
        change(&mut value);
        self.write(name, value.to_string());
    }

    fn set(&self, key: &str, value: Value) {
        self.json("config.json", |config| config[key] = value);
    }

    fn open(&self) -> Result<Converter, ConvertError> {
        Converter::new(&self.0, &ConvertOptions::default())
    }

    #[track_caller]
    fn refused(&self, says: &[&str]) {
        let error = self.open().err().expect("it is refused").to_string();
        for text in says {
            assert!(error.contains(text), "{text:?} is not in: {error}");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const FIRST: &str = "model-00001-of-00003.safetensors";
const SECOND: &str = "model-00002-of-00003.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Runs a case on a fresh copy of the sharded `qwen3moe`.
#[track_caller]
fn case(name: &str, change: impl FnOnce(&Folder), says: &[&str]) {
    let folder = Folder::copy("qwen3moe", name);
    change(&folder);
    folder.refused(says);
}

#[test]
fn weights_that_are_damaged_or_incomplete() {
    case("half", |f| f.bytes(SECOND, |b| b.truncate(b.len() / 2)), &[SECOND, "bytes of data, but", "fetch it again"]);
    case("header-cut", |f| f.bytes(SECOND, |b| b.truncate(100)), &[SECOND, "ends after 100 bytes"]);
    case("empty", |f| f.write(SECOND, ""), &[SECOND, "ends after 0 bytes"]);
    case("longer", |f| f.bytes(SECOND, |b| b.push(0)), &[SECOND, "bytes of data, but"]);
    case("huge", |f| f.bytes(FIRST, |b| b[..8].fill(0xff)), &[FIRST, "header would have 18446744073709551615 bytes"]);
    case("no-json", |f| f.bytes(FIRST, |b| b[8] = b'x'), &[FIRST, "header is not as it should be"]);
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
    case("elsewhere", map(|map| map["lm_head.weight"] = json!("../secret")), &["../secret", "not the name of a file"]);
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

#[test]
fn settings_that_do_not_fit_the_weights() {
    let set = |key: &'static str, value: Value| move |f: &Folder| f.set(key, value);
    case("layers-more", set("num_hidden_layers", json!(3)), &["`model.layers.2.input_layernorm.weight` is missing"]);
    let huge = set("num_hidden_layers", json!(4_000_000_000u32));
    case("layers-huge", huge, &["`model.layers.2.input_layernorm.weight` is missing"]);
    case("layers-less", set("num_hidden_layers", json!(1)), &["21 tensors are not weights", "model.layers.1."]);
    case("experts-more", set("num_local_experts", json!(5)), &["experts.4.gate_proj.weight` is missing"]);
    case("experts-less", set("num_local_experts", json!(3)), &["6 tensors", "experts.3.down_proj.weight"]);
    case("experts-none", set("num_local_experts", json!(0)), &["num_local_experts", "at least 1"]);
    case("width", set("hidden_size", json!(64)), &["has shape [288, 32], but config.json asks for", "64]"]);
    case(
        "heads",
        set("num_attention_heads", json!(5)),
        &["attention.head_count", "5 is not a multiple of the 2 KV heads"],
    );
    case("heads-none", set("num_attention_heads", json!(0)), &["attention.head_count"]);
    case("used", set("num_experts_per_tok", json!(9)), &["expert_used_count"]);
}

#[test]
fn settings_that_are_not_supported() {
    let set = |key: &'static str, value: Value| move |f: &Folder| f.set(key, value);
    case("family", set("model_type", json!("mamba")), &["`mamba`", "known: llama", "qwen3_moe", "olmoe"]);
    case("no-family", set("model_type", Value::Null), &["has no `model_type`"]);
    case("gelu", set("hidden_act", json!("gelu")), &["`hidden_act`", "\"gelu\"", "\"silu\""]);
    case("window", set("use_sliding_window", json!(true)), &["`use_sliding_window`"]);
    let rope = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    case("dynamic", set("rope_parameters", rope), &["`rope_type`", "\"dynamic\"", "llama3"]);
    let rope = json!({"rope_type": "yarn", "factor": 2.0, "mscale": 0.7});
    case("mscale", set("rope_parameters", rope), &["`mscale`"]);
    case("no-factor", set("rope_parameters", json!({"rope_type": "linear"})), &["has no `factor`"]);
    case("text", set("hidden_size", json!("32")), &["`hidden_size` is \"32\"", "a whole number"]);
    case("negative", set("hidden_size", json!(-32)), &["`hidden_size` is -32"]);
    case("list", |f| f.write("config.json", "[]"), &["config.json", "not as it should be"]);
    case("half-json", |f| f.write("config.json", "{\"a\":"), &["config.json", "not as it should be"]);
    case("no-config", |f| f.remove("config.json"), &["config.json", "cannot read"]);
}

#[test]
fn what_is_no_folder_with_weights() {
    let file = Converter::new(Path::new(file!()), &ConvertOptions::default());
    assert!(matches!(file, Err(ConvertError::NoFolder { .. })));
    case("no-index", |f| f.remove(INDEX), &["neither model.safetensors nor", "without that index"]);
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
    case("gguf", only("model.gguf"), &["holds GGUF"]);
    case("other", only("README"), &["give the folder"]);
}

#[test]
fn tokenizers_of_unknown_kind() {
    let tokenizer = |change: fn(&mut Value)| move |f: &Folder| f.json("tokenizer.json", change);
    case("none", |f| f.remove("tokenizer.json"), &["neither tokenizer.json nor tokenizer.model"]);
    case("unigram", tokenizer(|t| t["model"] = json!({"type": "Unigram", "vocab": []})), &["\"Unigram\"", "BPE"]);
    let affix = tokenizer(|t| t["model"]["end_of_word_suffix"] = json!("</w>"));
    case("affix", affix, &["\"</w>\""]);
    let split = "pre_tokenizer";
    let other: fn(&mut Value) = |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(r"\w+");
    case("regex", tokenizer(other), &["pre-tokenizer is not known", r"\\w+", "--pre", "llama-bpe"]);
    case("no-words", tokenizer(|t| t["pre_tokenizer"] = Value::Null), &["pre-tokenizer is not known", split]);
    case("merge", tokenizer(|t| t["model"]["merges"][1] = json!(["a", ""])), &["merge 1"]);
    case(
        "merge-unknown",
        tokenizer(|t| t["model"]["merges"][1] = json!(["a", "?!"])),
        &["converted, this is not a model", "not a token"],
    );
    case("too-large", tokenizer(|t| t["model"]["vocab"]["zz"] = json!(288)), &["\"zz\" has id 288", "288 tokens"]);
    case("not-json", |f| f.write("tokenizer.json", "x"), &["tokenizer.json", "not as it should be"]);

    // The user may know better.
    let folder = Folder::copy("qwen3moe", "named");
    folder.json("tokenizer.json", other);
    let named = |pre: &str| {
        let options = ConvertOptions { pre: Some(pre.to_owned()), ..ConvertOptions::default() };
        Converter::new(&folder.0, &options).map(drop)
    };
    named("qwen2").unwrap();
    assert!(named("qwen7").unwrap_err().to_string().contains("qwen7"));
}

#[test]
fn sentencepiece_models_that_are_none() {
    let folder = Folder::copy("llama-spm", "garbage");
    folder.write("tokenizer.model", b"\x0a\xff\xff\xff\xff\x0f garbage");
    let converter = folder.open().expect("tokenizer.json is used instead");
    assert!(converter.notes().iter().any(|note| note.contains("not a SentencePiece model")), "{:?}", converter.notes());
    folder.remove("tokenizer.json");
    folder.refused(&["tokenizer.model", "not a SentencePiece model"]);

    // TrainerSpec with model_type 1, unigram; an unknown kind of piece.
    for (name, tail, says) in
        [("unigram", &[0x12, 2, 0x18, 1][..], "unigram"), ("kind", &[0x0a, 2, 0x18, 99], "of a kind")]
    {
        let folder = Folder::copy("llama-spm", name);
        folder.bytes("tokenizer.model", |bytes| bytes.extend(tail));
        folder.refused(&["tokenizer.model", says]);
    }
    for length in (0..2000).step_by(37) {
        let folder = Folder::copy("llama-spm", "cut");
        folder.remove("tokenizer.json");
        folder.bytes("tokenizer.model", |bytes| bytes.truncate(length));
        assert!(folder.open().is_err(), "{length}");
    }
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
    assert!(matches!(error, ConvertError::Weights { .. }), "{error}");
    let stopped = converter.write(&folder.path("out.gguf"), 1, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(ConvertError::Stopped)));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), before);
}
