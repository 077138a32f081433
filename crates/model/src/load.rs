//! How to load a model.

use std::fmt;
use std::ops::ControlFlow;

use gristmill_kernels::act::Precision;

/// Progress of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of weights loaded.
    pub done: u64,
    /// Bytes of weights in all.
    pub total: u64,
}

/// How to load a model.
pub struct LoadOptions {
    /// `auto`, `cpu`, `cuda`, `cuda:N`, `metal` or `metal:N`; see [`crate::open_device`].
    pub device: String,
    /// Threads of the CPU, the caller's included; `None` for one on each physical core that this process may use.
    pub threads: Option<usize>,
    /// A CPU level such as `avx2`; `None` for the best that this CPU has.
    pub level: Option<String>,
    /// How precisely activations are kept.
    pub precision: Precision,
    /// The same logits, to the bit, for the same tokens, independent of other sequences in a step, of the split of a
    /// prompt into steps, and of cached prefixes. A CPU is always deterministic, so this changes nothing there; a GPU
    /// is slower with it (`docs/determinism.md`).
    pub deterministic: bool,
    /// Load the file's prediction heads, with which [`Runner::draft`](crate::Runner::draft) drafts tokens. They take the
    /// memory of a layer.
    pub prediction_heads: bool,
    /// Refuse a model whose weights do not fit into the memory that is free.
    pub check_memory: bool,
    /// Called before the first and after each tensor, on the loading thread. [`ControlFlow::Break`] cancels loading with
    /// [`Error::Cancelled`](crate::Error::Cancelled), and frees what was loaded.
    pub progress: Option<Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: "auto".to_owned(),
            threads: None,
            level: None,
            precision: Precision::Fast,
            deterministic: false,
            prediction_heads: false,
            check_memory: true,
            progress: None,
        }
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, threads, level, precision, deterministic, prediction_heads, check_memory, progress } = self;
        f.debug_struct("LoadOptions")
            .field("device", device)
            .field("threads", threads)
            .field("level", level)
            .field("precision", precision)
            .field("deterministic", deterministic)
            .field("prediction_heads", prediction_heads)
            .field("check_memory", check_memory)
            .field("progress", &progress.is_some())
            .finish()
    }
}
