//! DRY, a penalty on tokens that would continue a repetition. It is computed on the host, from the text so far.

use std::collections::HashMap;

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use gristmill_text::tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// DRY ("don't repeat yourself"): lowers the logits of tokens that would continue a sequence which has occurred before.
///
/// Let *n* be the length of the longest sequence of tokens that ends the text, prompt included, and that has occurred
/// earlier in it with token *t* right after. If *n* ≥ `allowed_length`, the logit of *t* is lowered by
///
/// ```text
/// multiplier · base ^ (n − allowed_length)
/// ```
/// No sequence contains a token in which a sequence breaker ends, and no such token is penalised where it followed. The
/// formula is that of the original proposal (p-e-w, <https://github.com/oobabooga/text-generation-webui/pull/5677>),
/// which tokenises each breaker; here a breaker is looked for in the text, so it may be a part of a token or span
/// several.
///
/// Each sampled token costs time and memory linear in the tokens that are looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dry {
    /// The penalty of a sequence of `allowed_length` tokens; 0 turns DRY off.
    pub multiplier: f32,
    /// Multiplies the penalty for each token beyond `allowed_length`; at least 1.
    pub base: f32,
    /// The shortest repeated sequence whose continuation is penalised; at least 1.
    pub allowed_length: usize,
    /// Only this many last tokens of the text are looked at; `None` for all, 0 turns DRY off.
    pub penalty_last_n: Option<usize>,
    /// Texts that end a sequence, such as the line break between speakers.
    pub sequence_breakers: Vec<String>,
}

impl Default for Dry {
    /// Off; the other parameters are those of the original proposal.
    fn default() -> Dry {
        Dry {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            penalty_last_n: None,
            sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).to_vec(),
        }
    }
}

impl Dry {
    /// Checks the range of every parameter, also where DRY is off.
    ///
    /// # Errors
    /// [`EngineError::Sampling`] names the first that is out of range; [`EngineError::EmptyBreaker`].
    pub fn check(&self) -> Result<(), EngineError> {
        let wrong = |what, value, rule| Err(EngineError::Sampling { what, value, rule });
        if !(0.0..=f32::MAX).contains(&self.multiplier) {
            return wrong("dry_multiplier", self.multiplier, "0 or greater, and finite; 0 turns DRY off");
        }
        if !(1.0..=f32::MAX).contains(&self.base) {
            return wrong("dry_base", self.base, "1 or greater, and finite");
        }
        if self.allowed_length == 0 {
            return wrong("dry_allowed_length", 0.0, "at least 1");
        }
        match self.sequence_breakers.iter().any(String::is_empty) {
            true => Err(EngineError::EmptyBreaker),
            false => Ok(()),
        }
    }

    fn is_on(&self) -> bool {
        self.multiplier > 0.0 && self.penalty_last_n != Some(0)
    }
}

/// DRY for one generation, whose text only grows.
#[derive(Debug)]
pub(super) struct Repetition {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    window: usize,
    breakers: Option<Breakers>,
    /// For each token of the text so far, whether a sequence breaker ends in it.
    breaks: Vec<bool>,
    /// Scratch of [`Self::longest`].
    lengths: Vec<usize>,
}

impl Repetition {
    /// `None` if DRY is off. `has_text`: the model has a tokenizer.
    ///
    /// # Errors
    /// The errors of [`Dry::check`]; [`EngineError::BreakersWithoutText`], [`EngineError::Breakers`].
    pub(super) fn new(options: &Dry, has_text: bool) -> Result<Option<Repetition>, EngineError> {
        options.check()?;
        if !options.is_on() {
            return Ok(None);
        }
        let breakers = match options.sequence_breakers.as_slice() {
            [] => None,
            _ if !has_text => return Err(EngineError::BreakersWithoutText),
            texts => Some(Breakers::new(texts)?),
        };
        Ok(Some(Repetition {
            multiplier: options.multiplier.into(),
            base: options.base.into(),
            allowed_length: options.allowed_length,
            window: options.penalty_last_n.unwrap_or(usize::MAX),
            breakers,
            breaks: Vec::new(),
            lengths: Vec::new(),
        }))
    }

