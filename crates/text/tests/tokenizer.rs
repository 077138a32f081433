//! The tokenizers against transformers, on the vocabularies and texts that `scripts/golden/tokenizer.py` wrote.

use std::time::{Duration, Instant};

use gristmill_text::tokenizer::{EncodeOptions, StreamDecoder, Tokenizer, TokenizerError, Vocabulary};
use serde_json::Value;

const ALL: [&str; 16] = [
    "gpt-2",
    "smollm",
    "default",
    "llama-bpe",
    "qwen2",
    "tekken",
    "gpt-4o",
    "tiny_aya",
    "exaone-moe",
    "afmoe",
    "deepseek-v3",
    "deepseek-llm",
    "kimi-k2",
    "youtu",
    "llama",
    "gemma4",
];

const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

fn golden(name: &str) -> Value {
    let path = format!("{}/tests/golden/tokenizer/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn vocabulary(golden: &Value) -> Vocabulary {
    let id = |key: &str| golden[key].as_u64().map(|id| id as u32);
    Vocabulary {
        model: golden["model"].as_str().unwrap().to_owned(),
        pre: golden["pre"].as_str().map(str::to_owned),
        tokens: strings(&golden["tokens"]),
        scores: golden["scores"].as_array().unwrap().iter().map(|score| score.as_f64().unwrap() as f32).collect(),
        types: golden["types"].as_array().unwrap().iter().map(|kind| kind.as_i64().unwrap() as i32).collect(),
        merges: strings(&golden["merges"]),
        bos: id("bos"),
        eos: id("eos"),
        unknown: id("unknown"),
        add_bos: golden["add_bos"].as_bool(),
        ..Vocabulary::default()
    }
}

fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::new(vocabulary(&golden(name))).unwrap()
}

/// SplitMix64; the seed is in every message.
struct Random(u64);

impl Random {
    fn new() -> (Self, u64) {
        let seed = gristmill_suite::testing::seed_of_test();
        (Self(seed), seed)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % n
    }

    /// Characters of all planes, half of them ASCII.
    fn text(&mut self, length: usize) -> String {
        let any = |random: &mut Self| char::from_u32(random.below(0x11_0000) as u32).unwrap_or('\n');
        let ascii = |random: &mut Self| random.below(128) as u8 as char;
        (0..length).map(|_| if self.below(2) == 0 { any(self) } else { ascii(self) }).collect()
    }
}

fn check_cases(name: &str, tokenizer: &Tokenizer, cases: &Value, texts: &[String]) {
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), texts.len());
    for (case, text) in cases.iter().zip(texts) {
        let expected = ids(&case["ids"]);
        assert_eq!(tokenizer.encode(text, PARSED).unwrap(), expected, "{name}: {text:?}");
        let plain = case.get("plain").map_or(expected.clone(), ids);
        assert_eq!(tokenizer.encode(text, PLAIN).unwrap(), plain, "{name}: {text:?} without special tokens");
        let decoded = case["decoded"].as_str().unwrap();
        assert_eq!(tokenizer.decode(&expected, true).unwrap(), decoded, "{name}: {text:?}");
        let whole = case.get("decoded_whole").map_or(decoded, |whole| whole.as_str().unwrap());
        assert_eq!(tokenizer.decode(&expected, false).unwrap(), whole, "{name}: {text:?}");
    }
}

#[test]
fn ids_and_texts_are_those_of_transformers() {
    let texts = strings(&golden("corpus"));
    assert!(texts.len() > 200);
    for name in ALL {
        let golden = golden(name);
        let tokenizer = Tokenizer::new(vocabulary(&golden)).unwrap();
        check_cases(name, &tokenizer, &golden["cases"], &texts);
        for case in golden["broken"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), case["decoded"].as_str().unwrap(), "{name}: {ids:?}");
        }
    }
    let golden = golden("llama");
    let without = Vocabulary { add_space_prefix: Some(false), ..vocabulary(&golden) };
    check_cases("llama", &Tokenizer::new(without).unwrap(), &golden["cases_without_prefix"], &texts);
}

