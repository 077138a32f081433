//! SentencePiece-style BPE, the tokenizer model `llama`: the pair whose token has the highest score merges first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use gristmill_files::json::cut;
use gristmill_text::tokenizer::byte_token;
use serde_json::Value;

use super::json::TokenizerJson;
use super::sentencepiece::PieceModel;
use super::special;
use super::tokens::{Token, Vocabulary, table, unique};
use crate::config::Config;
use crate::error::ConvertError;
use crate::files::read_json;
use gristmill_text::tokenizer::TokenType as Kind;

/// Every cut of every token is looked at, hence a limit. SentencePiece's own is 16 characters, unless it is told
/// another.
const MAX_TOKEN_BYTES: usize = 1024;

/// Scores that converters give to tokens which no merge makes.
pub(super) const ADDED_SCORE: f32 = -1000.0;
pub(super) const FILLER_SCORE: f32 = -10000.0;

/// The vocabulary of `tokenizer.model` and the tokens added by `tokenizer.json`, `added_tokens.json` and
/// `tokenizer_config.json`.
pub(super) fn from_model(
    path: &Path,
    model: PieceModel,
    json: Option<&TokenizerJson>,
    folder: &Path,
    about: &Config,
    size: usize,
) -> Result<Vocabulary, ConvertError> {
    let mut tokens: BTreeMap<u32, Token> = BTreeMap::new();
    for (id, piece) in (0..).zip(&model.pieces) {
        let kind = piece.kind().ok_or_else(|| ConvertError::Vocabulary {
            path: path.to_owned(),
            problem: format!("piece {id} is of a kind that is not known; the file is damaged"),
        })?;
        let token = Token { text: piece.piece().to_owned(), score: piece.score(), kind };
        tokens.insert(id, token);
    }
    if let Some(json) = json {
        let added = json.added_tokens(about, ADDED_SCORE)?;
        tokens.extend(added.into_iter().filter(|&(id, _)| id as usize >= model.pieces.len()));
    }
    let added_path = folder.join("added_tokens.json");
    if added_path.exists() {
        let added = read_json::<BTreeMap<String, u32>>(&added_path)?;
        unique(&added_path, &added)?;
        for (text, id) in added {
            tokens.insert(id, Token { text, score: ADDED_SCORE, kind: Kind::UserDefined });
        }
    }
    tokens.extend(special::decoder(about)?.into_iter().map(|(id, added)| added.with_id(id, ADDED_SCORE)));
    let space_prefix = match about.flag("add_prefix_space")? {
        None if !model.space_prefix() => Some(false),
        said => said,
    };
    vocabulary(path, tokens, size, space_prefix)
}

/// The vocabulary of a `tokenizer.json` that was made from a SentencePiece model. The scores are lost; what counts is
/// their order, which that of the merges keeps.
pub(super) fn from_json(json: &TokenizerJson, about: &Config, size: usize) -> Result<Vocabulary, ConvertError> {
    let prefix =
        space_prefix(json).ok_or_else(|| json.unsupported("spaces to ▁, with or without one before the text"))?;
    let ranks = ranks(json)?;
    let mut tokens: BTreeMap<u32, Token> = BTreeMap::new();
    for (text, &id) in &json.model.vocab {
        let kind = match text {
            _ if byte_token(text).is_some() => Kind::Byte,
            _ if json.model.unk_token.as_ref() == Some(text) => Kind::Unknown,
            _ => Kind::Normal,
        };
        let score = ranks.get(text.as_str()).map_or(ADDED_SCORE.min(-(ranks.len() as f32)), |&rank| -(rank as f32));
        tokens.insert(id, Token { text: text.clone(), score, kind });
    }
    tokens.extend(json.added_tokens(about, ADDED_SCORE)?);
    vocabulary(&json.path, tokens, size, (!prefix).then_some(false))
}

