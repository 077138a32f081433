//! Text from tokens that arrive one at a time.

use super::Tokenizer;
use super::error::TokenizerError;

/// Turns tokens into text as they arrive.
///
/// A token may end in the middle of a UTF-8 character; its bytes wait for the next token. The pieces together are what
/// [`Tokenizer::decode`] gives for all tokens: bytes that no further byte can make valid become U+FFFD, one for each
/// maximal part of a character, as in [`String::from_utf8_lossy`].
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    skip_special: bool,
    /// The next byte is the first of the text, where SentencePiece's added space is dropped.
    at_start: bool,
    /// The start of a character.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder for a text from its first token. With `skip_special`, control tokens give no text.
    pub fn new(skip_special: bool) -> Self {
        Self { skip_special, at_start: true, pending: Vec::new() }
    }

    /// A decoder for tokens that continue a text, so that the space before the first word is kept.
    pub fn continuing(skip_special: bool) -> Self {
        Self { at_start: false, ..Self::new(skip_special) }
    }

    /// Takes the next token and returns the text that is complete with it, which may be empty.
    ///
    /// # Errors
    /// [`TokenizerError::IdOutOfRange`]; the decoder is then as before.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, TokenizerError> {
        let mut bytes = tokenizer.token_bytes(id)?;
        if self.skip_special && tokenizer.is_special(id) {
            return Ok(String::new());
        }
        if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            if tokenizer.drops_first_space() {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        self.pending.extend_from_slice(bytes);
        let complete = self.pending.len() - incomplete(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..complete]).into_owned();
        self.pending.drain(..complete);
        Ok(text)
    }

    /// Ends the text and returns the rest: U+FFFD if the last character is incomplete, otherwise an empty text.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// The number of bytes at the end that start a character and could be completed by further bytes: at most 3.
fn incomplete(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    (from..bytes.len())
        .find_map(|at| match std::str::from_utf8(&bytes[at..]) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => Some(bytes.len() - at),
            _ => None,
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::incomplete;

    #[test]
    fn the_start_of_a_character_is_held_back() {
        let cases: [(&[u8], usize); 9] = [
            (b"", 0),
            (b"abc", 0),
            ("a中".as_bytes(), 0),
            (b"a\xe4\xb8", 2),
            (b"\xf0\x9f\x92", 3),
            (b"\xf0\x9f\x92\xa9", 0),
            (b"a\xff", 0),
            // 0xed 0xa0 would be a surrogate: no third byte makes it valid.
            (b"\xed\xa0", 0),
            (b"\xe4\xe4", 1),
        ];
        for (bytes, expected) in cases {
            assert_eq!(incomplete(bytes), expected, "{bytes:02x?}");
        }
    }
}
