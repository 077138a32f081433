//! Byte-level BPE, the tokenizer model `gpt2`: tokens and merges as they stand in `tokenizer.json`.

use std::path::Path;

use super::json::TokenizerJson;
use super::{Added, Kind, Token, Vocabulary, added_token, pre, special, table};
use crate::convert::config::Config;
use crate::convert::error::ConvertError;

/// `pre`: the pre-tokenizer, if the user names it.
pub(super) fn read(
    path: &Path,
    json: &TokenizerJson,
    about: &Config,
    size: usize,
    pre: Option<&str>,
) -> Result<Vocabulary, ConvertError> {
    let pre = match pre {
        Some(name) => name.to_owned(),
        None => pre::recognise(path, json)?.to_owned(),
    };
    let plain =
        json.model.vocab.iter().map(|(text, &id)| (id, Token { text: text.clone(), score: 0.0, kind: Kind::Normal }));
    // What tokenizer_config.json names as special is so, whatever tokenizer.json says.
    let named = special::named(about)?.into_iter().filter_map(|text| {
        let id = *json.model.vocab.get(text)?;
        Some((id, Added { text: text.to_owned(), special: true }))
    });
    let added = json.added().chain(named).map(|(id, added)| {
        let (kind, text) = added_token(&added);
        (id, Token { text, score: 0.0, kind })
    });
    let tokens = table(path, plain.chain(added), size, 0.0)?;
    let merges = json.merges(path)?.into_iter().map(|(left, right)| format!("{left} {right}")).collect();
    Ok(Vocabulary { model: "gpt2", pre, tokens, scored: false, merges, space_prefix: None })
}
