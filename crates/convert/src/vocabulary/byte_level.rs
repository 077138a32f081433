//! Byte-level BPE, the tokenizer model `gpt2`: tokens and merges as they are in `tokenizer.json`.

use super::json::TokenizerJson;
use super::pre;
use super::tokens::{Token, Vocabulary, table};
use crate::config::Config;
use crate::error::ConvertError;
use gristmill_text::tokenizer::TokenType as Kind;

/// `pre`: the pre-tokenizer, if the user names it; `usual`: its name in this family of models, where several have its
/// rules.
pub(super) fn read(
    json: &TokenizerJson,
    about: &Config,
    size: usize,
    pre: Option<&str>,
    usual: Option<&str>,
) -> Result<Vocabulary, ConvertError> {
    let pre = match pre {
        Some(name) => name.to_owned(),
        None => pre::recognise(json, usual)?.to_owned(),
    };
    let plain =
        json.model.vocab.iter().map(|(text, &id)| (id, Token { text: text.clone(), score: 0.0, kind: Kind::Normal }));
    let tokens = table(&json.path, plain.chain(json.added_tokens(about, 0.0)?), size, 0.0)?;
    let merges = json.joined_merges()?;
    Ok(Vocabulary { model: "gpt2", pre: Some(pre), tokens, scored: false, merges, space_prefix: None, adds_bos: None })
}
