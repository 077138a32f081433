//! Recognises the pre-tokenizer of byte-level BPE by the steps that `tokenizer.json` lists.
//!
//! Only a pipeline whose every step is known has a name: one that differs in a single character of its regular
//! expression cuts other words, and the model would read other tokens than it was trained on.

use gristmill_files::json::cut;
use gristmill_text::tokenizer::Family;
use gristmill_text::tokenizer::Step::{self, ByteLevel, Digits, Split};
use serde_json::Value;

use super::json::TokenizerJson;
use crate::error::ConvertError;

/// The name of the pipeline; of several, the one that is `usual` for the model.
pub(super) fn recognise(json: &TokenizerJson, usual: Option<&str>) -> Result<&'static str, ConvertError> {
    let whole_words = json.model.ignore_merges;
    let found = nfc(&json.normalizer).zip(steps(&json.pre_tokenizer));
    let name = found.and_then(|(nfc, steps)| Family::recognise(nfc, &steps, whole_words, usual));
    name.ok_or_else(|| ConvertError::PreTokenizer {
        path: json.path.clone(),
        // Long enough for the longest known expression.
        found: format!(
            "normalizer {}, pre_tokenizer {}, ignore_merges {whole_words}",
            cut(&json.normalizer, 200),
            cut(&json.pre_tokenizer, 1000)
        ),
        known: Family::recognised(),
    })
}

/// Whether the normaliser is normal form C; `None` for one other than that or none.
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
        "Split" => {
            let regex = pre_tokenizer["pattern"]["Regex"].as_str()?;
            match (pre_tokenizer["behavior"].as_str()?, setting("invert")?) {
                ("Isolated", false) => vec![Split(regex)],
                // What is between matches is dropped: nothing, if every character is in a match.
                ("Removed", true) if Family::matches_all(regex) => vec![Split(regex)],
                _ => return None,
            }
        }
        "Digits" if setting("individual_digits") == Some(true) => vec![Digits],
        "ByteLevel" if setting("add_prefix_space") == Some(false) => {
            let words = if pre_tokenizer.get("use_regex").is_none() { true } else { setting("use_regex")? };
            vec![ByteLevel { words }]
        }
        _ => return None,
    })
}
