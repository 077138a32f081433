//! Special tokens: which ids start and end a text, and which of them are added to it.

use gristmill_files::gguf::Value;
use gristmill_files::json::cut;
use gristmill_text::tokenizer::TokenFlags;
use serde_json::Value as Json;

use super::json::TokenizerJson;
use super::tokens::{Added, Token};
use crate::config::Config;
use crate::error::ConvertError;
use crate::keys::Pairs;

/// The names of special tokens in the settings and in GGUF (`tokenizer.ggml.{name}_token_id`; the spelling of the
/// separator is that of the format).
const ROLES: &[(&str, &str)] = &[
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("cls", "cls"),
    ("mask", "mask"),
];

/// The texts of the special tokens that `tokenizer_config.json` names.
pub(super) fn named(about: &Config) -> Result<Vec<&str>, ConvertError> {
    ROLES.iter().filter_map(|&(role, _)| text(about, role).transpose()).collect()
}

/// A token is given as its text, or as an object with a `content`; `null` means that there is no token.
fn text<'a>(about: &'a Config, role: &str) -> Result<Option<&'a str>, ConvertError> {
    let key = format!("{role}_token");
    let wrong = |found| about.wrong_type(&key, found, "a string, or an object whose \"content\" is one");
    match about.value(&key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text)),
        Some(other) => other["content"].as_str().map(Some).ok_or_else(|| wrong(other)),
    }
}

/// `added_tokens_decoder` of `tokenizer_config.json`: ids and tokens.
pub(super) fn decoder(about: &Config) -> Result<Vec<(u32, Added)>, ConvertError> {
    let key = "added_tokens_decoder";
    let Some(value) = about.value(key) else { return Ok(Vec::new()) };
    let read = || {
        let entries = value.as_object()?.iter().map(|(id, entry)| {
            let flag = |name| entry.get(name).map_or(Some(false), Json::as_bool);
            let flags = TokenFlags {
                lstrip: flag("lstrip")?,
                rstrip: flag("rstrip")?,
                single_word: flag("single_word")?,
                normalized: flag("normalized")?,
            };
            let text = entry["content"].as_str()?.to_owned();
            Some((id.parse().ok()?, Added { text, special: flag("special")?, flags }))
        });
        entries.collect::<Option<Vec<_>>>()
    };
    let expected = "an object of ids, each with a string \"content\" and, if at all, a boolean \"special\" and other boolean flags";
    read().ok_or_else(|| about.wrong_type(key, value, expected))
}

/// The keys of special tokens. `usual`: role and text of those that the family has, whatever the settings say.
pub(super) fn read(
    json: Option<&TokenizerJson>,
    about: &Config,
    config: &Config,
    usual: &[(&str, &str)],
    tokens: &[Token],
    notes: &mut Vec<String>,
) -> Result<Pairs, ConvertError> {
    let id_of = |text: &str| tokens.iter().position(|token| token.text == text).and_then(|id| u32::try_from(id).ok());
    let mut pairs = Pairs::new();
    let mut ids = [None; ROLES.len()];
    for (&(theirs, ours), found) in ROLES.iter().zip(&mut ids) {
        let named = text(about, theirs)?;
        let key = format!("{theirs}_token_id");
        let number = match config.value(&key) {
            Some(Json::Null) => None,
            // Some models have a list of ids that end a text; the tokenizer's own comes first then.
            Some(Json::Array(ids)) if theirs == "eos" && ids.iter().all(Json::is_u64) => None,
            _ => config.count(&key)?,
        };
        let usual = usual.iter().find(|(role, _)| *role == ours).map(|(_, text)| *text);
        *found = usual.and_then(id_of).or(named.and_then(id_of)).or(number);
        if let Some(id) = found.filter(|&id| id as usize >= tokens.len()) {
            notes.push(format!("{key} is {id}, which is not a token id; it is left out"));
            *found = None;
        }
        if let Some(id) = *found {
            pairs.push((format!("{ours}_token_id"), Value::U32(id)));
        }
    }

    let ends = usual.iter().filter(|(role, _)| ROLES.iter().all(|(_, known)| known != role));
    pairs.extend(ends.filter_map(|(role, text)| Some((format!("{role}_token_id"), Value::U32(id_of(text)?)))));

    let added = json.map_or(Ok(Ends::default()), |json| {
        added(&json.post_processor).map_err(|problem| json.wrong("post_processor", problem))
    })?;
    for (role, ends, id) in [("bos", added.first, ids[0]), ("eos", added.last, ids[1])] {
        let key = format!("add_{role}_token");
        let said = if about.value(&key) == Some(&Json::Null) { Some(false) } else { about.flag(&key)? };
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

/// The token that the post-processor adds at one end of a text.
#[derive(Default, Clone, Copy)]
enum End<'a> {
    /// Unspecified.
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

/// Reads the post-processor, one step or a sequence.
///
/// # Errors
/// The problem of the post-processor.
fn added(processor: &Json) -> Result<Ends<'_>, String> {
    let mut ends = Ends::default();
    let list = |step: &'_ Json, key: &str| match step.get(key) {
        Some(Json::Array(_)) | None => Ok(()),
        Some(other) => Err(format!("`{key}` is {}; expected: a list", cut(other, 80))),
    };
    list(processor, "processors")?;
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
                list(step, "single")?;
                let Some([first, .., last]) = step["single"].as_array().map(Vec::as_slice) else { continue };
                for (end, piece) in [(&mut ends.first, first), (&mut ends.last, last)] {
                    if let Some(token) = piece.get("SpecialToken") {
                        let wrong =
                            || format!("`SpecialToken` is {}; expected: an object with a string `id`", cut(token, 80));
                        *end = End::Token(token["id"].as_str().ok_or_else(wrong)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(ends)
}
