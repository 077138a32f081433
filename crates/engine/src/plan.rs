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
    /// [`DEFAULT_CONTEXT`], and what fits into memory. More than the model was trained on is a [`Notice`].
    pub context: Option<usize>,
    /// Sequences at a time.
    pub sequences: usize,
    /// Tokens of one batch.
    pub batch_tokens: usize,
    /// Rows of logits of one batch; `None` for one for each sequence.
    pub output_rows: Option<usize>,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
}

impl Default for Limits {
    fn default() -> Self {
        Self { context: None, sequences: 1, batch_tokens: 512, output_rows: None, kv_format: KvFormat::F16 }
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
            ("the number of tokens in a batch", self.batch_tokens),
            ("the number of output rows", self.rows()),
        ];
        match at_least_one.into_iter().find(|(_, n)| *n == 0) {
            None => Ok(()),
            Some((what, found)) => Err(Error::Limit { what, found, rule: "it must be at least 1".to_owned() }),
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
    /// [`Error::Limit`] if a limit is 0, or the context longer than [`MAX_CONTEXT`].
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
        plan.state = State::bytes(backend, spec, limits, plan.context);
        plan.scratch = plan.scratch.saturating_add(State::table_bytes(spec, limits, plan.context));
        Ok(plan)
    }

    /// The longest context up to [`DEFAULT_CONTEXT`] whose state leaves a tenth of the memory free; at least 1.
    fn default_context(&self, spec: &ModelSpec, limits: &Limits, backend: &Backend) -> usize {
        let most = spec.context_length.min(DEFAULT_CONTEXT);
        let Some(available) = self.available else { return most };
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
                "use a shorter context, an 8-bit cache, a smaller batch or fewer sequences",
            ),
        };
        Err(Error::Memory { what, needed, free, remedy })
    }
}
