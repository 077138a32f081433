//! Recognises the pre-tokenizer of byte-level BPE by the steps that `tokenizer.json` lists.
//!
//! Only a pipeline whose every step is known has a name: one that differs in a single character of its regular expression
//! cuts other words, and the model would read other tokens than it was trained on.

use std::path::Path;

use serde_json::Value;

use super::json::TokenizerJson;
use crate::convert::error::{ConvertError, cut};

/// A pipeline: its name as `tokenizer.ggml.pre`, and what `tokenizer.json` says of it.
struct Known {
    name: &'static str,
    /// Text is brought into Unicode normal form C.
    nfc: bool,
    /// Words that are tokens are taken whole (`ignore_merges`).
    whole_words: bool,
    steps: &'static [Step<'static>],
}

/// One step of a pipeline.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    /// Matches of this expression are words, and what is between them.
    Split(&'a str),
    /// Every digit is a word.
    Digits,
    /// Bytes to the byte alphabet; cuts words by GPT-2's expression or not at all.
    ByteLevel { words: bool },
}

use Step::{ByteLevel, Digits, Split};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const WHOLE: Step = ByteLevel { words: false };
const WORDS: Step = ByteLevel { words: true };

const fn known(name: &'static str, steps: &'static [Step<'static>]) -> Known {
    Known { name, nfc: false, whole_words: false, steps }
}

const KNOWN: &[Known] = &[
    known("gpt-2", &[WORDS]),
    known("smollm", &[Digits, WORDS]),
    known("deepseek-r1-qwen", &[Split(QWEN2), WHOLE]),
    Known { nfc: true, ..known("olmo", &[WORDS]) },
    Known { nfc: true, ..known("qwen2", &[Split(QWEN2), WHOLE]) },
    Known { whole_words: true, ..known("llama-bpe", &[Split(LLAMA3), WHOLE]) },
    Known { whole_words: true, ..known("gpt-4o", &[Split(GPT4O), WHOLE]) },
    Known { whole_words: true, ..known("tekken", &[Split(TEKKEN), WHOLE]) },
];

/// The name of the pipeline.
pub(super) fn recognise(path: &Path, json: &TokenizerJson) -> Result<&'static str, ConvertError> {
    let found = nfc(&json.normalizer).zip(steps(&json.pre_tokenizer));
    let same = |known: &&Known| {
        let (nfc, steps) = found.as_ref()?;
        (known.nfc == *nfc && known.steps == *steps && known.whole_words == json.model.ignore_merges).then_some(())
    };
    match KNOWN.iter().find(|known| same(known).is_some()) {
        Some(known) => Ok(known.name),
        None => Err(ConvertError::PreTokenizer {
            path: path.to_owned(),
            // Long enough for the longest known expression.
            found: format!(
                "normalizer {}, pre_tokenizer {}, ignore_merges {}",
                cut(&json.normalizer, 200),
                cut(&json.pre_tokenizer, 1000),
                json.model.ignore_merges
            ),
            known: KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// Whether the normaliser is normal form C or none at all; otherwise nothing.
fn nfc(normalizer: &Value) -> Option<bool> {
    match normalizer["type"].as_str() {
        None if normalizer.is_null() => Some(false),
        Some("NFC") => Some(true),
        Some("Sequence") => match normalizer["normalizers"].as_array()?.as_slice() {
            [] => Some(false),
            [one] => nfc(one),
            _ => None,
        },
        _ => None,
    }
}

/// The steps, if every one is known and has none but the usual settings.
fn steps(pre_tokenizer: &Value) -> Option<Vec<Step<'_>>> {
    let setting = |key: &str| pre_tokenizer.get(key).and_then(Value::as_bool);
    Some(match pre_tokenizer["type"].as_str()? {
        "Sequence" => {
            let parts = pre_tokenizer["pretokenizers"].as_array()?;
            let parts: Option<Vec<_>> = parts.iter().map(steps).collect();
            parts?.into_iter().flatten().collect()
        }
        "Split" if pre_tokenizer["behavior"] == "Isolated" && setting("invert") == Some(false) => {
            vec![Split(pre_tokenizer["pattern"]["Regex"].as_str()?)]
        }
        "Digits" if setting("individual_digits") == Some(true) => vec![Digits],
        "ByteLevel" if setting("add_prefix_space") == Some(false) => {
            let words = if pre_tokenizer.get("use_regex").is_none() { true } else { setting("use_regex")? };
            vec![ByteLevel { words }]
        }
        _ => return None,
    })
}
