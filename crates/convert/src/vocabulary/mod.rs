//! The tokenizer and the chat template, from `tokenizer.model` or `tokenizer.json` with `tokenizer_config.json`.
//!
//! `tokenizer.model` (SentencePiece) comes first, because it has the scores that `tokenizer.json` lacks.

mod byte_level;
mod flags;
mod json;
mod merged;
mod pre;
mod scored;
mod sentencepiece;
mod special;
mod template;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use gristmill_files::gguf::{Array, Value};
use gristmill_files::json::cut;
use gristmill_text::tokenizer::{TokenFlags, TokenType as Kind};

use super::config::Config;
use super::error::ConvertError;
use super::family::Family;
use super::keys::Pairs;
use super::mlx::Target;
use json::TokenizerJson;

pub(super) use template::named_files as template_files;

/// A token: text, score, kind.
#[derive(Debug, Clone)]
struct Token {
    text: String,
    score: f32,
    kind: Kind,
}

/// A vocabulary to be written.
struct Vocabulary {
    /// `gpt2`, `llama` or what the family says.
    model: &'static str,
    /// `None` leaves the key out.
    pre: Option<String>,
    tokens: Vec<Token>,
    scored: bool,
    merges: Vec<String>,
    /// `None` leaves the key out: the model's default.
    space_prefix: Option<bool>,
    /// Whether a beginning-of-sequence token is added, whatever the tokenizer's settings say.
    adds_bos: Option<bool>,
}

/// A token that was added to a vocabulary, from any of the files that say so.
#[derive(Debug, Clone)]
struct Added {
    text: String,
    special: bool,
    flags: TokenFlags,
}

/// The flags of added tokens, by id.
type Flags = BTreeMap<u32, TokenFlags>;

/// Settings of `tokenizer_config.json` whose `null` means that they are not set, as in transformers: no template, a
/// space before the text if the model wants one. `add_bos_token` is not among them: its `null` is false.
const NULLS: &[&str] = &["chat_template", "add_prefix_space"];

/// Reads all keys under `tokenizer.`, and those of flags that the engine reads. Notes for the user are appended to `notes`.
///
/// `size`: rows of the embedding table. Ids without a token get fillers. `pre`: the pre-tokenizer, if the user names it;
/// `name`: that of the model.
pub(super) fn read(
    folder: &Path,
    config: &Config,
    family: &Family,
    size: usize,
    (pre, name, target): (Option<&str>, &str, Target),
    notes: &mut Vec<String>,
) -> Result<Pairs, ConvertError> {
    let about = Config::read_optional(&folder.join("tokenizer_config.json"))?.without_nulls(NULLS);
    let [model_path, json_path] = ["tokenizer.model", "tokenizer.json"].map(|name| folder.join(name));
    let json = match json_path.exists() {
        true => Some(TokenizerJson::read(&json_path)?),
        false => None,
    };
    let piece_model = match model_path.exists() && family.merges.is_none() {
        true => sentencepiece::read(&model_path, json.is_some(), notes)?,
        false => None,
    };
    let no_pre = |path: &Path| match pre {
        Some(pre) => Err(ConvertError::PreUnused { path: path.to_owned(), pre: pre.to_owned() }),
        None => Ok(()),
    };
    let vocabulary = match (&family.merges, piece_model, &json) {
        (Some(merges), _, Some(json)) => {
            no_pre(&json_path)?;
            merged::read(json, &about, merges, size)?
        }
        (_, Some(model), _) => {
            no_pre(&model_path)?;
            scored::from_model(&model_path, model, json.as_ref(), folder, &about, size)?
        }
        (_, None, Some(json)) if json.model.byte_fallback => {
            no_pre(&json_path)?;
            scored::from_json(json, &about, size)?
        }
        (_, None, Some(json)) => byte_level::read(json, &about, size, pre, family.pre)?,
        (_, None, None) => return Err(ConvertError::NoTokenizer(folder.to_owned())),
    };

    let mut pairs = Pairs::new();
    let mut set = |key: &str, value: Value| pairs.push((format!("tokenizer.ggml.{key}"), value));
    set("model", vocabulary.model.into());
    if let Some(pre) = vocabulary.pre {
        set("pre", pre.into());
    }
    let specials = special::read(json.as_ref(), &about, config, family.special_tokens, &vocabulary.tokens, notes)?;
    let mut flags = json.as_ref().map_or(Flags::new(), TokenizerJson::flags);
    // In transformers, these settings replace those of tokenizer.json.
    flags.extend(special::decoder(&about)?.into_iter().map(|(id, added)| (id, added.flags)));
    flags.retain(|&id, _| (id as usize) < vocabulary.tokens.len());
    if vocabulary.scored && json.as_ref().is_some_and(|json| json.normalizer.is_null()) {
        // A pre-tokenizer writes the spaces, after all added tokens are found.
        flags.values_mut().for_each(|flags| flags.normalized = false);
    }
    let flags = match target {
        Target::Engine => flags::keys(&flags),
        Target::File => {
            notes.extend(flags::lost(&flags, &vocabulary.tokens, name));
            Pairs::new()
        }
    };
    set("token_type", Value::Array(Array::I32(vocabulary.tokens.iter().map(|token| token.kind as i32).collect())));
    if vocabulary.scored {
        set("scores", Value::Array(Array::F32(vocabulary.tokens.iter().map(|token| token.score).collect())));
    }
    set("tokens", Value::Array(Array::String(vocabulary.tokens.into_iter().map(|token| token.text).collect())));
    if !vocabulary.merges.is_empty() {
        set("merges", Value::Array(Array::String(vocabulary.merges)));
    }
    if let Some(prefix) = vocabulary.space_prefix {
        set("add_space_prefix", Value::Bool(prefix));
    }
    const ADDS_BOS: &str = "add_bos_token";
    for (key, value) in specials.into_iter().filter(|(key, _)| vocabulary.adds_bos.is_none() || key != ADDS_BOS) {
        set(&key, value);
    }
    if let Some(adds) = vocabulary.adds_bos {
        set(ADDS_BOS, adds.into());
    }
    pairs.extend(flags);
    pairs.extend(template::read(folder, &about)?);
    Ok(pairs)
}

