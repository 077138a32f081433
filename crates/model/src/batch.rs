//! The tokens of one forward pass.

use std::ops::Range;
use std::sync::Arc;

use gristmill_vision::{ImageSpan, Prepared};
use serde::{Deserialize, Serialize};

use crate::state::SequenceId;

/// The outputs that are requested, and of which tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// None: the tokens only fill the state.
    None,
    /// The logits of the last token.
    Last,
    /// The logits of every token.
    All,
    /// The hidden state of the last token: what the output matrix is multiplied with.
    LastHidden,
    /// The hidden states of every token.
    AllHidden,
}

impl Outputs {
    /// The positions, among this number of tokens, whose outputs are requested.
    pub fn of(self, tokens: usize) -> Range<usize> {
        match self {
            Outputs::None => tokens..tokens,
            Outputs::Last | Outputs::LastHidden => tokens.saturating_sub(1)..tokens,
            Outputs::All | Outputs::AllHidden => 0..tokens,
        }
    }
}

/// Tokens of a batch whose embeddings are rows of a picture.
#[derive(Clone, Debug)]
pub(crate) struct BatchImage {
    /// The first token's place in the batch.
    pub(crate) at: usize,
    pub(crate) tokens: usize,
    pub(crate) image: Arc<Prepared>,
    pub(crate) tile: usize,
    /// The first token's row of the tile.
    pub(crate) first: usize,
}

/// The pictures of a sequence, as far as it goes.
#[derive(Clone, Debug)]
pub(crate) struct SequenceImages {
    pub(crate) sequence: SequenceId,
    pub(crate) spans: Vec<ImageSpan>,
}

/// Tokens of one or more sequences, flat. Reuse it: [`Batch::clear`] keeps its memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    pub(crate) tokens: Vec<u32>,
    /// See [`Batch::push_sampled`]: the place of each such token, and the row that it was sampled from.
    pub(crate) sampled: Vec<(usize, usize)>,
    /// See [`Batch::push_with_images`]. Not sent to other ranks, which get the rows of the pictures.
    #[serde(skip)]
    pub(crate) images: Vec<BatchImage>,
    #[serde(skip)]
    pub(crate) sequence_images: Vec<SequenceImages>,
    /// Each sequence with its number of tokens, in order.
    pub(crate) parts: Vec<(SequenceId, usize)>,
    /// Tokens whose logits are wanted, ascending.
    pub(crate) output_rows: Vec<u32>,
    /// Tokens whose hidden states are wanted, ascending.
    pub(crate) hidden_rows: Vec<u32>,
    /// See [`Batch::take_argmax`].
    pub(crate) argmax: bool,
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
        self.add(sequence, start, outputs)
    }

    /// Adds the token that the runner sampled last from this row of logits. The host need not have it yet: the step
    /// can be submitted to a device that still computes the last one
    /// ([`Logits::start_argmax`](crate::Logits::start_argmax)). Of a row that is not finite no token was sampled, and
    /// what the step computes of it means nothing.
    pub fn push_sampled(&mut self, sequence: SequenceId, row: usize, outputs: Outputs) -> &mut Self {
        let start = self.tokens.len();
        self.sampled.push((start, row));
        // The device puts it there.
        self.tokens.push(0);
        self.add(sequence, start, outputs)
    }

    /// Adds the next tokens of a sequence, which are those from `first` on in a prompt with pictures. The rows of pictures
    /// take the place of the embeddings of the tokens in `spans`.
    pub fn push_with_images(
        &mut self,
        sequence: SequenceId,
        tokens: &[u32],
        first: usize,
        spans: &[ImageSpan],
        outputs: Outputs,
    ) -> &mut Self {
        let end = first.saturating_add(tokens.len());
        for span in spans {
            let from = first.max(span.start);
            let to = end.min(span.start.saturating_add(span.tokens));
            if from < to {
                self.images.push(BatchImage {
                    at: self.tokens.len() + from - first,
                    tokens: to - from,
                    image: span.image.clone(),
                    tile: span.tile,
                    first: span.first.saturating_add(from - span.start),
                });
            }
        }
        let before: Vec<ImageSpan> = spans.iter().filter(|span| span.start < end).cloned().collect();
        if !before.is_empty() {
            self.sequence_images.push(SequenceImages { sequence, spans: before });
        }
        self.push(sequence, tokens, outputs)
    }

    /// Adds what is from `start` on in `tokens` to a sequence.
    fn add(&mut self, sequence: SequenceId, start: usize, outputs: Outputs) -> &mut Self {
        let tokens = self.tokens.len() - start;
        self.parts.push((sequence, tokens));
        let rows = match outputs {
            Outputs::None | Outputs::Last | Outputs::All => &mut self.output_rows,
            Outputs::LastHidden | Outputs::AllHidden => &mut self.hidden_rows,
        };
        rows.extend(outputs.of(tokens).map(|row| (start + row) as u32));
        self
    }

    /// The most likely token of each row of logits is wanted: the forward pass finds it, and
    /// [`Logits::argmax`](crate::Logits::argmax) costs no launch of its own.
    pub fn take_argmax(&mut self) -> &mut Self {
        self.argmax = true;
        self
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.sampled.clear();
        self.images.clear();
        self.sequence_images.clear();
        self.parts.clear();
        self.output_rows.clear();
        self.hidden_rows.clear();
        self.argmax = false;
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

    /// The place in the batch of the token that a row of logits belongs to.
    pub fn output_token(&self, row: usize) -> Option<usize> {
        self.output_rows.get(row).map(|&token| token as usize)
    }
}
