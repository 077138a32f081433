//! Tokenizers that must be refused.

use gristmill_convert::{ConvertError, ConvertOptions, Converter};
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