#[test]
fn random_texts_survive_the_round_trip() {
    let (mut random, seed) = Random::new();
    for name in ALL {
        let tokenizer = tokenizer(name);
        for _ in 0..200 {
            let length = random.below(60);
            let mut text = random.text(length);
            if name == "qwen2" {
                // Its normal form C changes other texts.
                text.retain(|c| c.is_ascii());
            }
            if matches!(name, "llama" | "gemma4") {
                // Both are written as U+2581.
                text = text.replace('\u{2581}', " ");
            }
            let ids = tokenizer.encode(&text, PLAIN).unwrap();
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text, "{name}, seed {seed}");
            assert!(ids.iter().all(|&id| !tokenizer.is_special(id)), "{name}: {text:?}, seed {seed}");
        }
    }
}

#[test]
fn text_cannot_forge_special_tokens() {
    for name in ALL {
        let tokenizer = tokenizer(name);
        let special = |id: u32| tokenizer.is_special(id);
        let size = tokenizer.vocab_size() as u32;
        let text: String = (0..size).filter(|&id| special(id)).map(|id| tokenizer.token_text(id).unwrap()).collect();
        assert!(!text.is_empty());
        let plain = tokenizer.encode(&text, PLAIN).unwrap();
        assert!(plain.iter().all(|&id| !special(id)), "{name}");
        assert_eq!(tokenizer.decode(&plain, true).unwrap(), text, "{name}");
        assert!(tokenizer.encode(&text, PARSED).unwrap().iter().all(|&id| special(id)), "{name}");
    }
}

#[test]
fn streaming_gives_the_same_text_and_never_half_a_character() {
    let (mut random, seed) = Random::new();
    for name in ALL {
        let tokenizer = tokenizer(name);
        for round in 0..300 {
            let skip_special = round % 2 == 0;
            // Half of them texts, half of them noise.
            let ids = if round % 4 < 2 {
                let length = random.below(30);
                tokenizer.encode(&random.text(length), PARSED).unwrap()
            } else {
                (0..random.below(30)).map(|_| random.below(tokenizer.vocab_size()) as u32).collect()
            };
            let whole = tokenizer.decode(&ids, skip_special).unwrap();
            let mut stream = StreamDecoder::new(skip_special);
            let mut text = String::new();
            for &id in &ids {
                text += &stream.push(&tokenizer, id).unwrap();
                assert!(whole.starts_with(&text), "{name}: {ids:?}, seed {seed}");
            }
            text += &stream.finish();
            assert_eq!(text, whole, "{name}: {ids:?}, seed {seed}");
        }
    }
}

#[test]
fn streaming_holds_back_incomplete_characters_only() {
    let tokenizer = tokenizer("llama");
    let bytes = |text: &str| -> Vec<u32> {
        let texts = text.bytes().map(|byte| format!("<0x{byte:02X}>"));
        let find = |text: String| (0..).find(|&id| tokenizer.token_text(id).unwrap() == text).unwrap();
        texts.map(find).collect()
    };
    let ids = bytes("a😀中");
    let mut stream = StreamDecoder::new(true);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(&tokenizer, id).unwrap()).collect();
    assert_eq!(pieces, ["a", "", "", "", "😀", "", "", "中"]);
    assert_eq!(stream.finish(), "");

    // A character that is broken off, by a letter and by the end.
    let mut stream = StreamDecoder::new(true);
    let ids = [&bytes("中")[..2], &bytes("a")[..], &bytes("😀")[..3]].concat();
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(&tokenizer, id).unwrap()).collect();
    assert_eq!(pieces, ["", "", "\u{fffd}a", "", "", ""]);
    assert_eq!(stream.finish(), "\u{fffd}");

    // The first space is SentencePiece's own at the start of a text, but not in the middle of one.
    let ids = tokenizer.encode("mill", PLAIN).unwrap();
    let stream =
        |mut stream: StreamDecoder| -> String { ids.iter().map(|&id| stream.push(&tokenizer, id).unwrap()).collect() };
    assert_eq!(stream(StreamDecoder::new(true)), "mill");
    assert_eq!(stream(StreamDecoder::continuing(true)), " mill");
}

