//! Special tokens: which ids begin and end a text, and which of them are added to it.

use serde_json::Value as Json;

use super::json::TokenizerJson;
use super::{Added, Token};
use crate::convert::config::Config;
use crate::convert::error::{ConvertError, cut};
use crate::convert::keys::Pairs;
use crate::gguf::Value;

/// What a token is called in the settings and in GGUF (`tokenizer.ggml.{name}_token_id`; the spelling of the separator is
/// that of the format).
const ROLES: &[(&str, &str)] = &[
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("cls", "cls"),
    ("mask", "mask"),
];

/// The settings' name and the text of the special tokens that `tokenizer_config.json` names.
pub(super) fn named(about: &Config) -> impl Iterator<Item = (&'static str, &str)> {
    ROLES.iter().filter_map(|&(role, _)| Some((role, text(about, role)?)))
}

/// A token is given as its text, or as an object with a `content`.
fn text<'a>(about: &'a Config, role: &str) -> Option<&'a str> {
    match about.value(&format!("{role}_token"))? {
        Json::String(text) => Some(text),
        other => other["content"].as_str(),
    }
}

/// `added_tokens_decoder` of `tokenizer_config.json`: ids and tokens.
pub(super) fn decoder(about: &Config) -> Result<Vec<(u32, Added)>, ConvertError> {
    let key = "added_tokens_decoder";
    let Some(value) = about.value(key) else { return Ok(Vec::new()) };
    let read = || {
        let entries = value.as_object()?.iter().map(|(id, entry)| {
            let special = entry["special"].as_bool().unwrap_or(false);
            Some((id.parse().ok()?, Added { text: entry["content"].as_str()?.to_owned(), special }))
        });
        entries.collect::<Option<Vec<_>>>()
    };
    read().ok_or_else(|| about.wrong(key, value, "an object of ids, each with a \"content\""))
}

/// The keys of special tokens.
pub(super) fn read(
    json: Option<&TokenizerJson>,
    about: &Config,
    config: &Config,
    tokens: &[Token],
    notes: &mut Vec<String>,
) -> Result<Pairs, ConvertError> {
    let id_of = |text: &str| tokens.iter().position(|token| token.text == text).and_then(|id| u32::try_from(id).ok());
    let mut pairs = Pairs::new();
    let mut ids = [None; ROLES.len()];
    for (&(theirs, ours), found) in ROLES.iter().zip(&mut ids) {
        let named = text(about, theirs);
        let key = format!("{theirs}_token_id");
        // Some models have a list of ids that end a text; the tokenizer's own comes first then.
        let number = config.value(&key).filter(|value| !value.is_array()).map(|_| config.count(&key));
        let number = number.transpose()?.flatten();
        *found = named.and_then(id_of).or(number);
        if let Some(id) = found.filter(|&id| id as usize >= tokens.len()) {
            notes.push(format!("{key} is {id}, which is no token; it is left out"));
            *found = None;
        }
        if let Some(id) = *found {
            pairs.push((format!("{ours}_token_id"), Value::U32(id)));
        }
    }

    let added = json.map(|json| added(&json.post_processor)).unwrap_or_default();
    for (role, ends, id) in [("bos", added.first, ids[0]), ("eos", added.last, ids[1])] {
        let said = about.flag(&format!("add_{role}_token"))?;
        let adds = match ends {
            End::Nothing => said,
            End::None => Some(false),
            End::Token(text) if id.is_some() && id_of(text) == id => Some(true),
            End::Token(text) => {
                let text = cut(text, 80);
                notes.push(format!(
                    "the tokenizer adds {text:?} to texts, which is not its {role} token; it is not added"
                ));
                Some(false)
            }
        };
        if let Some(adds) = adds {
            pairs.push((format!("add_{role}_token"), Value::Bool(adds)));
        }
    }
    Ok(pairs)
}

/// What the post-processor adds at one end of a text.
#[derive(Default, Clone, Copy)]
enum End<'a> {
    /// It says nothing about that.
    #[default]
    Nothing,
    /// No token.
    None,
    Token(&'a str),
}

#[derive(Default)]
struct Ends<'a> {
    first: End<'a>,
    last: End<'a>,
}

/// Reads the post-processor, one step or a sequence of them.
fn added(processor: &Json) -> Ends<'_> {
    let mut ends = Ends::default();
    let steps = match processor["processors"].as_array() {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(processor),
    };
    for step in steps {
        match step["type"].as_str() {
            Some("ByteLevel") => {
                for end in [&mut ends.first, &mut ends.last] {
                    if matches!(end, End::Nothing) {
                        *end = End::None;
                    }
                }
            }
            Some("TemplateProcessing") => {
                let Some([first, .., last]) = step["single"].as_array().map(Vec::as_slice) else { continue };
                for (end, piece) in [(&mut ends.first, first), (&mut ends.last, last)] {
                    if let Some(text) = piece["SpecialToken"]["id"].as_str() {
                        *end = End::Token(text);
                    }
                }
            }
            _ => {}
        }
    }
    ends
}
