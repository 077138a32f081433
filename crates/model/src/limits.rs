//! How much a runner can do at once.

use gristmill_kernels::Backend;
use gristmill_kernels::kv::KvFormat;
use gristmill_vision::Limits as ImageLimits;

use crate::error::{Error, Result};

/// The default context length, if the model was trained on as much and memory allows.
pub const DEFAULT_CONTEXT: usize = 8192;

/// The longest context that is supported: positions have 32 bits, and angles of RoPE must stay finite.
pub const MAX_CONTEXT: usize = 1 << 31;

/// How much a [`Runner`](crate::Runner) can do at once; its memory is allocated for all of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of one sequence, at most [`MAX_CONTEXT`]; `None` for the least of what the model was trained on,
    /// [`DEFAULT_CONTEXT`], and what fits into memory or into `kv_tokens`. More than the model was trained on is a
    /// [`Notice`](crate::Notice).
    pub context: Option<usize>,
    /// Sequences at a time.
    pub sequences: usize,
    /// Tokens that the KV cache has blocks for, of all sequences together and of the prefix cache; at least the
    /// context. `None`: as many as the sequences can have. With fewer, an engine preempts requests when
    /// blocks run out, and [`Runner::forward`](crate::Runner::forward) fails. Of layers with a window, a sequence has
    /// no more blocks than for the window and one batch, so their caches may be smaller.
    pub kv_tokens: Option<usize>,
    /// Tokens of one batch.
    pub batch_tokens: usize,
    /// Rows of logits of one batch; `None` for one for each sequence.
    pub output_rows: Option<usize>,
    /// Tokens of the largest batch within which a sequence can be truncated to any length, in a model with states of fixed
    /// size: the inputs of recurrent operations are kept for this number of tokens. After a larger batch, a sequence can be
    /// truncated only to the length before it. Other models allow any length.
    pub rollback_tokens: usize,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
    /// The images that callers give to the tower: the memory plan counts the largest of them.
    pub images: ImageLimits,
}

impl Default for Limits {
    fn default() -> Self {
        let (context, kv_tokens, output_rows) = (None, None, None);
        let sequences = 1;
        let batch_tokens = USUAL_BATCH;
        let rollback_tokens = 0;
        let kv_format = KvFormat::F16;
        let images = ImageLimits::default();
        Self { context, sequences, kv_tokens, batch_tokens, output_rows, rollback_tokens, kv_format, images }
    }
}

/// Tokens of a batch by default.
pub(crate) const USUAL_BATCH: usize = 512;

impl Limits {
    /// Rows of logits of one batch.
    pub fn rows(&self) -> usize {
        self.output_rows.unwrap_or(self.sequences)
    }

    /// Tokens for which inputs of recurrent operations are kept: [`Self::rollback_tokens`] with padding.
    pub(crate) fn kept_tokens(&self, backend: &Backend) -> usize {
        match self.rollback_tokens {
            0 => 0,
            tokens => backend.batch_bucket(tokens).min(self.batch_tokens),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let at_least_one = [
            ("the context length", self.context.unwrap_or(1)),
            ("the number of sequences", self.sequences),
            ("the number of tokens of the KV cache", self.kv_tokens.unwrap_or(1)),
            ("the number of tokens in a batch", self.batch_tokens),
            ("the number of output rows", self.rows()),
        ];
        match at_least_one.into_iter().find(|(_, n)| *n == 0) {
            None => Ok(()),
            Some((what, found)) => Err(Error::Limit { what, found, rule: "it must be at least 1".to_owned() }),
        }
    }

    /// Tokens of the KV cache for sequences of `context` tokens.
    ///
    /// # Errors
    /// [`Error::Limit`] if they are fewer than the context.
    pub(crate) fn kv_tokens(&self, context: usize) -> Result<usize> {
        match self.kv_tokens {
            None => Ok(self.sequences.saturating_mul(context)),
            Some(tokens) if tokens >= context => Ok(tokens),
            Some(found) => {
                let rule =
                    format!("it must be at least the context length, {context}; raise it or shorten the context");
                Err(Error::Limit { what: "the number of tokens of the KV cache", found, rule })
            }
        }
    }
}