#[test]
fn special_tokens_are_added_where_asked() {
    let add = EncodeOptions { add_special: true, parse_special: false };
    for name in ALL {
        let vocabulary = vocabulary(&golden(name));
        let (bos, eos) = (vocabulary.bos.unwrap(), vocabulary.eos.unwrap());
        let build = |add_bos, add_eos| Tokenizer::new(Vocabulary { add_bos, add_eos, ..vocabulary.clone() }).unwrap();
        let both = build(Some(true), Some(true));
        assert_eq!(both.encode("", add).unwrap(), [bos, eos], "{name}");
        assert_eq!(both.encode("", PLAIN).unwrap(), [0; 0], "{name}");
        let text = both.encode("mill", PLAIN).unwrap();
        assert_eq!(both.encode("mill", add).unwrap(), [&[bos], &text[..], &[eos]].concat(), "{name}");
        assert_eq!(build(Some(false), None).encode("mill", add).unwrap(), text, "{name}");
        // A text that has them already gets no second ones.
        let [begin, end] = [bos, eos].map(|id| both.token_text(id).unwrap().to_owned());
        for written in [format!("{begin}mill"), format!("mill{end}"), format!("{begin}mill{end}")] {
            let found = both.encode(&written, EncodeOptions::RAW).unwrap();
            let count = |id| found.iter().filter(|&&found| found == id).count();
            assert_eq!(
                (count(bos), count(eos), found[0], found[found.len() - 1]),
                (1, 1, bos, eos),
                "{name}: {written}"
            );
            // As text they are text.
            assert!(both.encode(&written, add).unwrap().len() > found.len(), "{name}: {written}");
        }
        // Each family's default when the file does not say.
        let habit = matches!(name, "llama" | "gemma4" | "llama-bpe" | "tekken");
        assert_eq!(build(None, None).adds_bos(), habit, "{name}");
        assert!(both.is_end_of_generation(eos) && !both.is_end_of_generation(bos), "{name}");
        assert!(!both.is_end_of_generation(u32::MAX));
    }
}

/// gpt-oss ends each message of an answer with `<|end|>`, and the answer with `<|return|>` or `<|call|>`.
#[test]
fn the_end_of_a_message_is_not_that_of_a_generation() {
    let ends = |names: [&str; 3]| {
        let mut vocabulary = vocabulary(&golden("gpt-4o"));
        let first = vocabulary.types.iter().position(|&kind| kind == 3).unwrap();
        vocabulary.tokens[first..first + 3].clone_from_slice(&names.map(str::to_owned));
        let ids = [0, 1, 2].map(|i| (first + i) as u32);
        (vocabulary.eos, vocabulary.end_of_generation) = (Some(ids[0]), vec![ids[2]]);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        ids.map(|id| tokenizer.is_end_of_generation(id))
    };
    assert_eq!(ends(["<|return|>", "<|call|>", "<|end|>"]), [true, true, false]);
    assert_eq!(ends(["<|return|>", "<|call", "<|end|>"]), [true, false, true]);
    assert_eq!(ends(["<|endoftext|>", "<|call|>", "<|end|>"]), [true, true, true]);
}

#[test]
fn a_space_prefix_is_added_only_where_asked() {
    let vocabulary = vocabulary(&golden("gpt-2"));
    let prefixed = Tokenizer::new(Vocabulary { add_space_prefix: Some(true), ..vocabulary.clone() }).unwrap();
    let bare = Tokenizer::new(vocabulary).unwrap();
    let encode = |tokenizer: &Tokenizer, text| tokenizer.encode(text, PLAIN).unwrap();
    assert_eq!(encode(&prefixed, "mill"), encode(&bare, " mill"));
    assert_eq!(encode(&prefixed, " mill"), encode(&bare, " mill"));
    assert_ne!(encode(&bare, "mill"), encode(&bare, " mill"));
}

