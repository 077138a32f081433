//! How experts are computed outside the device.

use gristmill_kernels::Backend;
use std::sync::Arc;
use std::time::Duration;

/// The host reads the choices of a batch of this size, so it is not captured. Its copies and the CPU's rows run at the same time. In
/// smaller batches, the CPU computes what is not in slots: there, the launches of a step that is not captured take longer than copies
/// save (Qwen3-30B-A3B, a CPU of 16 cores and a link of 50 GB/s, calculated).
const STREAM_TOKENS: usize = 25;

/// The rows of this number of tokens are one request in models with 8 experts of 2,048 elements for each.
const SHARE_TOKENS: usize = 512;

/// Bytes of the experts of a group.
const GROUP_BYTES: usize = 24 << 20;

/// Groups of 24 MiB that are copied ahead. A link of 50 GB/s takes 2 ms for them, longer than a layer computes between its absent
/// experts and those of the next layer (Qwen3-30B-A3B, 2,048 tokens, calculated).
const GROUPS_AHEAD: usize = 4;

/// Groups of 24 MiB that are multiplied together. A product of one group starts blocks for the tiles of all pairs, most of them
/// empty: 8,192 tokens of Qwen3-30B-A3B took 3 times as long as with all experts on the device (H100).
const RING_GROUPS: usize = 4;

/// Memory of a device through which experts are copied, in bytes, with [`HostExperts::new`]: for slots, and for long batches
/// (`stream.rs`).
pub const STAGING_BYTES: usize = STAGED_BYTES + STREAMED_BYTES;
/// Areas for groups that are copied ahead, and rings of two formats, as a Q4_K_M mix has.
const STREAMED_BYTES: usize = (GROUPS_AHEAD + 2 * RING_GROUPS) * GROUP_BYTES;
/// Staging memory for slots; two experts if these need more. The experts that arrive during two steps must fit, because a step is
/// submitted before the last one ends.
const STAGED_BYTES: usize = 192 << 20;
/// How a device's backend has experts computed by the CPU.
#[derive(Clone, Debug)]
pub struct HostExperts {
    /// The CPU's backend. No one else should use its threads meanwhile.
    pub backend: Arc<Backend>,
    /// How long the device waits for the rows of a layer.
    pub deadline: Duration,
    /// Bytes of pinned memory for rows. A batch whose rows need more is split.
    pub rows_bytes: usize,
    /// Bytes of the device's memory through which experts are copied to slots; two experts if these need more.
    pub staged_bytes: usize,
    /// Tokens of the smallest batch whose experts without a slot are copied to the device and multiplied there, in a layer that has
    /// slots. Such a batch is not captured.
    pub stream_tokens: usize,
    /// Tokens of the largest batch of these of which the CPU computes the experts of few tokens meanwhile. In larger ones all experts
    /// have many.
    pub share_tokens: usize,
    /// Bytes of the experts that are copied for such a batch together; one expert if that is larger.
    pub group_bytes: usize,
    /// Groups that are copied ahead of the kernels that read them, each to memory of its own; at least 1.
    pub groups_ahead: usize,
    /// Groups that are multiplied together; at least 1.
    pub ring_groups: usize,
}

impl HostExperts {
    /// With a deadline of 5 s, groups of 24 MiB, 192 MiB to copy experts to slots, and memory for the rows of 512 tokens of
    /// 8 experts with 2,048 elements each.
    pub fn new(backend: Arc<Backend>) -> Self {
        let deadline = Duration::from_secs(5);
        let rows_bytes = 32 << 20;
        let group_bytes = GROUP_BYTES;
        let (stream_tokens, share_tokens) = (STREAM_TOKENS, SHARE_TOKENS);
        let (groups_ahead, ring_groups, staged_bytes) = (GROUPS_AHEAD, RING_GROUPS, STAGED_BYTES);
        Self {
            backend,
            deadline,
            rows_bytes,
            staged_bytes,
            stream_tokens,
            share_tokens,
            group_bytes,
            groups_ahead,
            ring_groups,
        }
    }
}
