//! The pictures of a prompt.
//!
//! # A picture is known by its content
//!
//! Tokens that stand for a picture all have the model's placeholder id, so equal tokens can be different pictures. What
//! compares prompts (the prefix cache, requests that wait for a prefix) compares [`Numbered::keys`] instead: in the place
//! of a picture's tokens they have a number that the worker gives to the hash of the picture's content.
//!
//! *Invariant: different pictures have different numbers; because a number is given once, and the prefix cache holds far
//! fewer than the 2^31 pictures after which numbers start again. Checked by `pictures_are_known_by_their_content`.*

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::{Error, Model};
use gristmill_vision::ImageSpan;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Keys from this one on are no token ids.
const FIRST_KEY: u32 = 1 << 31;
/// Pictures whose numbers are known at a time. A picture that is forgotten gets a new number.
const MOST: usize = 1 << 16;

/// The pictures of a prompt, with the tokens that stand for them. Equal pictures are equal by their hashes.
#[derive(Debug, Clone, Default)]
pub struct Pictures(Arc<[ImageSpan]>);

impl Pictures {
    /// The spans, in any order.
    pub fn new(mut spans: Vec<ImageSpan>) -> Pictures {
        spans.sort_by_key(|span| span.start);
        Pictures(spans.into())
    }

    /// The spans, ascending.
    pub fn spans(&self) -> &[ImageSpan] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses pictures that the model does not read, or whose tokens are not those of the prompt.
    pub(crate) fn check(&self, model: &Model, tokens: usize) -> Result<(), Error> {
        let mut free = 0;
        for span in self.spans() {
            let no_tower = || Error::NoTower { architecture: model.spec().architecture.clone() };
            let tower = model.tower().ok_or_else(no_tower)?;
            let wrong = |reason: String| Err(Error::Picture { reason });
            let Some(tile) = span.image.tiles.get(span.tile) else {
                return wrong(format!("there is no tile {} (found {} tiles)", span.tile, span.image.tiles.len()));
            };
            let of_tile = tower.tokens(tile)?;
            let end = span.start.saturating_add(span.tokens);
            if span.start < free || end > tokens {
                return wrong(format!(
                    "tokens {}..{end} (expected a range after {free} in a prompt of {tokens}); use the tower's layout",
                    span.start
                ));
            }
            if span.first.saturating_add(span.tokens) > of_tile {
                return wrong(format!(
                    "tokens {}..{} of a tile (expected at most {of_tile}); use the tower's layout",
                    span.first,
                    span.first.saturating_add(span.tokens)
                ));
            }
            free = end;
        }
        Ok(())
    }
}

impl Pictures {
    /// Refuses pictures whose tokens see each other, and which no step has room for. A step has few rows of logits, so
    /// log-probabilities of their tokens are refused too.
    pub(crate) fn check_whole(&self, step_room: usize, wants_logprobs: bool) -> Result<(), Error> {
        let largest = self.spans().iter().map(|span| span.tokens).max().unwrap_or(0);
        let reason = match (largest > step_room, wants_logprobs && largest > 0) {
            (true, _) => format!(
                "{largest} tokens, of which one step must have all (found room for {step_room}); use larger batches"
            ),
            (_, true) => {
                "prompt_logprobs: not available for a prompt with images of this model; leave it out".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::Picture { reason })
    }
}

impl PartialEq for Pictures {
    fn eq(&self, other: &Self) -> bool {
        let known = |span: &ImageSpan| (span.start, span.tokens, span.tile, span.first, span.image.hash);
        self.0.iter().map(known).eq(other.0.iter().map(known))
    }
}

/// A receipt has the pictures by their hashes.
impl Serialize for Pictures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Span<'a>(&'a ImageSpan);
        impl Serialize for Span<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let ImageSpan { start, tokens, image, tile, first } = self.0;
                let hash: String = image.hash.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut span = serializer.serialize_struct("span", 5)?;
                span.serialize_field("start", start)?;
                span.serialize_field("tokens", tokens)?;
                span.serialize_field("tile", tile)?;
                span.serialize_field("first", first)?;
                span.serialize_field("sha256", &hash)?;
                span.end()
            }
        }
        let mut spans = serializer.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|span| spans.serialize_element(&Span(span)))?;
        spans.end()
    }
}

impl<'de> Deserialize<'de> for Pictures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spans = Vec::<serde::de::IgnoredAny>::deserialize(deserializer)?;
        match spans.len() {
            0 => Ok(Pictures::default()),
            count => Err(serde::de::Error::custom(format!(
                "the request has {count} pictures, of which a receipt has only the hashes; it cannot be run again"
            ))),
        }
    }
}

/// The pictures of a job, with their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbered {
    pictures: Pictures,
    /// The key of each span.
    keys: Vec<u32>,
}

impl Numbered {
    pub(crate) fn spans(&self) -> &[ImageSpan] {
        self.pictures.spans()
    }

    /// The tokens of a text that starts with the prompt, or of a part of it from the first token on; with keys in the place
    /// of pictures.
    pub(crate) fn keys<'a>(&self, tokens: &'a [u32]) -> Cow<'a, [u32]> {
        if self.keys.is_empty() {
            return Cow::Borrowed(tokens);
        }
        let mut tokens = tokens.to_vec();
        for (span, &key) in self.spans().iter().zip(&self.keys) {
            let end = span.start.saturating_add(span.tokens).min(tokens.len());
            if let Some(tokens) = tokens.get_mut(span.start..end) {
                tokens.fill(key);
            }
        }
        Cow::Owned(tokens)
    }
}

/// Numbers of pictures.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    known: HashMap<([u8; 32], usize, usize), u32>,
    given: u32,
}

impl Numbers {
    /// The pictures with their numbers: equal parts of equal pictures have equal ones.
    pub(crate) fn of(&mut self, pictures: &Pictures) -> Numbered {
        let keys = pictures.spans().iter().map(|span| self.key((span.image.hash, span.tile, span.first))).collect();
        Numbered { pictures: pictures.clone(), keys }
    }

    fn key(&mut self, part: ([u8; 32], usize, usize)) -> u32 {
        if let Some(&key) = self.known.get(&part) {
            return key;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let key = FIRST_KEY | self.given;
        self.given = (self.given + 1) % FIRST_KEY;
        self.known.insert(part, key);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_vision::Prepared;

    fn span(start: usize, hash: u8) -> ImageSpan {
        let image = Arc::new(Prepared { tiles: Vec::new(), hash: [hash; 32] });
        ImageSpan { start, tokens: 2, image, tile: 0, first: 0 }
    }

    #[test]
    fn pictures_are_known_by_their_content() {
        let mut numbers = Numbers::default();
        let tokens = [5, 9, 9, 6, 9, 9, 7];
        let mut keys = |hashes: [u8; 2]| {
            numbers.of(&Pictures::new(vec![span(4, hashes[1]), span(1, hashes[0])])).keys(&tokens).into_owned()
        };
        let same = keys([1, 1]);
        assert_eq!(same, [5, FIRST_KEY, FIRST_KEY, 6, FIRST_KEY, FIRST_KEY, 7]);
        let (one, other) = (keys([1, 2]), keys([2, 1]));
        assert!(one[..4] == same[..4] && one[4] != same[4] && other[1] == one[4] && other[4] == same[1]);
        // A start of the text, in the middle of a picture.
        let numbered = numbers.of(&Pictures::new(vec![span(1, 1)]));
        assert_eq!(*numbered.keys(&tokens[..2]), [5, FIRST_KEY]);
        assert_eq!(*numbered.keys(&tokens[..1]), [5]);
    }
}
