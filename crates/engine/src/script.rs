//! Completions that somebody else chooses, for tests of programs that talk to a server: no small model calls a tool
//! when it should. Everything but the choice of the token is as it is for a model's own completion: the prompt is
//! computed, a grammar's mask applies, and the token is sampled, parsed and sent.

use std::collections::VecDeque;
use std::fmt;

use gristmill_text::tokenizer::{EncodeOptions, Tokenizer, TokenizerError};

use crate::EngineError;

/// Chooses completions ([`Engine::with_script`](crate::Engine::with_script)).
pub trait Script: fmt::Debug + Send + Sync {
    /// The completion of a prompt, whose control tokens are spelled out; the text may have control tokens as well, and
    /// its end is added. If the prompt ends with the text's beginning, as where a call is required, only the rest is
    /// completed. `None` leaves the completion to the model.
    fn completion(&self, prompt: &str) -> Option<String>;
}

/// Tokens that a completion must have next.
#[derive(Debug)]
pub(super) struct Scripted(VecDeque<[(u32, f32); 1]>);

impl Scripted {
    /// More than any logit, and far enough from infinity for what follows a bias.
    const BIAS: f32 = 1e9;

    /// The tokens that a script chooses for a prompt, and an end of the text.
    pub(super) fn new(
        script: &dyn Script,
        tokenizer: &Tokenizer,
        prompt: &[u32],
    ) -> Result<Option<Scripted>, TokenizerError> {
        let prompt = tokenizer.decode(prompt, false)?;
        let Some(text) = script.completion(&prompt) else { return Ok(None) };
        let mut ends = (0..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
        let started = ends.find(|&end| prompt.ends_with(&text[..end])).unwrap_or(0);
        let tokens = tokenizer.encode(&text[started..], EncodeOptions { add_special: false, parse_special: true })?;
        let end = tokenizer.eos().or(tokenizer.end_of_generation().first().copied());
        Ok(Some(Scripted(tokens.into_iter().chain(end).map(|token| [(token, Self::BIAS)]).collect())))
    }

    /// The bias of the next token; `None` behind the last.
    pub(super) fn bias(&self) -> Option<&[(u32, f32)]> {
        self.0.front().map(|bias| &bias[..])
    }

    /// Continues behind a sampled token.
    ///
    /// # Errors
    /// [`EngineError::Script`] if it is another one, because a grammar forbids the script's.
    pub(super) fn accept(&mut self, sampled: u32) -> Result<(), EngineError> {
        match self.0.pop_front() {
            Some([(token, _)]) if token != sampled => Err(EngineError::Script { token, sampled }),
            _ => Ok(()),
        }
    }
}
