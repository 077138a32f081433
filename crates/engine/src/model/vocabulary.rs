//! The tokenizer of a GGUF file, from its `tokenizer.ggml.` keys.

use gristmill_files::gguf::{FromValue, GgufFile};
use gristmill_text::tokenizer::{Tokenizer, Vocabulary};

use super::arch::Source;
use crate::error::Result;

/// The tokenizer of a file, whatever its architecture; `None` if the file has no vocabulary.
///
/// # Errors
/// [`Error::Metadata`](crate::Error::Metadata) or [`Error::Tokenizer`](crate::Error::Tokenizer) names the key.
pub fn tokenizer(file: &GgufFile) -> Result<Option<Tokenizer>> {
    read(&Source::new(file))
}

pub(super) fn read(source: &Source) -> Result<Option<Tokenizer>> {
    let model = match source.optional::<&str>("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model.to_owned(),
    };
    let keys = Keys(source);
    let vocabulary = Vocabulary {
        model,
        pre: keys.get::<&str>("pre")?.map(str::to_owned),
        tokens: keys.get::<&[String]>("tokens")?.unwrap_or_default().to_vec(),
        scores: keys.get::<&[f32]>("scores")?.unwrap_or_default().to_vec(),
        types: keys.get("token_type")?.unwrap_or_default(),
        merges: keys.get::<&[String]>("merges")?.unwrap_or_default().to_vec(),
        bos: keys.get("bos_token_id")?,
        eos: keys.get("eos_token_id")?,
        unknown: keys.get("unknown_token_id")?,
        padding: keys.get("padding_token_id")?,
        end_of_generation: [keys.get("eot_token_id")?, keys.get("eom_token_id")?].into_iter().flatten().collect(),
        add_bos: keys.get("add_bos_token")?,
        add_eos: keys.get("add_eos_token")?,
        add_space_prefix: keys.get("add_space_prefix")?,
    };
    Ok(Some(Tokenizer::new(vocabulary)?))
}

struct Keys<'a, 's>(&'s Source<'a>);

impl<'a> Keys<'a, '_> {
    fn get<T: FromValue<'a>>(&self, suffix: &str) -> Result<Option<T>> {
        self.0.optional(&format!("tokenizer.ggml.{suffix}"))
    }
}