    /// Tokens and what to subtract from their logits, in ascending order of the tokens, to sample the token after
    /// `text`, which starts with the text of the previous call.
    pub(super) fn penalties(&mut self, text: &[u32], tokenizer: Option<&Tokenizer>) -> Vec<(u32, f32)> {
        for &token in text.get(self.breaks.len()..).unwrap_or_default() {
            let bytes = tokenizer.and_then(|tokenizer| tokenizer.token_bytes(token).ok()).unwrap_or_default();
            let ends = self.breakers.as_mut().is_some_and(|breakers| breakers.end_in(bytes));
            self.breaks.push(ends);
        }
        let start = text.len().saturating_sub(self.window);
        let longest = self.longest(&text[start..], start);
        let penalty = |length: usize| {
            let exponent = i32::try_from(length - self.allowed_length).unwrap_or(i32::MAX);
            (self.multiplier * self.base.powi(exponent)).min(f32::MAX.into()) as f32
        };
        let mut penalties: Vec<(u32, f32)> =
            longest.into_iter().map(|(token, length)| (token, penalty(length))).collect();
        penalties.sort_unstable_by_key(|&(token, _)| token);
        penalties
    }

    /// The tokens that would continue a repetition of the allowed length or more, and the longest length of each.
    /// `text` starts at `start` of the whole text.
    ///
    /// Read from its end, the text is the Z algorithm's string (Gusfield, *Algorithms on Strings, Trees, and
    /// Sequences*, 1997): for each place `k` before the end, it is the number of tokens before `k` that equal the
    /// tokens before the end. A token with a break equals none, not even itself. Each comparison either ends a place or
    /// moves the end of the known match, so there are at most two for each token of the text.
    fn longest(&mut self, text: &[u32], start: usize) -> HashMap<u32, usize> {
        let n = text.len();
        let breaks = &self.breaks[start..];
        let mut longest = HashMap::new();
        let (Some(&last), Some(false)) = (text.last(), breaks.last()) else { return longest };
        // Counted from the end: 0 is the last token.
        let token = |k: usize| (text[n - 1 - k], breaks[n - 1 - k]);
        let same = |a: usize, b: usize| matches!((token(a), token(b)), ((x, false), (y, false)) if x == y);
        self.lengths.clear();
        self.lengths.resize(n, 0);
        // The known match that reaches furthest: tokens `left..right` equal tokens `0..right - left`.
        let (mut left, mut right) = (0, 0);
        let mut k = 1;
        while k < n {
            if k >= right {
                // Most tokens are not the last one.
                let Some(at) = text[..n - k].iter().rposition(|&token| token == last) else { break };
                k = n - 1 - at;
            }
            let mut length = if k < right { self.lengths[k - left].min(right - k) } else { 0 };
            while k + length < n && same(length, k + length) {
                length += 1;
            }
            self.lengths[k] = length;
            if k + length > right {
                (left, right) = (k, k + length);
            }
            let (next, is_break) = token(k - 1);
            if length >= self.allowed_length && !is_break {
                let known = longest.entry(next).or_insert(length);
                *known = length.max(*known);
            }
            k += 1;
        }
        longest
    }
}

/// Finds where sequence breakers end in a text that comes token by token.
#[derive(Debug)]
struct Breakers {
    automaton: NFA,
    state: StateID,
}

impl Breakers {
    fn new(texts: &[String]) -> Result<Breakers, EngineError> {
        let automaton = NFA::new(texts).map_err(|error| EngineError::Breakers(error.to_string()))?;
        let state = automaton.start_state(Anchored::No).map_err(|error| EngineError::Breakers(error.to_string()))?;
        Ok(Breakers { automaton, state })
    }

