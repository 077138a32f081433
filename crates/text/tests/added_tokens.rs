//! Added tokens with random flags, in random texts: against the crate `tokenizers`.

use std::collections::BTreeMap;

use gristmill_text::tokenizer::{EncodeOptions, TokenFlags, Tokenizer, TokenizerError, Vocabulary};
use serde_json::{Value, json};

const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

/// Texts of added tokens, some of which start or end like others, or are white space; "é" has another normal form C than
/// its two characters.
const TEXTS: &[&str] = &["<|a|>", "<|a|>b", "<b>", "b", "</b>", "ab", "\n", "\n\n", "\u{e9}z", "_x_", "x y", "4"];

/// Parts of texts.
const PARTS: &[&str] = &[
    "<|a|>",
    "<|a|>b",
    "<b>",
    "</b>",
    "ab",
    "b",
    "\u{e9}z",
    "e\u{301}z",
    "_x_",
    "x y",
    "4",
    " ",
    "  ",
    "\n",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2581}",
    "\u{301}",
    "the mill",
    "_",
    "\u{203f}",
    "7",
    ".",
    "\u{4e2d}",
    "<",
    "<unk>",
    "<s>",
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % n
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

struct Added {
    text: &'static str,
    special: bool,
    flags: TokenFlags,
}

/// Some of the texts, with random flags.
fn added(random: &mut Random, is_scored: bool) -> Vec<Added> {
    let mut tokens = Vec::new();
    for &text in TEXTS {
        // The vocabulary does not say whether symbols also merge to such a token of one character that it has twice.
        if random.below(3) == 0 || is_scored && matches!(text, "b" | "4" | "\n") {
            continue;
        }
        // `tokenizers` panics if the white space before such a token belongs to another one.
        let lstrip = random.coin() && !text.trim().is_empty();
        let flags =
            TokenFlags { lstrip, rstrip: random.coin(), single_word: random.below(3) == 0, normalized: random.coin() };
        // Of these, a control token is always recognised as it is written.
        let is_rewritten = if is_scored { text.contains(' ') } else { !text.is_ascii() };
        // No text becomes a control token that the model has too.
        let can_be_special = !is_rewritten && text.len() > 1;
        tokens.push(Added { text, special: random.coin() && can_be_special, flags });
    }
    tokens
}

fn golden(name: &str) -> Value {
    let path = format!("{}/tests/golden/tokenizer/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

/// The same tokenizer twice: as a vocabulary, and as `tokenizer.json`. `prefix`: a space precedes a text.
fn both(name: &str, added: &[Added], prefix: bool) -> (Vocabulary, Value) {
    let golden = golden(name);
    let is_scored = name == "gemma4";
    let mut tokens = strings(&golden["tokens"]);
    let mut types: Vec<i32> = golden["types"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap() as i32).collect();
    if !is_scored {
        let plain = types.iter().filter(|&&kind| kind == 1).count();
        tokens.truncate(plain);
        types.truncate(plain);
    }
    let vocab: BTreeMap<&String, usize> = tokens.iter().zip(0..).collect();
    let merges = strings(&golden["merges"]);
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let normalizer = match (is_scored, prefix) {
        (false, _) => json!({"type": "NFC"}),
        (true, false) => spaces,
        (true, true) => {
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u{2581}"}, spaces]})
        }
    };
    let words = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true});
    let mut model =
        json!({"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": is_scored, "fuse_unk": is_scored});
    if is_scored {
        model["unk_token"] = json!("<unk>");
    }
    let mut records = Vec::new();
    let mut record = |id: usize, text: &str, special: bool, flags: TokenFlags| {
        records.push(json!({"id": id, "content": text, "special": special, "lstrip": flags.lstrip,
            "rstrip": flags.rstrip, "single_word": flags.single_word, "normalized": flags.normalized}));
    };
    for (id, (text, kind)) in tokens.iter().zip(&types).enumerate().filter(|(_, (_, kind))| (2..5).contains(*kind)) {
        record(id, text, *kind != 4, TokenFlags::default());
    }
    let (first, mut flags) = (tokens.len(), BTreeMap::new());
    for token in added {
        // A text that is a token of the model has its id.
        let id = tokens.iter().position(|text| text == token.text).unwrap_or(tokens.len());
        record(id, token.text, token.special, token.flags);
        flags.insert(id as u32, token.flags);
        if id == tokens.len() {
            tokens.push(token.text.to_owned());
            types.push(0);
        }
        types[id] = if token.special { 3 } else { 4 };
    }
    records.sort_by_key(|record| record["id"].as_u64());
    let json = json!({"version": "1.0", "added_tokens": records, "normalizer": normalizer,
        "pre_tokenizer": if is_scored { Value::Null } else { words }, "model": model});
    let vocabulary = Vocabulary {
        model: if is_scored { "gemma4" } else { "gpt2" }.to_owned(),
        pre: (!is_scored).then(|| "olmo".to_owned()),
        scores: if is_scored { vec![0.0; tokens.len()] } else { Vec::new() },
        tokens,
        types,
        merges,
        unknown: is_scored.then_some(0),
        add_space_prefix: is_scored.then_some(prefix),
        flags,
        ..Vocabulary::default()
    };
    assert!(first > 700);
    (vocabulary, json)
}

