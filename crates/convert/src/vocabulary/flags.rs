//! The flags of added tokens: keys of a folder that is opened, and what a file loses of them.

use gristmill_files::gguf::{Array, Value};
use gristmill_files::json::cut;
use gristmill_model::{FLAG_KEYS, flags_of_name};
use gristmill_text::tokenizer::TokenFlags;

use super::tokens::{Flags, Token};
use crate::keys::Pairs;

/// Whether a token has a flag.
type IsSet = fn(&TokenFlags) -> bool;

/// Each flag with the name that it has in `tokenizer.json`, in the order of [`FLAG_KEYS`].
const NAMED: [(&str, IsSet); 4] = [
    ("lstrip", |flags| flags.lstrip),
    ("rstrip", |flags| flags.rstrip),
    ("single_word", |flags| flags.single_word),
    ("normalized", |flags| flags.normalized),
];

/// The keys with which the engine reads the flags, also if no token has one.
pub(super) fn keys(flags: &Flags) -> Pairs {
    let with = |is_set: IsSet| {
        let ids = flags.iter().filter(|(_, flags)| is_set(flags)).map(|(&id, _)| id);
        Value::Array(Array::U32(ids.collect()))
    };
    FLAG_KEYS.into_iter().zip(NAMED).map(|(key, (_, is_set))| (key.to_owned(), with(is_set))).collect()
}

/// A note on tokens that a program that reads the file recognises in another way: GGUF has no key for flags.
pub(super) fn lost(flags: &Flags, tokens: &[Token], name: &str) -> Option<String> {
    let of_file = flags_of_name(name, tokens.iter().map(|token| token.text.as_str()));
    let is_lost = |&(id, found): &(&u32, &TokenFlags)| {
        let read = of_file.get(id).copied().unwrap_or_default();
        // In most files, `normalized` changes nothing.
        TokenFlags { normalized: read.normalized, ..*found } != read
    };
    let mut lost = flags.iter().filter(is_lost);
    let (&id, found) = lost.next()?;
    let text = tokens.get(id as usize).map_or("", |token| token.text.as_str());
    let set: Vec<&str> = NAMED[..3].iter().filter(|(_, is_set)| is_set(found)).map(|(name, _)| *name).collect();
    let set = if set.is_empty() { "no flag".to_owned() } else { set.join(", ") };
    Some(format!(
        "{} added tokens, {:?} ({set}) first, are recognised in another way in the file, because GGUF has no key for \
         their flags; a folder that is opened without conversion keeps them",
        1 + lost.count(),
        cut(text, 80)
    ))
}
