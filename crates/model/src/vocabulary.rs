//! The tokenizer of a GGUF file, from its `tokenizer.ggml.` keys.

use std::collections::BTreeMap;

use gristmill_files::gguf::{FromValue, GgufFile};
use gristmill_text::tokenizer::{TokenFlags, Tokenizer, Vocabulary};

use crate::error::Result;
use crate::family::Source;

/// The tokenizer of a file, whatever its architecture; `None` if the file has no vocabulary. No weight is read, and no
/// engine is needed:
///
/// ```no_run
/// use gristmill_model::gguf::GgufFile;
/// use gristmill_text::tokenizer::EncodeOptions;
///
/// let file = GgufFile::open("model.gguf")?;
/// let tokenizer = gristmill_model::tokenizer(&file)?.ok_or("the file has no vocabulary")?;
/// let tokens = tokenizer.encode("What is a gristmill?", EncodeOptions::RAW)?;
/// println!("{} tokens", tokens.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    let tokens = keys.get::<&[String]>("tokens")?.unwrap_or_default();
    let vocabulary = Vocabulary {
        model,
        pre: keys.get::<&str>("pre")?.filter(|pre| !pre.is_empty()).map(str::to_owned),
        tokens: tokens.to_vec(),
        scores: keys.get::<&[f32]>("scores")?.unwrap_or_default().to_vec(),
        types: keys.get("token_type")?.unwrap_or_default(),
        merges: keys.get::<&[String]>("merges")?.unwrap_or_default().to_vec(),
        bos: keys.id("bos_token_id")?,
        eos: keys.id("eos_token_id")?,
        unknown: keys.id("unknown_token_id")?,
        // Added for training, without a row of the embedding; a text has no padding.
        padding: keys.id("padding_token_id")?.filter(|&id| (id as usize) < tokens.len()),
        end_of_generation: [keys.id("eot_token_id")?, keys.id("eom_token_id")?].into_iter().flatten().collect(),
        add_bos: keys.get("add_bos_token")?,
        add_eos: keys.get("add_eos_token")?,
        add_space_prefix: keys.get("add_space_prefix")?,
        flags: flags(source, tokens)?,
    };
    tracing::debug!(tokens = tokens.len(), "the vocabulary is read");
    Ok(Some(Tokenizer::new(vocabulary)?))
}

/// The keys of the flags of added tokens, which only folders have: the ids of the tokens with each flag.
pub const FLAG_KEYS: [&str; 4] = [
    "gristmill.added_tokens.lstrip",
    "gristmill.added_tokens.rstrip",
    "gristmill.added_tokens.single_word",
    "gristmill.added_tokens.normalized",
];

/// Parts of the names of models whose added tokens include the white space after them, in lower case, and the tokens of
/// these models that do not. GGUF has no key for it; this is llama.cpp's rule (`llama-vocab.cpp`).
const PHI3: [&str; 2] = ["phi-3", "phi3"];
const NOT_OF_PHI3: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// The flags of added tokens: by their keys, or by the name of the model.
fn flags(source: &Source, tokens: &[String]) -> Result<BTreeMap<u32, TokenFlags>> {
    let mut flags: BTreeMap<u32, TokenFlags> = BTreeMap::new();
    let mut is_said = false;
    for (key, set) in FLAG_KEYS.into_iter().zip(SETTERS) {
        let ids: Option<Vec<u32>> = source.optional(key)?;
        is_said |= ids.is_some();
        ids.into_iter().flatten().for_each(|id| set(flags.entry(id).or_default()));
    }
    let name = source.optional::<&str>("general.name")?.unwrap_or_default();
    Ok(if is_said { flags } else { flags_of_name(name, tokens.iter().map(String::as_str)) })
}

/// The flags of added tokens in a file of a model with this name.
pub fn flags_of_name<'t>(name: &str, tokens: impl Iterator<Item = &'t str>) -> BTreeMap<u32, TokenFlags> {
    let name = name.to_lowercase();
    if !PHI3.iter().any(|part| name.contains(part)) {
        return BTreeMap::new();
    }
    let rstrip = TokenFlags { rstrip: true, ..TokenFlags::default() };
    // Tokens that are not added have no use for it.
    (0..).zip(tokens).filter(|(_, token)| !NOT_OF_PHI3.contains(token)).map(|(id, _)| (id, rstrip)).collect()
}

/// Set the flags of [`FLAG_KEYS`].
const SETTERS: [fn(&mut TokenFlags); 4] =
    [|f| f.lstrip = true, |f| f.rstrip = true, |f| f.single_word = true, |f| f.normalized = true];

struct Keys<'a, 's>(&'s Source<'a>);

/// The id −1, in 32 bits with and without a sign. Converters write it for a token that the model does not have.
const NO_TOKEN: [i64; 2] = [-1, u32::MAX as i64];

impl<'a> Keys<'a, '_> {
    /// The id of a special token. −1 means that there is none.
    fn id(&self, suffix: &str) -> Result<Option<u32>> {
        match self.get::<i64>(suffix)? {
            Some(id) if NO_TOKEN.contains(&id) => Ok(None),
            _ => self.get(suffix),
        }
    }

    fn get<T: FromValue<'a>>(&self, suffix: &str) -> Result<Option<T>> {
        self.0.optional(&format!("tokenizer.ggml.{suffix}"))
    }
}
