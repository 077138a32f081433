//! `tokenizer.model`: a SentencePiece model, a message of
//! <https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>.

use std::path::Path;

use gristmill_files::json::cut;
use prost::Message;

use crate::error::ConvertError;
use crate::files;
use gristmill_text::tokenizer::TokenType as Kind;

/// The fields of the message that are used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PieceModel {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    #[prost(int32, optional, tag = "3", default = "1")]
    r#type: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, optional, tag = "3", default = "1")]
    model_type: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(bytes = "vec", optional, tag = "2")]
    map: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3", default = "true")]
    add_dummy_prefix: Option<bool>,
}

/// `TrainerSpec.ModelType`.
const MODEL_TYPES: [&str; 4] = ["unigram", "BPE", "word", "char"];

impl Piece {
    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::new(self.r#type())
    }
}

impl PieceModel {
    /// A space goes before a text.
    pub(super) fn space_prefix(&self) -> bool {
        self.normalizer.as_ref().is_none_or(Normalizer::add_dummy_prefix)
    }
}

/// Reads a model; `None` if the file is something else and `tokenizer.json` can be used instead.
pub(super) fn read(path: &Path, has_json: bool, notes: &mut Vec<String>) -> Result<Option<PieceModel>, ConvertError> {
    let model = match PieceModel::decode(files::read(path)?.as_slice()) {
        Ok(model) if !model.pieces.is_empty() => model,
        _ if has_json => {
            notes.push("tokenizer.model is not a SentencePiece model; tokenizer.json is used instead".to_owned());
            return Ok(None);
        }
        _ => {
            let problem =
                "this is not a SentencePiece model, or it is damaged; fetch it again, or tokenizer.json".to_owned();
            return Err(ConvertError::Vocabulary { path: path.to_owned(), problem });
        }
    };
    let kind = model.trainer.as_ref().map_or(1, Trainer::model_type);
    if kind != 2 {
        let name = usize::try_from(kind).ok().and_then(|kind| MODEL_TYPES.get(kind.wrapping_sub(1)));
        return Err(ConvertError::Tokenizer {
            path: path.to_owned(),
            found: format!("a SentencePiece model of type {}", name.copied().unwrap_or("unknown")),
            known: "BPE",
        });
    }
    let normalizer = model.normalizer.clone().unwrap_or_default();
    if normalizer.map.as_ref().is_some_and(|map| !map.is_empty()) {
        let name = cut(normalizer.name(), 80);
        notes.push(format!("tokenizer.model normalises texts by the rule {name:?}, which is not applied"));
    }
    Ok(Some(model))
}