#[test]
fn damaged_vocabularies_are_refused_by_name() {
    type Damage = fn(&mut Vocabulary);
    let cases: [(&str, Damage, &str); 25] = [
        ("gpt-2", |v| v.model = "bert".into(), "tokenizer.ggml.model is \"bert\""),
        ("gpt-2", |v| v.pre = Some("gpt-9".into()), "tokenizer.ggml.pre is \"gpt-9\""),
        ("gpt-2", |v| v.pre = Some("gpt-9".into()), "llama-bpe, llama3, llama-v3, lfm2, falcon-h1, qwen2, qwen35"),
        ("llama", |v| v.pre = Some("qwen2".into()), "tokenizer.ggml.pre is \"qwen2\""),
        ("gemma4", |v| v.pre = Some("qwen2".into()), "tokenizer.ggml.pre is \"qwen2\""),
        ("gemma4", |v| v.merges.clear(), "tokenizer.ggml.merges has 0 entries"),
        ("gemma4", |v| v.merges[5] = "a nothing".into(), "tokenizer.ggml.merges[5] needs \"nothing\""),
        ("gpt-2", |v| v.tokens.clear(), "tokenizer.ggml.tokens has 0 entries"),
        ("gpt-2", |v| v.merges.clear(), "tokenizer.ggml.merges has 0 entries"),
        ("gpt-2", |v| v.types.truncate(3), "tokenizer.ggml.token_type has 3 entries"),
        ("gpt-2", |v| v.scores = vec![0.0], "tokenizer.ggml.scores has 1 entries"),
        ("llama", |v| v.types.clear(), "tokenizer.ggml.token_type has 0 entries"),
        ("llama", |v| v.scores.clear(), "tokenizer.ggml.scores has 0 entries"),
        ("llama", |v| v.scores[9] = f32::NAN, "tokenizer.ggml.scores[9] is not a number"),
        ("llama", |v| v.types[300] = 0, "tokenizer.ggml.token_type[300] is 0"),
        ("llama", |v| v.types[300] = 6, "tokenizer.ggml.tokens[300]"),
        ("gpt-2", |v| v.types[30] = 7, "tokenizer.ggml.token_type[30] is 7"),
        ("gpt-2", |v| v.types[30] = i32::MIN, "tokenizer.ggml.token_type[30] is -2147483648"),
        ("gpt-2", |v| v.bos = Some(100_000), "tokenizer.ggml.bos_token_id is 100000"),
        ("gpt-2", |v| v.end_of_generation = vec![u32::MAX], "eom_token_id is 4294967295"),
        ("llama", |v| (v.eos, v.add_eos) = (None, Some(true)), "tokenizer.ggml.eos_token_id is missing"),
        ("llama", |v| (v.bos, v.add_bos) = (None, Some(true)), "tokenizer.ggml.bos_token_id is missing"),
        ("gpt-2", |v| v.merges[5] = "ab".into(), "tokenizer.ggml.merges[5] is \"ab\""),
        ("gpt-2", |v| v.merges[5] = "a b c".into(), "tokenizer.ggml.merges[5] is \"a b c\""),
        ("gpt-2", |v| v.merges[5] = "a nothing".into(), "tokenizer.ggml.merges[5] needs \"nothing\""),
    ];
    for (name, damage, expected) in cases {
        let mut vocabulary = vocabulary(&golden(name));
        damage(&mut vocabulary);
        let error = Tokenizer::new(vocabulary).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?} in: {error}");
    }
}

#[test]
fn odd_vocabularies_are_handled() {
    // Ids outside the vocabulary.
    let gpt2 = tokenizer("gpt-2");
    let size = gpt2.vocab_size();
    for id in [size as u32, u32::MAX] {
        let error = TokenizerError::IdOutOfRange { id, vocab_size: size };
        assert_eq!(gpt2.decode(&[0, id], false), Err(error.clone()));
        assert_eq!(StreamDecoder::new(false).push(&gpt2, id), Err(error.clone()));
        assert_eq!(gpt2.token_text(id), Err(error));
    }

    // Empty and repeated tokens, and no token for most bytes.
    let small = Vocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: ["a", "", "b", "ab", "a", "<x>", "", "ĠĠ"].map(String::from).to_vec(),
        types: vec![1, 3, 1, 1, 4, 3, 4, 1],
        merges: vec!["a b".into()],
        ..Vocabulary::default()
    };
    let tokenizer = Tokenizer::new(Vocabulary { types: vec![], ..small.clone() }).unwrap();
    assert_eq!(tokenizer.encode("aba", PARSED), Ok(vec![3, 0]));
    // Bytes without a token are dropped, and never turned into the unknown token, which is a control token in many
    // files.
    let unknown = Tokenizer::new(Vocabulary { unknown: Some(5), types: vec![], ..small.clone() }).unwrap();
    for tokenizer in [&tokenizer, &unknown] {
        assert_eq!(tokenizer.encode("ab éab", PLAIN), Ok(vec![3, 3]));
    }
    // "a" is user-defined as well, so it never reaches the merges.
    let defined = Tokenizer::new(small.clone()).unwrap();
    assert_eq!(defined.encode("ab<x>", PARSED), Ok(vec![4, 2, 5]));
    // A merge that leads to a special token is not taken.
    let forged = Tokenizer::new(Vocabulary { types: vec![1, 1, 1, 3, 1, 3, 1, 1], ..small }).unwrap();
    assert_eq!(forged.encode("ab", PLAIN), Ok(vec![0, 2]));
    assert_eq!(forged.encode("ab", PARSED), Ok(vec![3]));
}

