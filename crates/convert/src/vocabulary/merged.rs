//! SentencePiece's characters and bytes with the list of merges of `tokenizer.json`, as the tokenizer model `gemma4`.

use std::collections::BTreeMap;

use gristmill_text::tokenizer::byte_token;
use serde_json::Value;

use super::json::TokenizerJson;
use super::scored::{ADDED_SCORE, FILLER_SCORE, are_spaces_replaced};
use super::tokens::{Token, Vocabulary, table};
use crate::config::Config;
use crate::error::ConvertError;
use crate::family::Merges;
use gristmill_text::tokenizer::TokenType as Kind;

pub(super) fn read(
    json: &TokenizerJson,
    about: &Config,
    merges: &Merges,
    size: usize,
) -> Result<Vocabulary, ConvertError> {
    if !are_spaces_replaced(&json.normalizer) || !keeps_text_whole(&json.pre_tokenizer) || !json.model.byte_fallback {
        return Err(json.unsupported("spaces to ▁, and no words: a BPE over characters with a fallback to bytes"));
    }
    let plain = json.model.vocab.iter().map(|(text, &id)| {
        let kind = if byte_token(text).is_some() { Kind::Byte } else { Kind::Normal };
        (id, Token { text: text.clone(), score: ADDED_SCORE, kind })
    });
    let mut tokens: BTreeMap<u32, Token> = plain.collect();
    tokens.extend(json.added_tokens(about, ADDED_SCORE)?);
    for token in tokens.values_mut().filter(|token| merges.shown.contains(&token.text.as_str())) {
        token.kind = Kind::UserDefined;
    }
    let tokens = table(&json.path, tokens, size, FILLER_SCORE)?;
    Ok(Vocabulary {
        model: merges.model,
        pre: None,
        tokens,
        scored: true,
        merges: json.joined_merges()?,
        space_prefix: Some(false),
        adds_bos: Some(true),
    })
}

/// Whether the pre-tokenizer has no effect: it is missing, or it splits at spaces, which the normaliser has replaced.
fn keeps_text_whole(pre_tokenizer: &Value) -> bool {
    pre_tokenizer.is_null() || pre_tokenizer["type"] == "Split" && pre_tokenizer["pattern"]["String"] == " "
}