#[test]
fn flags_mean_what_they_mean_in_the_crate_tokenizers() {
    let seed = gristmill_suite::testing::seed_of_test();
    let mut random = Random(seed);
    let (mut flagged, mut whole) = (0, 0);
    for round in 0..60 {
        let (name, prefix) = [("gpt-2", false), ("gemma4", false), ("gemma4", true)][round % 3];
        let added = added(&mut random, name == "gemma4");
        let (vocabulary, json) = both(name, &added, prefix);
        let theirs = tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap();
        let ours = Tokenizer::new(vocabulary.clone()).unwrap();
        let plain = Tokenizer::new(Vocabulary { flags: BTreeMap::new(), ..vocabulary }).unwrap();
        for _ in 0..60 {
            let text: String = (0..random.below(12)).map(|_| PARTS[random.below(PARTS.len())]).collect();
            let wanted = theirs.encode(text.as_str(), false).unwrap().get_ids().to_vec();
            let found = ours.encode(&text, PARSED).unwrap();
            assert_eq!(found, wanted, "seed {seed}, round {round}: {text:?} with {}", json["added_tokens"]);
            assert!(ours.fewest_tokens(&text) <= found.len(), "seed {seed}: {text:?}");
            flagged += usize::from(plain.encode(&text, PARSED).unwrap() != found);
            whole += 1;
        }
    }
    assert!(flagged > whole / 5, "flags change {flagged} of {whole} texts, seed {seed}");
}

#[test]
fn white_space_of_tokens_is_read_once() {
    let flags = TokenFlags { lstrip: true, rstrip: true, ..TokenFlags::default() };
    let added = [Added { text: "\n", special: false, flags }, Added { text: "<|a|>", special: true, flags }];
    let ours = Tokenizer::new(both("gpt-2", &added, false).0).unwrap();
    let started = std::time::Instant::now();
    let text = format!("<|a|>{}", "\n".repeat(1_000_000));
    assert_eq!(ours.encode(&text, PARSED).unwrap().len(), 1_000_001);
    assert_eq!(ours.fewest_tokens(&text), 1);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// A token of a text that a template inserted stays text, also where its normal form is a control token.
#[test]
fn texts_of_a_rendered_prompt_contain_no_control_tokens_in_any_normal_form() {
    let flags = TokenFlags { normalized: true, ..TokenFlags::default() };
    let added = [Added { text: "K|", special: true, flags }, Added { text: "<|a|>", special: true, flags }];
    for (name, prefix) in [("gpt-2", false), ("gemma4", true)] {
        let ours = Tokenizer::new(both(name, &added, prefix).0).unwrap();
        let is_special = |text: &str, plain: &[usize]| {
            let ids = ours.encode_rendered(text, plain, usize::MAX).unwrap();
            ids.iter().filter(|&&id| ours.is_special(id)).count()
        };
        assert_eq!(is_special("<|a|> <|a|> <|a|>", &[]), 3, "{name}");
        assert_eq!(is_special("<|a|> <|a|> <|a|>", &[6]), 2, "{name}");
        assert_eq!(is_special(" e\u{301} <|a|> <|a|>", &[5]), 1, "{name}");
        // The Kelvin sign becomes K.
        assert_eq!(is_special("\u{212a}|", &[]), 0, "{name}");
    }
}

#[test]
fn flags_of_ids_beyond_the_vocabulary_are_refused() {
    let (mut vocabulary, _) = both("gpt-2", &[], false);
    vocabulary.flags.insert(100_000, TokenFlags::default());
    match Tokenizer::new(vocabulary) {
        Err(TokenizerError::SpecialOutOfRange { id: 100_000, .. }) => {}
        other => panic!("{other:?}"),
    }
}
