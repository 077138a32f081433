//! Reads whichever file there is, and writes the keys of a vocabulary.

use std::path::Path;

use gristmill_files::gguf::{Array, Value};

use super::json::TokenizerJson;
use super::tokens::Flags;
use crate::config::Config;
use crate::error::ConvertError;
use crate::family::Family;
use crate::keys::Pairs;
use crate::mlx::Target;

/// Settings of `tokenizer_config.json` whose `null` means that they are not set, as in transformers: no template, a
/// space before the text if the model wants one. `add_bos_token` is not among them: its `null` is false.
const NULLS: &[&str] = &["chat_template", "add_prefix_space"];

/// Reads all keys under `tokenizer.`, and those of flags that the engine reads. Notes for the user are appended to `notes`.
///
/// `size`: rows of the embedding table. Ids without a token get fillers. `pre`: the pre-tokenizer, if the user names it;
/// `name`: that of the model.
pub(crate) fn read(
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
        true => super::sentencepiece::read(&model_path, json.is_some(), notes)?,
        false => None,
    };
    let no_pre = |path: &Path| match pre {
        Some(pre) => Err(ConvertError::PreUnused { path: path.to_owned(), pre: pre.to_owned() }),
        None => Ok(()),
    };
    let vocabulary = match (&family.merges, piece_model, &json) {
        (Some(merges), _, Some(json)) => {
            no_pre(&json_path)?;
            super::merged::read(json, &about, merges, size)?
        }
        (_, Some(model), _) => {
            no_pre(&model_path)?;
            super::scored::from_model(&model_path, model, json.as_ref(), folder, &about, size)?
        }
        (_, None, Some(json)) if json.model.byte_fallback => {
            no_pre(&json_path)?;
            super::scored::from_json(json, &about, size)?
        }
        (_, None, Some(json)) => super::byte_level::read(json, &about, size, pre, family.pre)?,
        (_, None, None) => return Err(ConvertError::NoTokenizer(folder.to_owned())),
    };

    let mut pairs = Pairs::new();
    let mut set = |key: &str, value: Value| pairs.push((format!("tokenizer.ggml.{key}"), value));
    set("model", vocabulary.model.into());
    if let Some(pre) = vocabulary.pre {
        set("pre", pre.into());
    }
    let specials =
        super::special::read(json.as_ref(), &about, config, family.special_tokens, &vocabulary.tokens, notes)?;
    let mut flags = json.as_ref().map_or(Flags::new(), TokenizerJson::flags);
    // In transformers, these settings replace those of tokenizer.json.
    flags.extend(super::special::decoder(&about)?.into_iter().map(|(id, added)| (id, added.flags)));
    flags.retain(|&id, _| (id as usize) < vocabulary.tokens.len());
    if vocabulary.scored && json.as_ref().is_some_and(|json| json.normalizer.is_null()) {
        // A pre-tokenizer writes the spaces, after all added tokens are found.
        flags.values_mut().for_each(|flags| flags.normalized = false);
    }
    let flags = match target {
        Target::Engine => super::flags::keys(&flags),
        Target::File => {
            notes.extend(super::flags::lost(&flags, &vocabulary.tokens, name));
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
    pairs.extend(super::template::read(folder, &about)?);
    Ok(pairs)
}
