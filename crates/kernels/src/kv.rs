//! The paged KV cache of one layer.

use crate::tensor::{Buffer, DeviceId};
use half::f16;

/// Tokens in a block of a [`KvCache`]; block tables count in these.
pub const KV_BLOCK: usize = 16;

/// Shape of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// KV heads.
    pub heads: usize,
    /// Elements of a key.
    pub key_width: usize,
    /// Elements of a value.
    pub value_width: usize,
}

impl KvSpec {
    /// Bytes that one block of [`KV_BLOCK`] tokens takes, at f16.
    pub fn block_bytes(&self) -> usize {
        self.heads * (self.key_width + self.value_width) * KV_BLOCK * size_of::<f16>()
    }
}

/// Keys and values of one layer, in blocks of [`KV_BLOCK`] tokens. Which block belongs to whom, the caller's block
/// tables say.
#[derive(Debug)]
pub struct KvCache {
    pub(crate) device: DeviceId,
    pub(crate) spec: KvSpec,
    pub(crate) blocks: usize,
    /// Per block and head, keys transposed: `key_width` × KV_BLOCK, so that 16 tokens are 16 lanes.
    pub(crate) keys: Buffer<f16>,
    /// Per block and head: KV_BLOCK × `value_width`.
    pub(crate) values: Buffer<f16>,
}

impl KvCache {
    /// Its shape.
    pub fn spec(&self) -> KvSpec {
        self.spec
    }
    /// Blocks it holds.
    pub fn blocks(&self) -> usize {
        self.blocks
    }
    /// Where it lives.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

/// Where each token of a flat batch stands: its sequence's row in the block table, and its position.
///
/// A token at position `p` of slot `s` has its key in block `table[s, p / KV_BLOCK]` at `p % KV_BLOCK`. A slot of
/// `u32::MAX` is padding: it reads no cache, writes no cache, and its outputs are zero.
#[derive(Debug)]
pub struct Placement {
    /// Row of the block table, one for each token.
    pub slots: Buffer<u32>,
    /// Position in the sequence, one for each token.
    pub positions: Buffer<u32>,
    /// Block ids, `table_rows` × `table_cols`. Entries that no position reaches are never read.
    pub table: Buffer<u32>,
    /// Sequences.
    pub table_rows: usize,
    /// Blocks that a sequence can have.
    pub table_cols: usize,
}
