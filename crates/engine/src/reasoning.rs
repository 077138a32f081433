//! A limit on the tokens of reasoning: where it is reached, the text that ends reasoning is generated.

use serde::{Deserialize, Serialize};

/// The most tokens of reasoning, and the marks around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasoningLimit {
    /// The most tokens between the marks.
    pub tokens: usize,
    /// Whether the prompt has started reasoning.
    pub is_started: bool,
    /// Whether reasoning may start again after other text. Otherwise a reply only starts with it.
    pub repeats: bool,
    /// The mark before reasoning.
    pub open: String,
    /// The mark after reasoning.
    pub close: String,
    /// The tokens of the text that then ends reasoning, the mark included.
    pub ending: Vec<u32>,
}

/// The reasoning of one text so far.
#[derive(Debug)]
pub(super) struct Reasoning {
    limit: ReasoningLimit,
    place: Place,
    /// Tokens of reasoning so far.
    used: usize,
    /// Tokens of the ending that were generated.
    ended: usize,
    /// The end of the text, in which a mark may start.
    tail: String,
}

/// Where the end of a text is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Where reasoning may start.
    Before,
    Within,
    /// Where none starts any more.
    After,
}

impl Reasoning {
    pub(super) fn new(limit: ReasoningLimit) -> Reasoning {
        let place = if limit.is_started { Place::Within } else { Place::Before };
        Reasoning { place, limit, used: 0, ended: 0, tail: String::new() }
    }

    /// The token that has to be generated next.
    pub(super) fn forced(&self) -> Option<u32> {
        let is_due = self.place == Place::Within && self.used >= self.limit.tokens;
        is_due.then(|| self.limit.ending.get(self.ended).copied()).flatten()
    }

    /// At least this number of tokens may be sampled before one is forced.
    pub(super) fn free(&self) -> usize {
        match self.place {
            Place::After => usize::MAX,
            Place::Before | Place::Within => self.limit.tokens.saturating_sub(self.used),
        }
    }

    /// Takes a generated token, and the text that it added.
    pub(super) fn push(&mut self, text: &str) {
        if self.forced().is_some() {
            self.ended += 1;
            if self.ended == self.limit.ending.len() {
                self.ended = 0;
                self.tail.clear();
                self.place = self.behind();
            }
            return;
        }
        self.used += usize::from(self.place == Place::Within);
        self.tail.push_str(text);
        while let Some(at) = self.mark().and_then(|mark| self.tail.find(mark).map(|at| at + mark.len())) {
            self.tail.drain(..at);
            self.place = if self.place == Place::Before { Place::Within } else { self.behind() };
        }
        let started = self.tail.trim_start();
        if self.place == Place::Before && !self.limit.repeats && !self.limit.open.starts_with(started) {
            self.place = Place::After;
        }
        let longest = self.limit.open.len().max(self.limit.close.len());
        let mut from = self.tail.len().saturating_sub(longest);
        while !self.tail.is_char_boundary(from) {
            from -= 1;
        }
        self.tail.drain(..from);
    }

    /// The mark that changes the place.
    fn mark(&self) -> Option<&str> {
        let mark = match self.place {
            Place::Before => &self.limit.open,
            Place::Within => &self.limit.close,
            Place::After => return None,
        };
        Some(mark.as_str()).filter(|mark| !mark.is_empty())
    }

    /// The place after reasoning.
    fn behind(&self) -> Place {
        if self.limit.repeats { Place::Before } else { Place::After }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(tokens: usize, is_started: bool) -> Reasoning {
        let (open, close) = ("<think>".to_owned(), "</think>".to_owned());
        Reasoning::new(ReasoningLimit { tokens, is_started, repeats: false, open, close, ending: vec![7, 8] })
    }

    #[test]
    fn reasoning_that_is_too_long_is_ended() {
        let mut reasoning = limit(2, true);
        for text in ["é", "b"] {
            assert_eq!(reasoning.forced(), None);
            reasoning.push(text);
        }
        for expected in [Some(7), Some(8), None] {
            assert_eq!(reasoning.forced(), expected);
            reasoning.push("</think>");
        }
        assert_eq!((limit(0, true).forced(), reasoning.free()), (Some(7), usize::MAX));
    }

    #[test]
    fn marks_may_span_tokens() {
        let mut reasoning = limit(3, false);
        for text in [" <th", "ink", ">", "a", "</thi", "nk> and", " more", " and", " more"] {
            assert_eq!(reasoning.forced(), None, "{text}");
            reasoning.push(text);
        }
        let mut reasoning = limit(2, false);
        for text in ["<think", ">a", "b", "c"] {
            assert_eq!(reasoning.forced(), None, "{text}");
            reasoning.push(text);
        }
        assert_eq!((reasoning.forced(), reasoning.free()), (Some(7), 0));
        // A reply that starts with other text has no reasoning, unless its form lets it come back.
        for repeats in [false, true] {
            let mut reasoning = limit(0, false);
            reasoning.limit.repeats = repeats;
            reasoning.push("No ");
            reasoning.push("<think>");
            assert_eq!(reasoning.forced().is_some(), repeats);
        }
    }
}
