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
fn settings_of_families_that_are_not_supported() {
    let case = |golden: &str, name: &str, change: &dyn Fn(&mut Value), says: &[&str]| {
        let folder = Folder::copy(golden, name);
        folder.json("config.json", change);
        folder.refused(says);
    };
    let rope = |key: &'static str, value: Value| move |c: &mut Value| c["rope_parameters"][key] = value.clone();
    let set = |key: &'static str, value: Value| move |c: &mut Value| c[key] = value.clone();
    case("gpt-oss", "truncates", &rope("truncate", json!(true)), &["`truncate` is true", "expected: false"]);
    let clamp = set("swiglu_limit", json!(8.0));
    case("gpt-oss", "clamp", &clamp, &["`swiglu_limit` is 8.0", "expected: 7"]);
    let types = set("layer_types", json!(["sliding_attention"]));
    case("gpt-oss", "few-types", &types, &["`layer_types`", "each of the 3 layers"]);
    let types = set("layer_types", json!(["sliding_attention", "chunked_attention", "full_attention"]));
    case("gpt-oss", "other-types", &types, &["`layer_types` is \"chunked_attention\""]);
    case("phimoe", "magnitudes", &rope("long_mscale", json!(1.3)), &["long_mscale with one value"]);
    case("phimoe", "factors", &rope("long_factor", json!([1.0])), &["rope_factors_long.weight"]);
    case("phimoe", "no-factors", &rope("long_factor", json!(null)), &["`long_factor`"]);
    case("phimoe", "jitter", &set("router_jitter_noise", json!(0.1)), &["`router_jitter_noise` is 0.1"]);
    case("gemma3", "cap", &set("final_logit_softcapping", json!(30.0)), &["final_logit_softcapping"]);
    let local = |c: &mut Value| c["rope_parameters"]["sliding_attention"]["rope_type"] = json!("linear");
    case("gemma3", "stretched-windows", &local, &["`rope_type` is \"linear\"", "layers with a window"]);
    case("deepseek", "sigmoid", &set("scoring_func", json!("sigmoid")), &["`scoring_func` is \"sigmoid\"", "softmax"]);
    case("granite", "heads", &set("num_attention_heads", json!(3)), &["q_proj.weight", "3 heads of even width"]);
}

/// Old and new ways of saying where the windows are; what is the architecture's habit is not written.
#[test]
fn windows_of_layers() {
    let pattern = |key: &str, value: Value| {
        let folder = Folder::copy("gemma3", &format!("windows-{key}-{}", value.is_array()));
        folder.json("config.json", |config| {
            config.as_object_mut().unwrap().remove("layer_types");
            config["sliding_window_pattern"] = Value::Null;
            config[key] = value;
        });
        let path = folder.path("out.gguf");
        folder.open().unwrap().write(&path, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        let file = gristmill_engine::gguf::GgufFile::open(&path).unwrap();
        file.metadata().optional::<&[bool]>("gemma3.attention.sliding_window_pattern").unwrap().map(<[bool]>::to_vec)
    };
    assert_eq!(pattern("sliding_window_pattern", json!(6)), None);
    assert_eq!(pattern("sliding_window_pattern", Value::Null), None);
    let every_second = (0..7).map(|layer| layer % 2 == 0).collect::<Vec<_>>();
    assert_eq!(pattern("sliding_window_pattern", json!(2)), Some(every_second.clone()));
    let types = |&windowed: &bool| if windowed { "sliding_attention" } else { "full_attention" };
    assert_eq!(pattern("layer_types", json!(every_second.iter().map(types).collect::<Vec<_>>())), Some(every_second));
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
    case("family", set("model_type", json!("mamba")), &["`mamba`", "known: deepseek", "qwen3_moe", "olmoe"]);
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
