//! SentencePiece-style BPE, the tokenizer model "llama": characters are symbols, the pair that forms the token with the
//! highest score merges first, and characters without a token fall back to their bytes. In "gemma4" the same, but pairs
//! merge in the order of a list.

use std::collections::HashMap;

use super::bpe::{Merges, merges};
use super::error::TokenizerError;
use super::merge::{Merger, NO_ID};
use super::{TokenType, Vocabulary};

/// The character that SentencePiece writes for a space.
pub(super) const SPACE: &str = "\u{2581}";

/// The model: turns text without special tokens into ids.
#[derive(Debug)]
pub(super) struct Scored {
    /// Token text to rank (0 is the highest score) and id.
    tokens: HashMap<Box<str>, (u32, u32)>,
    /// The list of merges; without it, tokens say what merges.
    merges: Option<Merges>,
    /// The bytes of the longest token; no pair longer than this is looked up.
    longest: u32,
    /// The token of each byte, or [`NO_ID`].
    bytes: [u32; 256],
    unknown: Option<u32>,
    add_space_prefix: bool,
}

impl Scored {
    /// The lengths of `scores` and `types` are those of the tokens.
    pub(super) fn new(vocabulary: &Vocabulary, types: &[TokenType]) -> Result<Self, TokenizerError> {
        if let Some(index) = vocabulary.scores.iter().position(|score| score.is_nan()) {
            let problem = "is not a number".to_owned();
            return Err(TokenizerError::BadEntry { key: "scores", index, problem });
        }
        let flags = |id: u32| vocabulary.flags.get(&id).copied().unwrap_or_default();
        let mut bytes = [NO_ID; 256];
        let mut scored = Vec::new();
        for (((id, token), kind), &score) in (0..).zip(&vocabulary.tokens).zip(types).zip(&vocabulary.scores) {
            match kind {
                TokenType::Byte => {
                    let byte = byte_token(token).ok_or_else(|| TokenizerError::BadEntry {
                        key: "tokens",
                        index: id as usize,
                        problem: format!("is {token:?}, but its type says a byte, such as <0x0A>"),
                    })?;
                    bytes[byte as usize] = id;
                }
                // It is a part of the text where its flags do not let it be recognised.
                TokenType::UserDefined if flags(id).single_word || flags(id).normalized => {}
                TokenType::Normal | TokenType::UserDefined | TokenType::Unused => scored.push((score, token, id)),
                TokenType::Unknown | TokenType::Control => {}
            }
        }
        // Equal scores share a rank, so that the leftmost pair wins among them.
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.2.cmp(&b.2)));
        let mut tokens: HashMap<Box<str>, (u32, u32)> = HashMap::with_capacity(scored.len());
        let mut rank = 0;
        let mut previous = None;
        let mut longest = 0;
        for (score, token, id) in scored {
            rank += u32::from(previous.is_some_and(|previous| previous != score));
            previous = Some(score);
            longest = longest.max(token.len());
            tokens.entry(token.as_str().into()).or_insert((rank, id));
        }
        let merges = match vocabulary.has_merges() {
            false => None,
            true => {
                let ids = tokens.iter().map(|(token, &(_, id))| (&**token, id)).collect();
                Some(merges(vocabulary, &ids, |_| true)?)
            }
        };
        Ok(Self {
            merges,
            tokens,
            longest: u32::try_from(longest).unwrap_or(u32::MAX),
            bytes,
            unknown: vocabulary.unknown,
            add_space_prefix: vocabulary.add_space_prefix.unwrap_or(!vocabulary.has_merges()),
        })
    }

    /// Whether a space is added before each fragment of text, and removed when decoding.
    pub(super) fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Whether this byte of a text cannot be a part of an unknown token, which covers any number of characters.
    pub(super) fn keeps(&self, byte: u8) -> bool {
        let is_token = || match byte {
            b' ' => self.tokens.contains_key(SPACE),
            _ => byte.is_ascii() && self.tokens.contains_key(char::from(byte).encode_utf8(&mut [0; 4]) as &str),
        };
        // A character of several bytes is unknown if one of them has no token.
        let all_bytes = || self.bytes[0x80..].iter().all(|&id| id != NO_ID);
        is_token() || self.bytes[usize::from(byte)] != NO_ID && (byte.is_ascii() || all_bytes())
    }

    fn prefix(&self) -> &'static str {
        if self.add_space_prefix { SPACE } else { "" }
    }

    /// The text in the form in which symbols merge.
    pub(super) fn normal(&self, text: &str) -> String {
        format!("{}{}", self.prefix(), text.replace(' ', SPACE))
    }

    /// [`normal`](Self::normal), and which bytes of it no control token may include, where `barred` are those of the text.
    pub(super) fn normal_with_barred(&self, text: &str, barred: &[usize]) -> (String, Vec<usize>) {
        let mut places = Vec::with_capacity(barred.len());
        let mut longer = self.prefix().len();
        let mut from = 0;
        for &byte in barred {
            let spaces = text.as_bytes()[from..byte].iter().filter(|&&b| b == b' ').count();
            longer += spaces * (SPACE.len() - 1);
            places.push(byte + longer);
            from = byte;
        }
        (self.normal(text), places)
    }

    /// Appends the ids of a text in its normal form, which is below 2³² bytes.
    pub(super) fn encode(&self, text: &str, merger: &mut Merger, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        merger.clear();
        let mut buffer = [0; 4];
        for c in text.chars() {
            let id = self.tokens.get(&*c.encode_utf8(&mut buffer)).map_or(NO_ID, |&(_, id)| id);
            merger.push(c.len_utf8() as u32, id);
        }
        merger.run(|left, right| {
            if let Some(merges) = &self.merges {
                return merges.get(&(left.id, right.id)).copied();
            }
            let len = left.len + right.len;
            let pair = || text.get(left.start as usize..(left.start + len) as usize);
            if len > self.longest { None } else { self.tokens.get(pair()?).copied() }
        });
        let mut after_unknown = false;
        for symbol in merger.symbols() {
            let start = symbol.start as usize;
            let symbol_text = &text[start..start + symbol.len as usize];
            let fallback = || symbol_text.bytes().map(|byte| self.bytes[byte as usize]);
            let unknown = symbol.id == NO_ID && fallback().any(|id| id == NO_ID);
            if unknown {
                // SentencePiece joins neighbouring unknown characters.
                let id = self.unknown.ok_or_else(|| TokenizerError::NoToken {
                    text: symbol_text.to_owned(),
                    bytes: symbol_text.as_bytes().to_vec(),
                })?;
                out.extend((!after_unknown).then_some(id));
            } else if symbol.id == NO_ID {
                out.extend(fallback());
            } else {
                out.push(symbol.id);
            }
            after_unknown = unknown;
        }
        Ok(())
    }
}

/// The byte of a token such as `<0x0A>`.
pub fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}
