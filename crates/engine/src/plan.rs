//! The memory of a model, planned before it is loaded.

use gristmill_kernels::Backend;
use gristmill_kernels::act::Precision;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::weight::Footprint;

use crate::error::{Error, Result};
use crate::machine;
use crate::model::spec::ModelSpec;
use crate::model::{ModelInfo, Scratch};
use crate::notice::Notice;
use crate::state::State;

/// The context length unless told otherwise, if the model was trained on as much and memory allows.
pub const DEFAULT_CONTEXT: usize = 8192;

/// The longest context that is supported: positions have 32 bits, and angles of RoPE must stay finite.
pub const MAX_CONTEXT: usize = 1 << 31;

/// Bytes of a device's memory that are left to its driver. Kernels and captured graphs of a model take some tens of MB;
/// the workspace of attention grows to 64 MB, and captured graphs keep its smaller predecessors.
const RESERVE: u64 = 256 << 20;

/// How much a [`Runner`](crate::Runner) can do at once; its memory is allocated for all of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of one sequence, at most [`MAX_CONTEXT`]; `None` for the least of what the model was trained on,
    /// [`DEFAULT_CONTEXT`], and what fits into memory or into `kv_tokens`. More than the model was trained on is a [`Notice`].
    pub context: Option<usize>,
    /// Sequences at a time.
    pub sequences: usize,
    /// Tokens that the KV cache has blocks for, of all sequences together and of the prefix cache; at least the context.
    /// `None`: as many as the sequences can have. With fewer, [`Engine`](crate::Engine) preempts requests when blocks run
    /// out, and [`Runner::forward`](crate::Runner::forward) fails. Of layers with a window, a sequence has no more
    /// blocks than for the window and one batch, so their caches may be smaller.
    pub kv_tokens: Option<usize>,
    /// Tokens of one batch.
    pub batch_tokens: usize,
    /// Rows of logits of one batch; `None` for one for each sequence.
    pub output_rows: Option<usize>,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
}

impl Default for Limits {
    fn default() -> Self {
        let (context, kv_tokens, output_rows) = (None, None, None);
        Self { context, sequences: 1, kv_tokens, batch_tokens: 512, output_rows, kv_format: KvFormat::F16 }
    }
}

impl Limits {
    pub(crate) fn rows(&self) -> usize {
        self.output_rows.unwrap_or(self.sequences)
    }

    fn check(&self) -> Result<()> {
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
    fn kv_tokens(&self, context: usize) -> Result<usize> {
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

/// Where the memory of a model goes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The context length that this is for.
    pub context: usize,
    /// Tokens that the model was trained on.
    pub trained: usize,
    /// Prepared weights.
    pub weights: u64,
    /// Weights that are read from the mapped file; the system may drop these pages and read them again.
    pub mapped: u64,
    /// State (the KV cache) of all sequences.
    pub state: u64,
    /// Tokens that the KV cache has blocks for: [`Limits::kv_tokens`].
    pub kv_tokens: usize,
    /// Intermediate results.
    pub scratch: u64,
    /// Of a device: left to its driver, for compiled kernels, captured graphs and workspaces.
    pub reserve: u64,
    /// What is free on the device; `None` if the system does not tell.
    pub available: Option<u64>,
}

impl Plan {
    /// Plans for a model that is not loaded yet, on a backend. Memory is not checked, see [`Self::check`].
    ///
    /// # Errors
    /// [`Error::Limit`] if a limit is 0, or the context longer than [`MAX_CONTEXT`] or than the KV cache.
    pub fn new(info: &ModelInfo, limits: &Limits, precision: Precision, backend: &Backend) -> Result<Self> {
        Self::with_weights(&info.spec, info.weights.footprint(backend), limits, precision, backend)
    }

    /// Plans for a runner of a model that is loaded: its weights are not counted.
    pub(crate) fn loaded(spec: &ModelSpec, limits: &Limits, precision: Precision, backend: &Backend) -> Result<Self> {
        Self::with_weights(spec, Footprint::default(), limits, precision, backend)
    }

    fn with_weights(
        spec: &ModelSpec,
        weights: Footprint,
        limits: &Limits,
        precision: Precision,
        backend: &Backend,
    ) -> Result<Self> {
        limits.check()?;
        let device = backend.free_memory()?;
        let mut plan = Self {
            context: 0,
            trained: spec.context_length,
            weights: weights.owned,
            mapped: weights.mapped,
            state: 0,
            kv_tokens: 0,
            scratch: Scratch::bytes(spec, precision, limits.batch_tokens, limits.rows()),
            reserve: device.map_or(0, |_| RESERVE),
            available: device.or_else(machine::available_memory),
        };
        plan.context = match limits.context {
            Some(context) if context > MAX_CONTEXT => {
                let rule = format!("gristmill supports at most {MAX_CONTEXT}");
                return Err(Error::Limit { what: "the context length", found: context, rule });
            }
            Some(context) => context,
            None => plan.default_context(spec, limits, backend),
        };
        plan.kv_tokens = limits.kv_tokens(plan.context)?;
        plan.state = State::bytes(backend, spec, limits, plan.context);
        plan.scratch = plan.scratch.saturating_add(State::table_bytes(spec, limits, plan.context));
        Ok(plan)
    }

    /// The longest context up to [`DEFAULT_CONTEXT`] whose state leaves a tenth of the memory free; at least 1. If
    /// [`Limits::kv_tokens`] says how large the state is, the longest that it holds.
    fn default_context(&self, spec: &ModelSpec, limits: &Limits, backend: &Backend) -> usize {
        let most = spec.context_length.min(DEFAULT_CONTEXT);
        let (None, Some(available)) = (limits.kv_tokens, self.available) else {
            return most.min(limits.kv_tokens.unwrap_or(usize::MAX));
        };
        let free = (available - available / 10).saturating_sub(self.total());
        let fits = |context: &usize| State::bytes(backend, spec, limits, *context) <= free;
        std::iter::successors(Some(most), |context| Some(context / 2)).take_while(|&n| n > 1).find(fits).unwrap_or(1)
    }

    /// A context longer than what the model was trained on.
    pub fn notice(&self) -> Option<Notice> {
        let Self { context, trained, .. } = *self;
        (context > trained).then_some(Notice::LongContext { context, trained })
    }

    /// The sum of all parts.
    pub fn total(&self) -> u64 {
        [self.weights, self.mapped, self.state, self.scratch, self.reserve].into_iter().fold(0, u64::saturating_add)
    }

    /// Checks that the total is available.
    ///
    /// # Errors
    /// [`Error::Memory`] with the numbers and what can be done.
    pub fn check(&self) -> Result<()> {
        let (needed, Some(free)) = (self.total(), self.available) else { return Ok(()) };
        if needed <= free {
            return Ok(());
        }
        let least = [self.weights, self.mapped, self.reserve].into_iter().fold(0, u64::saturating_add);
        let (what, remedy) = match least > free {
            true => ("the model", "use a smaller model or a smaller quantisation, or free memory"),
            false => (
                "the model with this context",
                "use a shorter context, a KV cache of fewer tokens or of 8 bits, a smaller batch or fewer sequences",
            ),
        };
        Err(Error::Memory { what, needed, free, remedy })
    }
}