/// Whether a token marks up a text, although vocabularies list it as ordinary.
fn looks_special(text: &str) -> bool {
    let between = |open: &str, close: &str| text.starts_with(open) && text.ends_with(close);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}

impl Added {
    /// The token with its id. Spaces are written as they are in tokens that are matched in the text itself.
    fn with_id(self, id: u32, score: f32) -> (u32, Token) {
        let (kind, text) = match self.special || looks_special(&self.text) {
            true => (Kind::Control, self.text),
            false => (Kind::UserDefined, self.text.replace('\u{2581}', " ")),
        };
        (id, Token { text, score, kind })
    }
}

/// More than any vocabulary has; fillers for more would take memory without end.
const MAX_TOKENS: usize = 1 << 24;

/// Refuses a vocabulary that gives one id to two tokens.
fn unique(path: &Path, vocabulary: &BTreeMap<String, u32>) -> Result<(), ConvertError> {
    let mut texts = HashMap::with_capacity(vocabulary.len());
    for (text, &id) in vocabulary {
        if let Some(first) = texts.insert(id, text) {
            let (first, second) = (cut(first, 80), cut(text, 80));
            let problem =
                format!("tokens {first:?} and {second:?} both have id {id}; the file is damaged, fetch it again");
            return Err(ConvertError::Vocabulary { path: path.to_owned(), problem });
        }
    }
    Ok(())
}

/// `size` tokens by id, those that are not given as fillers.
fn table(
    path: &Path,
    given: impl IntoIterator<Item = (u32, Token)>,
    size: usize,
    filler_score: f32,
) -> Result<Vec<Token>, ConvertError> {
    let wrong = |problem: String| ConvertError::Vocabulary { path: path.to_owned(), problem };
    if size > MAX_TOKENS {
        return Err(wrong(format!("the embedding table has {size} rows; at most {MAX_TOKENS} tokens are supported")));
    }
    let mut by_id: BTreeMap<u32, Token> = BTreeMap::new();
    for (id, token) in given {
        if id as usize >= size {
            let text = cut(&token.text, 80);
            return Err(wrong(format!(
                "token {text:?} has id {id}, but the model has {size} tokens; the files do not belong together"
            )));
        }
        by_id.insert(id, token);
    }
    let filler = |id: u32| Token { text: format!("[PAD{id}]"), score: filler_score, kind: Kind::Unused };
    Ok((0..size as u32).map(|id| by_id.remove(&id).unwrap_or_else(|| filler(id))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_filled_up_and_bounded() {
        let path = Path::new("tokenizer.json");
        let token = Token { text: "a".to_owned(), score: 0.0, kind: Kind::Normal };
        let tokens = table(path, [(1, token)], 3, -1.0).unwrap();
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["[PAD0]", "a", "[PAD2]"]);
        for size in [MAX_TOKENS + 1, (1 << 32) + 3, usize::MAX] {
            let error = table(path, [], size, 0.0).unwrap_err().to_string();
            assert!(error.contains(&format!("{size} rows")), "{error}");
        }
    }
}
