//! How much a server does at once, and the memory of it.

use clap::Args;
use gristmill_engine::{KvFormat, Limits};

use crate::numbers;

/// The requests and tokens of an engine.
#[derive(Args, Clone, Copy)]
pub(crate) struct CapacityArgs {
    /// The number of replies that are generated at the same time.
    #[arg(
        long, value_name = "N", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1),
        help_heading = "Limits"
    )]
    pub(crate) parallel: usize,
    /// Tokens in the KV cache, for all replies together; at least --ctx. If the cache is full, the newest reply is
    /// preempted and computed again later [default: --parallel times --ctx].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1), help_heading = "Limits")]
    pub(crate) kv_tokens: Option<usize>,
    /// The maximum number of waiting requests of each key; more are refused with status 429.
    #[arg(
        long, value_name = "N", default_value_t = 256, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(0),
        help_heading = "Limits"
    )]
    pub(crate) queue: usize,
    /// The maximum number of tokens in a step; prompts are split into steps [default: 512; on CUDA 8192, or less if its
    /// memory is short]. While requests decode, a step has fewer, so that it takes at most 0.1 s.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1), help_heading = "Limits")]
    pub(crate) batch: Option<usize>,
    /// Count the tokens of each expert, for /metrics. A CPU always counts. A GPU then copies the choices of the routers
    /// to the host after each step.
    #[arg(long, help_heading = "Operation")]
    pub(crate) count_experts: bool,
}

impl CapacityArgs {
    /// The limits of an engine. A batch of 0 tokens is one that suits the model.
    pub(crate) fn limits(&self, context: Option<usize>, kv_format: KvFormat) -> Limits {
        Limits {
            context,
            sequences: self.parallel,
            kv_tokens: self.kv_tokens,
            batch_tokens: self.batch.map_or(0, |tokens| tokens.max(self.parallel)),
            output_rows: None,
            kv_format,
            ..Limits::default()
        }
    }
}