fn vocabulary(
    path: &Path,
    tokens: BTreeMap<u32, Token>,
    size: usize,
    space_prefix: Option<bool>,
) -> Result<Vocabulary, ConvertError> {
    let tokens = table(path, tokens, size, FILLER_SCORE)?;
    Ok(Vocabulary {
        model: "llama",
        pre: Some("default".to_owned()),
        tokens,
        scored: true,
        merges: Vec::new(),
        space_prefix,
        adds_bos: None,
    })
}

/// The rank of every token that merges make.
///
/// Merging by the token that results is merging by pairs only if all pairs of one token follow each other, and every
/// two tokens that together are a token may merge. Both hold for what was made from a SentencePiece model, and are
/// checked.
fn ranks<'j>(json: &'j TokenizerJson) -> Result<HashMap<String, usize>, ConvertError> {
    let wrong = |problem: String| ConvertError::Tokenizer {
        path: json.path.clone(),
        found: format!("a BPE with fallback to bytes whose merges are not those of a SentencePiece model ({problem})"),
        known: "what transformers makes of a SentencePiece model; tokenizer.model itself, if there is one",
    };
    let mut ranks: HashMap<String, usize> = HashMap::new();
    let mut pairs: HashSet<(&'j str, &'j str)> = HashSet::new();
    let mut previous = String::new();
    for (left, right) in json.merges()? {
        let merged = format!("{left}{right}");
        if merged != previous {
            let rank = ranks.len();
            if ranks.insert(merged.clone(), rank).is_some() {
                let merged = cut(merged, 80);
                return Err(wrong(format!("those of {merged:?} do not follow each other")));
            }
            previous = merged;
        }
        pairs.insert((left, right));
    }
    let special: HashSet<&str> = json.added().collect();
    let vocabulary: HashSet<&str> = json.model.vocab.keys().map(String::as_str).collect();
    for text in json.model.vocab.keys().filter(|text| !special.contains(text.as_str())) {
        if text.len() > MAX_TOKEN_BYTES {
            let problem =
                format!("token {:?} has {} bytes, at most {MAX_TOKEN_BYTES} are supported", cut(text, 80), text.len());
            return Err(ConvertError::Vocabulary { path: json.path.clone(), problem });
        }
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            let tokens = [left, right].iter().all(|part| vocabulary.contains(part));
            if tokens && !pairs.contains(&(left, right)) {
                return Err(wrong(format!("{left:?} and {right:?} do not merge")));
            }
        }
    }
    Ok(ranks)
}

/// Whether a step, or a sequence of it alone, writes ▁ for every space.
pub(super) fn are_spaces_replaced(step: &Value) -> bool {
    match step["normalizers"].as_array().map(Vec::as_slice) {
        Some([one]) => are_spaces_replaced(one),
        _ => step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == "\u{2581}",
    }
}

/// Whether a space goes before a text; `None` for steps other than SentencePiece's.
fn space_prefix(json: &TokenizerJson) -> Option<bool> {
    let is_prepend = |step: &Value| step["type"] == "Prepend" && step["prepend"] == "\u{2581}";
    let (normalizer, pre_tokenizer) = (&json.normalizer, &json.pre_tokenizer);
    if pre_tokenizer.is_null() {
        return match normalizer["normalizers"].as_array().map(Vec::as_slice) {
            Some([prepend, replace]) if is_prepend(prepend) && are_spaces_replaced(replace) => Some(true),
            _ => are_spaces_replaced(normalizer).then_some(false),
        };
    }
    // Newer files have one step instead.
    let metaspace = normalizer.is_null()
        && pre_tokenizer["type"] == "Metaspace"
        && pre_tokenizer["replacement"] == "\u{2581}"
        && pre_tokenizer["split"] == false;
    match pre_tokenizer["prepend_scheme"].as_str().filter(|_| metaspace)? {
        "first" | "always" => Some(true),
        "never" => Some(false),
        _ => None,
    }
}