#[test]
fn unknown_characters_without_byte_tokens_join_into_one_unknown_token() {
    let tokens = ["<unk>", "<s>", "a", "b", "ab", "▁"].map(String::from).to_vec();
    let vocabulary = Vocabulary {
        model: "llama".into(),
        scores: vec![0.0, 0.0, -2.0, -3.0, -1.0, -4.0],
        types: vec![2, 3, 1, 1, 1, 1],
        unknown: Some(0),
        tokens,
        ..Vocabulary::default()
    };
    let tokenizer = Tokenizer::new(vocabulary.clone()).unwrap();
    assert_eq!(tokenizer.encode("ab中文ba", PLAIN), Ok(vec![5, 4, 0, 3, 2]));
    let without = Tokenizer::new(Vocabulary { unknown: None, ..vocabulary }).unwrap();
    assert!(matches!(without.encode("中", PLAIN), Err(TokenizerError::NoToken { text, .. }) if text == "中"));
}

/// A long word: quadratic work would take minutes, recursion would overflow the stack.
#[test]
fn one_character_repeated_takes_linear_time() {
    for name in ALL {
        let tokenizer = tokenizer(name);
        for c in ["a", " ", "\n", "1", "!", "é", "中", "A", "\u{301}", "'", "\t\n "] {
            let text = c.repeat((1 << 18) / c.len());
            let start = Instant::now();
            let ids = tokenizer.encode(&text, PARSED).unwrap();
            assert!(start.elapsed() < Duration::from_secs(20), "{name}: {c:?} took {:?}", start.elapsed());
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{name}: {c:?}");
        }
    }
}

#[test]
fn a_text_with_too_many_tokens_is_refused_early() {
    let (mut random, seed) = Random::new();
    for name in ALL {
        let tokenizer = tokenizer(name);
        for _ in 0..300 {
            let length = random.below(30);
            let text = random.text(length);
            for options in [PLAIN, PARSED] {
                let ids = tokenizer.encode(&text, options).unwrap();
                assert!(tokenizer.fewest_tokens(&text) <= ids.len(), "{name}: {text:?}, seed {seed}");
                assert_eq!(tokenizer.encode_at_most(&text, options, ids.len()).as_ref(), Ok(&ids), "{name}: {text:?}");
                let fewer = ids.len().checked_sub(1).map(|most| tokenizer.encode_at_most(&text, options, most));
                let refused = |error: &TokenizerError| {
                    matches!(error, TokenizerError::TooManyTokens { at_least, .. }
                    if *at_least <= ids.len())
                };
                assert!(fewer.is_none_or(|fewer| fewer.is_err_and(|error| refused(&error))), "{name}: {text:?}");
            }
        }
        // To encode such a text takes half a minute and a gigabyte.
        for unit in [" ", "a", "word ", "\n", "1"] {
            let text = unit.repeat((32 << 20) / unit.len());
            let start = Instant::now();
            let refused = tokenizer.encode_at_most(&text, PLAIN, 8_192);
            assert!(matches!(refused, Err(TokenizerError::TooManyTokens { .. })), "{name}: {unit:?}");
            assert!(start.elapsed() < Duration::from_secs(3), "{name}: {unit:?} took {:?}", start.elapsed());
        }
    }
}
