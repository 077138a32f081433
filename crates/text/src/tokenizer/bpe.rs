//! Byte-level BPE, the tokenizer model "gpt2": bytes are symbols, merges are listed in order of rank.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::alphabet::{byte_chars, char_byte};
use super::error::TokenizerError;
use super::merge::{Merger, NO_ID};
use super::normal::{nfc_may_change, nfc_with_barred};
use super::{Family, TokenType, Vocabulary};

/// Pair of tokens to rank and merged token.
pub(super) type Merges = HashMap<(u32, u32), (u32, u32)>;

/// The model: turns text without special tokens into ids.
#[derive(Debug)]
pub(super) struct ByteLevel {
    family: Family,
    /// The token of each byte, or [`NO_ID`].
    bytes: [u32; 256],
    merges: Merges,
    /// Words that are tokens, if the family takes them whole.
    words: HashMap<Box<[u8]>, u32>,
    add_space_prefix: bool,
}

impl ByteLevel {
    pub(super) fn new(vocabulary: &Vocabulary, types: &[TokenType], family: Family) -> Result<Self, TokenizerError> {
        let mut ids: HashMap<&str, u32> = HashMap::with_capacity(vocabulary.tokens.len());
        for (id, token) in (0..).zip(&vocabulary.tokens) {
            ids.entry(token).or_insert(id);
        }
        let is_text = |id: u32| !types.get(id as usize).is_some_and(|kind| kind.is_special());

        let merges = merges(vocabulary, &ids, is_text)?;
        let mut bytes = [NO_ID; 256];
        let mut buffer = [0; 4];
        for (byte, c) in byte_chars().into_iter().enumerate() {
            let id = ids.get(&*c.encode_utf8(&mut buffer)).copied();
            bytes[byte] = id.filter(|&id| is_text(id)).unwrap_or(NO_ID);
        }
        let words = ids.iter().filter(|&(_, &id)| family.whole_words && is_text(id));
        let words = words.filter_map(|(token, &id)| Some((decode(token)?.into(), id))).collect();
        let add_space_prefix = vocabulary.add_space_prefix.unwrap_or(false);
        Ok(Self { family, bytes, merges, words, add_space_prefix })
    }

    /// The text in the form in which words are cut.
    pub(super) fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.family.nfc && nfc_may_change(text) {
            true => text.nfc().collect::<String>().into(),
            false => text.into(),
        }
    }

    /// [`normal`](Self::normal), and which bytes of it no control token may include, where `barred` are those of the text.
    pub(super) fn normal_with_barred<'t>(&self, text: &'t str, barred: &[usize]) -> (Cow<'t, str>, Vec<usize>) {
        match self.family.nfc && nfc_may_change(text) {
            true => {
                let (normal, barred) = nfc_with_barred(text, barred);
                (normal.into(), barred)
            }
            false => (text.into(), barred.to_vec()),
        }
    }

    /// Appends the ids of a text in its normal form, which is below 2³² bytes. Vocabularies may leave out bytes that are
    /// rare, such as control characters; they are dropped, as transformers does. Ends after the word with which `out` has
    /// more than `most` ids.
    pub(super) fn encode(&self, text: &str, merger: &mut Merger, out: &mut Vec<u32>, most: usize) {
        if self.add_space_prefix && !text.starts_with(' ') {
            self.encode_words(&format!(" {text}"), merger, out, most);
        } else {
            self.encode_words(text, merger, out, most);
        }
    }

    /// Whether this byte of a text is not dropped.
    pub(super) fn keeps(&self, byte: u8) -> bool {
        self.bytes[usize::from(byte)] != NO_ID
    }

    /// Whether a text is brought into Unicode normal form C.
    pub(super) fn normalises(&self) -> bool {
        self.family.nfc
    }

    fn encode_words(&self, text: &str, merger: &mut Merger, out: &mut Vec<u32>, most: usize) {
        self.family.pattern.split(text, |word| {
            if out.len() <= most {
                self.encode_word(word, merger, out);
            }
        });
    }

    fn encode_word(&self, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        if let Some(&id) = self.words.get(word.as_bytes()) {
            out.push(id);
            return;
        }
        merger.clear();
        for &byte in word.as_bytes() {
            merger.push(1, self.bytes[byte as usize]);
        }
        merger.run(|left, right| self.merges.get(&(left.id, right.id)).copied());
        let ids = merger.symbols().map(|symbol| symbol.id);
        out.extend(ids.filter(|&id| id != NO_ID));
    }
}

/// The merges of a vocabulary, whose tokens have these ids; `is_text` says which ids text may become.
pub(super) fn merges(
    vocabulary: &Vocabulary,
    ids: &HashMap<&str, u32>,
    is_text: impl Fn(u32) -> bool,
) -> Result<Merges, TokenizerError> {
    let mut merges = HashMap::with_capacity(vocabulary.merges.len());
    for (rank, merge) in (0..).zip(&vocabulary.merges) {
        let bad = |problem: String| TokenizerError::BadEntry { key: "merges", index: rank as usize, problem };
        let id =
            |token: &str| ids.get(token).copied().ok_or_else(|| bad(format!("needs {token:?}, which is not a token")));
        let (left, right) = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            .ok_or_else(|| bad(format!("is {merge:?}, not two tokens with a space between")))?;
        let pair = (id(left)?, id(right)?);
        let merged = id(&format!("{left}{right}"))?;
        // Special tokens arise only where the caller requests them, never from ordinary text.
        if is_text(merged) {
            merges.entry(pair).or_insert((rank, merged));
        }
    }
    Ok(merges)
}

/// The bytes of a token written in the byte alphabet, or nothing if a character is outside it.
pub(super) fn decode(token: &str) -> Option<Vec<u8>> {
    token.chars().map(char_byte).collect()
}
