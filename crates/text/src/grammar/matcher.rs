//! The state of one text in its grammar.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::earley::Parser;

use super::GrammarError;
use super::guarded::guarded;
use super::vocabulary::Vocabulary;
use super::words::Reason;

/// The time of one token in its grammar, for which all requests wait. Most grammars take less than a millisecond.
const TOKEN_TIME: Duration = Duration::from_millis(20);
/// The maximum time of a completion's tokens beyond [`TOKEN_TIME`] each; cheaper tokens save time for others.
const MAX_EXCESS: Duration = Duration::from_secs(1);

/// Returns which tokens may follow, and follows the text.
pub struct Matcher {
    parser: Parser,
    vocabulary: Arc<Vocabulary>,
    /// The mask of the last [`Self::allow`]: bit `i % 32` of word `i / 32` allows token `i`.
    mask: Vec<u32>,
    /// Time beyond [`TOKEN_TIME`].
    excess: Duration,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Matcher")
    }
}

impl Matcher {
    pub(super) fn new(parser: Parser, vocabulary: Arc<Vocabulary>) -> Matcher {
        Matcher { parser, mask: vec![0; vocabulary.words()], vocabulary, excess: Duration::ZERO }
    }

    /// Computes the mask of the next token. End-of-generation tokens are allowed where the grammar is complete, if the
    /// text may end or nothing else may follow. After an error the matcher is not used again.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if there is no such token, [`GrammarError::Refused`] if a mask costs too much.
    pub fn allow(&mut self, may_end: bool) -> Result<(), GrammarError> {
        let since = Instant::now();
        let Matcher { parser, vocabulary, .. } = self;
        let (allowed, complete) = guarded(|| {
            let allowed = parser.compute_bias(vocabulary.slices(), &[]);
            match parser.get_error() {
                Some(error) => Err(error.message()),
                None => Ok((allowed, parser.is_accepting())),
            }
        })
        .map_err(GrammarError::Refused)?;
        let words = allowed.as_slice().iter().copied().chain(std::iter::repeat(0));
        self.mask.iter_mut().zip(words).for_each(|(word, allowed)| *word = allowed);
        let bit = |id: u32| (id as usize / 32, 1 << (id % 32));
        for (word, bit) in self.vocabulary.ends().iter().copied().map(bit) {
            self.mask[word] &= !bit;
        }
        if complete && (may_end || self.is_empty()) {
            for (word, bit) in self.vocabulary.ends().iter().copied().map(bit) {
                self.mask[word] |= bit;
            }
        }
        if self.is_empty() {
            return Err(GrammarError::Stuck);
        }
        self.excess = self.excess.saturating_sub(TOKEN_TIME);
        self.pay(since.elapsed())
    }

    /// Counts time that was spent on the grammar.
    fn pay(&mut self, time: Duration) -> Result<(), GrammarError> {
        self.excess += time;
        match self.excess > TOKEN_TIME + MAX_EXCESS {
            true => Err(GrammarError::Refused(format!(
                "its tokens take more than {} ms each; make it less ambiguous",
                TOKEN_TIME.as_millis()
            ))),
            false => Ok(()),
        }
    }

    fn is_empty(&self) -> bool {
        self.mask.iter().all(|&word| word == 0)
    }

    /// The tokens that the last [`Self::allow`] allows.
    pub fn mask(&self) -> &[u32] {
        &self.mask
    }

    /// Accepts the sampled token. Returns whether the text has ended: by an end-of-generation token, or because nothing
    /// may follow. After an error the matcher is not used again.
    ///
    /// # Errors
    /// [`GrammarError::Refused`] if the grammar does not allow the token, or if following it costs too much.
    pub fn accept(&mut self, token: u32) -> Result<bool, GrammarError> {
        if self.mask.get(token as usize / 32).is_none_or(|word| word >> (token % 32) & 1 == 0) {
            return Err(GrammarError::Refused(format!("it does not allow token {token}, which was drawn")));
        }
        if self.vocabulary.ends().binary_search(&token).is_ok() {
            return Ok(true);
        }
        let since = Instant::now();
        let Matcher { parser, vocabulary, .. } = self;
        let ended = guarded(|| {
            // A control token by its number, as the lexer knows it.
            let bytes = vocabulary.trie().decode_raw(&[token]);
            let taken_back = parser.apply_token(&bytes, token).map_err(|error| Reason::new(&error).text)?;
            match parser.get_error() {
                Some(error) => Err(error.message()),
                None if taken_back > 0 => Err("it takes back generated text".to_owned()),
                None => Ok(parser.is_accepting() && !parser.can_advance()),
            }
        });
        self.pay(since.elapsed())?;
        ended.map_err(GrammarError::Refused)
    }
}
