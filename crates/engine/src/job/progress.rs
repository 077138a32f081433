//! Tokens and times of one text so far.

use std::time::Instant;

use crate::Usage;

/// Tokens and times of one text so far.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) usage: Usage,
    /// The request, then the start of the first step, then the first token.
    since: Instant,
}

impl Progress {
    /// The progress of a request that arrived at this time.
    pub(super) fn new(prompt_tokens: usize, since: Instant) -> Progress {
        Progress { usage: Usage { prompt_tokens, ..Usage::default() }, since }
    }

    /// The text gets its sequence, in which `reused` tokens are computed.
    pub(super) fn begin(&mut self, reused: usize) {
        let now = Instant::now();
        self.usage.reused_tokens = reused;
        self.usage.queue = now - self.since;
        self.since = now;
    }

    /// Counts a forward pass over this number of requests, this one included.
    pub(crate) fn count_step(&mut self, requests: usize) {
        self.usage.steps += 1;
        self.usage.step_requests += requests;
    }

    /// Counts a generated token.
    pub(super) fn count_token(&mut self) {
        let now = Instant::now();
        match self.usage.generated_tokens {
            0 => {
                self.usage.prefill = now - self.since;
                self.since = now;
            }
            _ => self.usage.decode = now - self.since,
        }
        self.usage.generated_tokens += 1;
    }
}
