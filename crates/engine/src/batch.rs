//! The tokens of one forward pass.

use crate::state::SequenceId;

/// Which tokens' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// None: the tokens only fill the state.
    None,
    /// Those of the last token.
    Last,
    /// Those of every token.
    All,
}

/// Tokens of one or more sequences, flat. Reuse it: [`Batch::clear`] keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) tokens: Vec<u32>,
    /// Each sequence with its number of tokens, in order.
    pub(crate) parts: Vec<(SequenceId, usize)>,
    /// Tokens whose logits are wanted, ascending.
    pub(crate) output_rows: Vec<u32>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next tokens of a sequence: they follow those that it has.
    pub fn push(&mut self, sequence: SequenceId, tokens: &[u32], outputs: Outputs) -> &mut Self {
        let start = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        self.parts.push((sequence, tokens.len()));
        let first = match outputs {
            Outputs::None => self.tokens.len(),
            Outputs::Last => start.max(self.tokens.len().saturating_sub(1)),
            Outputs::All => start,
        };
        self.output_rows.extend((first..self.tokens.len()).map(|row| row as u32));
        self
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.parts.clear();
        self.output_rows.clear();
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The number of rows of logits that a forward pass gives, in the order in which their tokens were pushed.
    pub fn outputs(&self) -> usize {
        self.output_rows.len()
    }
}
