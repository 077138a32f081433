//! Tokenizers that must be refused, and flags of added tokens.

use gristmill_convert::{ConvertError, ConvertOptions, Converter, open_folder};
use gristmill_engine::tokenizer::{EncodeOptions, Tokenizer};
use gristmill_files::gguf::GgufFile;
use serde_json::{Value, json};

use super::folder::{Folder, case};

#[test]
fn tokenizers_of_unknown_kind() {
    let tokenizer = |change: fn(&mut Value)| move |f: &Folder| f.json("tokenizer.json", change);
    case("none", |f| f.remove("tokenizer.json"), &["neither tokenizer.json nor tokenizer.model"]);
    case("unigram", tokenizer(|t| t["model"] = json!({"type": "Unigram", "vocab": []})), &["\"Unigram\"", "BPE"]);
    let affix = tokenizer(|t| t["model"]["end_of_word_suffix"] = json!("</w>"));
    case("affix", affix, &["\"</w>\""]);
    let split = "pre_tokenizer";
    let other: fn(&mut Value) = |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(r"\w+");
    case("regex", tokenizer(other), &["pre-tokenizer is unknown", r"\\w+", "name that one", "llama-bpe"]);
    case("no-words", tokenizer(|t| t["pre_tokenizer"] = Value::Null), &["pre-tokenizer is unknown", split]);
    case("merge", tokenizer(|t| t["model"]["merges"][1] = json!(["a", ""])), &["merge 1"]);
    case(
        "merge-unknown",
        tokenizer(|t| t["model"]["merges"][1] = json!(["a", "?!"])),
        &["cannot run the converted model", "not a token"],
    );
    case("too-large", tokenizer(|t| t["model"]["vocab"]["zz"] = json!(288)), &["\"zz\" has id 288", "288 tokens"]);
    case("not-json", |f| f.write("tokenizer.json", "x"), &["tokenizer.json", "invalid JSON"]);

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

/// Some files keep the matches of an expression instead of isolating them: the same, if every character is in a match.
#[test]
fn a_split_that_keeps_all_matches_is_recognised() {
    let keeps = |t: &mut Value| {
        let split = &mut t["pre_tokenizer"]["pretokenizers"][0];
        (split["behavior"], split["invert"]) = (json!("Removed"), json!(true));
    };
    let folder = Folder::copy("minimax-m3", "kept");
    folder.json("tokenizer.json", keeps);
    folder.open().expect("its expression matches all");
    folder.json("tokenizer.json", |t| t["pre_tokenizer"]["pretokenizers"][0]["invert"] = json!(false));
    folder.refused(&["pre-tokenizer is unknown", "Removed"]);
    // The first expression of these matches digits.
    let folder = Folder::copy("afmoe", "kept-digits");
    folder.json("tokenizer.json", keeps);
    folder.refused(&["pre-tokenizer is unknown", "Removed"]);
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
fn an_id_belongs_to_one_token() {
    let twice = |f: &Folder| f.json("tokenizer.json", |t| t["model"]["vocab"]["zz"] = json!(7));
    case("id-twice", twice, &["tokenizer.json", "\"zz\"", "both have id 7"]);
    let folder = Folder::copy("llama-spm", "added-twice");
    folder.write("added_tokens.json", r#"{"<a>": 300, "<b>": 300}"#);
    folder.refused(&["added_tokens.json", "\"<a>\" and \"<b>\" both have id 300"]);
}

#[test]
fn pre_tokenizers_are_named_only_where_there_is_one() {
    for (golden, file) in [("llama-spm", "tokenizer.model"), ("llama-json", "tokenizer.json")] {
        let folder = Folder::copy(golden, &format!("pre-{golden}"));
        let options = ConvertOptions { pre: Some("llama-bpe".to_owned()), ..ConvertOptions::default() };
        match Converter::new(&folder.0, &options).err().expect("it is refused") {
            ConvertError::PreUnused { path, pre } => assert!(path.ends_with(file) && pre == "llama-bpe"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn tokens_of_any_length_are_refused_before_all_their_cuts_are_tried() {
    let folder = Folder::copy("llama-json", "long-token");
    folder.json("tokenizer.json", |t| {
        let vocabulary = t["model"]["vocab"].as_object_mut().unwrap();
        let (last, id) = vocabulary.iter().next_back().map(|(text, id)| (text.clone(), id.clone())).unwrap();
        vocabulary.remove(&last);
        vocabulary.insert("x".repeat(3_000_000), id);
    });
    folder.refused(&["tokenizer.json", "has 3000000 bytes"]);
}

#[test]
fn messages_are_short_whatever_the_files_hold() {
    let long = "x y".repeat(100_000);
    let spoil = |golden: &str, name: &str, file: &str, change: &dyn Fn(&mut Value)| {
        let folder = Folder::copy(golden, &format!("long-{name}"));
        folder.json(file, change);
        let message = folder.open().err().expect("it is refused").to_string();
        assert!(message.len() < 2000, "{name}: {} bytes", message.len());
    };
    let tokenizer = |name: &str, change: &dyn Fn(&mut Value)| spoil("qwen3moe", name, "tokenizer.json", change);
    tokenizer("normalizer", &|t| t["normalizer"] = json!({"type": long}));
    tokenizer("splits", &|t| t["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": long}}));
    tokenizer("merge", &|t| t["model"]["merges"][1] = json!([long, long]));
    tokenizer("token", &|t| t["model"]["vocab"][&long] = json!(100_000));
    tokenizer("kind", &|t| t["model"]["type"] = json!(long));
    tokenizer("affix", &|t| t["model"]["end_of_word_suffix"] = json!(long));
    tokenizer("json", &|t| t["model"]["vocab"] = json!(long));
    spoil("llama-json", "spaces", "tokenizer.json", &|t| t["normalizer"] = json!({"type": long}));
    spoil("qwen3moe", "setting", "config.json", &|c| c["hidden_act"] = json!(long));
    spoil("qwen3moe", "shard", super::folder::INDEX, &|i| {
        i["weight_map"]["lm_head.weight"] = json!(format!("/{long}"))
    });
}

/// A text with the added tokens of `phi3`, and its tokens: with the flag `rstrip` of both as tokenizers 0.23.3 has it, and
/// without.
const FLAGGED: (&str, [u32; 6], [u32; 10]) =
    ("<tool>\nhi</s>\n<tool>\n", [351, 295, 306, 302, 2, 351], [351, 295, 13, 306, 302, 2, 295, 13, 351, 295]);

fn tokenizer(file: &GgufFile) -> Tokenizer {
    gristmill_engine::model::tokenizer(file).unwrap().unwrap()
}

fn ids(tokenizer: &Tokenizer) -> Vec<u32> {
    tokenizer.encode(FLAGGED.0, EncodeOptions { add_special: false, parse_special: true }).unwrap()
}

/// Phi-3's folder: `rstrip` in tokenizer.json, and in tokenizer_config.json.
fn phi3(case: &str, in_json: bool, in_config: bool) -> Folder {
    let folder = Folder::copy("phi3", case);
    folder.json("tokenizer.json", |t| {
        for token in t["added_tokens"].as_array_mut().unwrap() {
            token["rstrip"] = json!(in_json && token["id"].as_u64() > Some(1));
        }
    });
    folder.json("tokenizer_config.json", |about| {
        for (id, token) in about["added_tokens_decoder"].as_object_mut().unwrap() {
            token["rstrip"] = json!(in_config && id.parse::<u32>().unwrap() > 1);
        }
    });
    folder
}

/// As transformers, which takes the flags of tokenizer_config.json for those of tokenizer.json.
#[test]
fn flags_of_added_tokens_are_those_of_the_folder() {
    let (_, with, without) = FLAGGED;
    let open = |folder: &Folder| ids(&tokenizer(&open_folder(&folder.0, &ConvertOptions::default(), 1).unwrap().0));
    assert_eq!(open(&phi3("flags-both", true, true)), with);
    assert_eq!(open(&phi3("flags-config", false, true)), with);
    assert_eq!(open(&phi3("flags-none", false, false))[..9], without[..9]);
    assert_eq!(open(&phi3("flags-replaced", true, false))[..9], without[..9]);
    let folder = phi3("flags-json", true, false);
    folder.json("tokenizer_config.json", |about| drop(about.as_object_mut().unwrap().remove("added_tokens_decoder")));
    assert_eq!(open(&folder), with);
}

/// A file has no key for flags: as in llama.cpp, the name of the model says whether its tokens have `rstrip`.
#[test]
fn files_of_phi3_have_the_flag_by_their_name() {
    let (_, with, without) = FLAGGED;
    let converted = |name: &str, in_config: bool| {
        let folder = phi3("flags-file", in_config, in_config);
        let options = ConvertOptions { name: Some(name.to_owned()), ..ConvertOptions::default() };
        let converter = Converter::new(&folder.0, &options).unwrap();
        let path = folder.path("out.gguf");
        converter.write(&path, 1, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let noted = converter.notes().iter().any(|note| note.contains("GGUF has no key for their flags"));
        (ids(&tokenizer(&GgufFile::open(&path).unwrap())), noted)
    };
    for name in ["Phi-3.5-MoE-instruct", "my phi3"] {
        assert_eq!(converted(name, true), (with.to_vec(), false), "{name}");
        assert_eq!(converted(name, false), (with.to_vec(), true), "{name}");
    }
    let (found, noted) = converted("another", true);
    assert_eq!((&found[..9], noted), (&without[..9], true));
    assert!(!converted("another", false).1);
}
