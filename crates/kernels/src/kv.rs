//! The paged KV cache of one layer.

use crate::format::BlockFormat;
use crate::format::q8_0::Q8_0;
use crate::simd::Portable;
use crate::tensor::{Buffer, DeviceId};
use half::f16;

/// Tokens in a block of a [`KvCache`]; block tables count in these.
pub const KV_BLOCK: usize = 16;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvFormat {
    /// 16 bits each.
    #[default]
    F16,
    /// As blocks of the format `Q8_0`: 32 neighbours of a key or value have 8 bits each and share a scale, 8.5 bits in
    /// all. The last block of a width that is not a multiple of 32 is shorter.
    Q8_0,
}

/// Shape of one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// KV heads.
    pub heads: usize,
    /// Elements of a key.
    pub key_width: usize,
    /// Elements of a value.
    pub value_width: usize,
    /// How both are kept.
    pub format: KvFormat,
}

impl KvSpec {
    /// Bytes that one block of [`KV_BLOCK`] tokens takes.
    pub fn block_bytes(&self) -> usize {
        let token = |width: usize| match self.format {
            KvFormat::F16 => width * size_of::<f16>(),
            KvFormat::Q8_0 => width + groups(width) * size_of::<f16>(),
        };
        self.heads * (token(self.key_width) + token(self.value_width)) * KV_BLOCK
    }
}

/// Elements of a key or value that share a scale.
pub(crate) const KV_GROUP: usize = Q8_0::BLOCK;

/// Scales of a key or value of this width.
pub(crate) fn groups(width: usize) -> usize {
    width.div_ceil(KV_GROUP)
}

/// Up to [`KV_GROUP`] elements as a block of `Q8_0`: the scale, and a code for each element.
pub(crate) fn quantise(values: &[f32]) -> (f16, [i8; KV_GROUP]) {
    let mut padded = [0.0; KV_GROUP];
    padded[..values.len()].copy_from_slice(values);
    let mut block = [0; Q8_0::BYTES];
    Q8_0::encode(Portable, &padded, &mut block);
    let [low, high, codes @ ..] = block;
    (f16::from_le_bytes([low, high]), codes.map(|code| code as i8))
}

/// The keys or the values of a cache. Elements lie in this order: block, head, then for keys the element of the key and
/// the token, so that 16 tokens are 16 lanes; for values the token and the element. Scales lie likewise, with the group
/// of [`KV_GROUP`] elements for the element.
#[derive(Debug)]
pub(crate) enum Cells {
    F16(Buffer<f16>),
    Q8_0 { codes: Buffer<i8>, scales: Buffer<f16> },
}

/// Keys and values of one layer, in blocks of [`KV_BLOCK`] tokens. Which block belongs to whom, the caller's block
/// tables say.
#[derive(Debug)]
pub struct KvCache {
    pub(crate) device: DeviceId,
    pub(crate) spec: KvSpec,
    pub(crate) blocks: usize,
    pub(crate) keys: Cells,
    pub(crate) values: Cells,
    /// On a GPU: how many pauses its device had made when an operation last wrote to it.
    pub(crate) written: u64,
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
    /// Columns of the table that the tokens' positions lie in, at most (beyond `table_cols` it says nothing): where a step
    /// is known to be short, attention may take less time.
    pub reach: usize,
    /// No two of the tokens are of one sequence (padding apart), as in a step that decodes. The caller's word for it: a
    /// backend may then let no token wait for another's key, and a token of a sequence that has several may miss some.
    pub apart: bool,
}