    /// Takes the next bytes; whether any breaker ends in them.
    fn end_in(&mut self, bytes: &[u8]) -> bool {
        let mut found = false;
        for &byte in bytes {
            self.state = self.automaton.next_state(Anchored::No, self.state, byte);
            found |= self.automaton.is_match(self.state);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repetition(dry: &Dry, breaks: &[bool]) -> Repetition {
        let mut repetition = Repetition::new(dry, true).unwrap().unwrap();
        repetition.breaks = breaks.to_vec();
        repetition
    }

    /// The formula as it stands: for every token and every length, whether the last tokens of that length have occurred
    /// before that token.
    fn restated(dry: &Dry, text: &[u32], breaks: &[bool]) -> Vec<(u32, f32)> {
        let start = text.len().saturating_sub(dry.penalty_last_n.unwrap_or(usize::MAX));
        let (text, breaks) = (&text[start..], &breaks[start..]);
        let whole = |from: usize, length: usize| breaks[from..from + length].iter().all(|is_break| !is_break);
        let follows = |token: u32, length: usize| {
            let end = text.len() - length;
            let occurs =
                |at: usize| text[at..at + length] == text[end..] && text[at + length] == token && whole(at, length + 1);
            whole(end, length) && (0..end).any(occurs)
        };
        let penalty = |token: u32| {
            let longest = (1..text.len()).rev().find(|&length| follows(token, length))?;
            let beyond = longest.checked_sub(dry.allowed_length)?;
            let penalty = f64::from(dry.multiplier) * f64::from(dry.base).powi(beyond as i32);
            Some((token, penalty.min(f64::from(f32::MAX)) as f32))
        };
        (0..4).filter_map(penalty).collect()
    }

    proptest! {
        #[test]
        fn equals_the_formula(
            text in prop::collection::vec(0u32..4, 0..60),
            breaks in prop::collection::vec(prop::bool::weighted(0.1), 60),
            multiplier in 0.01f32..5.0,
            base in 1f32..3.0,
            allowed_length in 1usize..5,
            penalty_last_n in prop::option::of(1usize..70),
        ) {
            let dry = Dry { multiplier, base, allowed_length, penalty_last_n, ..Dry::default() };
            let breaks = &breaks[..text.len()];
            prop_assert_eq!(repetition(&dry, breaks).penalties(&text, None), restated(&dry, &text, breaks));
        }

        /// Few different tokens repeat each other at great lengths, where the Z algorithm takes known matches over.
        #[test]
        fn equals_the_formula_on_long_repetitions(
            period in prop::collection::vec(0u32..3, 1..6),
            repeats in 1usize..15,
            change in 0usize..60,
            breaks in prop::collection::vec(prop::bool::weighted(0.02), 90),
        ) {
            let mut text = period.repeat(repeats);
            if let Some(token) = text.get_mut(change) {
                *token = 3;
            }
            let dry = Dry { multiplier: 0.8, ..Dry::default() };
            let breaks = &breaks[..text.len()];
            prop_assert_eq!(repetition(&dry, breaks).penalties(&text, None), restated(&dry, &text, breaks));
        }

        /// Breakers are found wherever tokens cut them.
        #[test]
        fn breakers_are_those_of_the_whole_text(
            text in "[ab\n:]{0,40}", cuts in prop::collection::vec(1usize..4, 40),
        ) {
            let texts = ["\n", "ab", "b::a"].map(String::from);
            let mut breakers = Breakers::new(&texts).unwrap();
            let mut at = 0;
            for cut in cuts {
                let end = (at + cut).min(text.len());
                let found = breakers.end_in(&text.as_bytes()[at..end]);
                let expected = (at + 1..=end).any(|end| texts.iter().any(|breaker| text[..end].ends_with(breaker)));
                prop_assert_eq!(found, expected);
                at = end;
            }
        }
    }

    #[test]
    fn penalties_stay_finite() {
        let dry = Dry { multiplier: f32::MAX, base: 1e30, sequence_breakers: vec![], ..Dry::default() };
        let penalties = repetition(&dry, &[]).penalties(&[7; 1000], None);
        assert_eq!(penalties, [(7, f32::MAX)]);
    }

    /// A growing text has the same result as a complete one.
    #[test]
    fn texts_grow() {
        let text: Vec<u32> = (0..200).map(|i| i * i % 7).collect();
        let dry = Dry { multiplier: 1.0, sequence_breakers: vec![], ..Dry::default() };
        let mut growing = repetition(&dry, &[]);
        for n in 1..=text.len() {
            assert_eq!(growing.penalties(&text[..n], None), repetition(&dry, &[]).penalties(&text[..n], None));
        }
    }

    #[test]
    fn parameters_are_checked() {
        assert!(Dry::default().check().is_ok());
        let good = Dry { multiplier: 0.8, ..Dry::default() };
        assert!(good.check().is_ok());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.1] {
            let multiplier = Dry { multiplier: bad, ..good.clone() }.check();
            assert!(matches!(multiplier, Err(EngineError::Sampling { what: "dry_multiplier", .. })), "{bad}");
            let base = Dry { base: bad, ..good.clone() }.check();
            assert!(matches!(base, Err(EngineError::Sampling { what: "dry_base", .. })), "{bad}");
        }
        let short = Dry { base: 0.99, ..good.clone() };
        assert!(matches!(short.check(), Err(EngineError::Sampling { what: "dry_base", .. })));
        let none = Dry { allowed_length: 0, ..good.clone() };
        assert!(matches!(none.check(), Err(EngineError::Sampling { what: "dry_allowed_length", .. })));
        let empty = Dry { sequence_breakers: vec!["a".into(), String::new()], ..good.clone() };
        assert!(matches!(empty.check(), Err(EngineError::EmptyBreaker)));
        assert!(matches!(Repetition::new(&good, false), Err(EngineError::BreakersWithoutText)));
        let without = Dry { sequence_breakers: vec![], ..good.clone() };
        assert!(Repetition::new(&without, false).unwrap().is_some());
        for off in [Dry { multiplier: 0.0, ..good.clone() }, Dry { penalty_last_n: Some(0), ..good }] {
            assert!(Repetition::new(&off, false).unwrap().is_none());
        }
    }
}
