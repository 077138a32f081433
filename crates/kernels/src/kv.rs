//! The paged KV cache of one layer.

use crate::error::{Error, Result};
use crate::format::BlockFormat;
use crate::format::q8_0::Q8_0;
use crate::simd::Portable;
use crate::storage::Storage;
use crate::tensor::{Buffer, DeviceId};
use half::f16;
use std::any::Any;
use std::collections::HashSet;

/// Tokens in a block of a [`KvCache`]; block tables count in these.
pub const KV_BLOCK: usize = 16;

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvFormat {
    /// 16 bits each.
    #[default]
    F16,
    /// Blocks of the format `Q8_0`: 32 neighbours of a key or value have 8 bits each and share a scale, 8.5 bits in
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
    /// A value is the first `value_width` elements of its key, and is not stored a second time (latent attention).
    pub values_in_keys: bool,
}

impl KvSpec {
    /// Elements that are stored of each value: none if they are in the keys.
    pub fn stored_value_width(&self) -> usize {
        if self.values_in_keys { 0 } else { self.value_width }
    }

    /// Elements of the stored row in which a value is: the value's, or those of its key.
    pub fn value_row_width(&self) -> usize {
        if self.values_in_keys { self.key_width } else { self.value_width }
    }

    /// Bytes that one block of [`KV_BLOCK`] tokens takes.
    pub fn block_bytes(&self) -> usize {
        let token = |width: usize| match self.format {
            KvFormat::F16 => width * size_of::<f16>(),
            KvFormat::Q8_0 => width + scale_groups(width) * size_of::<f16>(),
        };
        self.heads * (token(self.key_width) + token(self.stored_value_width())) * KV_BLOCK
    }
}

/// Elements of a key or value that share a scale.
pub const KV_GROUP: usize = Q8_0::BLOCK;

/// Scales of a key or value of this width.
pub fn scale_groups(width: usize) -> usize {
    width.div_ceil(KV_GROUP)
}

/// Up to [`KV_GROUP`] elements as a block of `Q8_0`: the scale, and a code for each element.
pub fn quantise(values: &[f32]) -> (f16, [i8; KV_GROUP]) {
    let mut padded = [0.0; KV_GROUP];
    padded[..values.len()].copy_from_slice(values);
    let mut block = [0; Q8_0::BYTES];
    Q8_0::encode(Portable, &padded, &mut block);
    let [low, high, codes @ ..] = block;
    (f16::from_le_bytes([low, high]), codes.map(|code| code as i8))
}

/// Keys and values of one layer, in blocks of [`KV_BLOCK`] tokens. The caller's block tables say which sequence has
/// which block.
#[derive(Debug)]
pub struct KvCache {
    device: DeviceId,
    spec: KvSpec,
    blocks: usize,
    storage: Storage,
}

impl KvCache {
    /// For a backend: a zeroed cache of this number of blocks.
    pub fn new(device: DeviceId, spec: KvSpec, blocks: usize, storage: Storage) -> Self {
        Self { device, spec, blocks, storage }
    }
    /// Its shape.
    pub fn spec(&self) -> KvSpec {
        self.spec
    }
    /// Blocks it holds.
    pub fn blocks(&self) -> usize {
        self.blocks
    }
    /// The device that owns it.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The backend's storage.
    ///
    /// # Errors
    /// [`Error::ForeignLayout`] if another backend made it.
    pub fn storage<T: Any>(&self, op: &'static str) -> Result<&T> {
        self.storage.get().ok_or(Error::ForeignLayout { op, what: "a KV cache" })
    }

    /// The backend's storage, for writing.
    ///
    /// # Errors
    /// As [`KvCache::storage`].
    pub fn storage_mut<T: Any>(&mut self, op: &'static str) -> Result<&mut T> {
        self.storage.get_mut().ok_or(Error::ForeignLayout { op, what: "a KV cache" })
    }
}

/// The place of each token of a flat batch: its sequence's row in the block table, and its position.
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
    /// Columns of the table that the tokens' positions are in, at most; attention over a short context may take less
    /// time. A value beyond `table_cols` sets no bound.
    pub context_columns: usize,
    /// What the caller guarantees of the batch's runs.
    pub runs: BatchRuns,
}

/// Tokens of a run that is long: from this number on, a backend may share what it reads of the cache among them.
pub const LONG_RUN: usize = 16;

/// What a caller guarantees of a batch's runs: neighbours in the batch that are neighbours in one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchRuns {
    /// One token of each sequence (padding excepted), as in a decode step: nothing orders the tokens.
    Single,
    /// [`LONG_RUN`] tokens or more in each, and no padding, as in prefill.
    Long,
    /// Nothing.
    Any,
}

impl BatchRuns {
    /// What holds of a batch's slots and positions, padding among them.
    pub fn of(slots: &[u32], positions: &[u32]) -> Self {
        let tokens: Vec<_> = slots.iter().copied().zip(positions.iter().copied()).collect();
        let follows = |a: &(u32, u32), b: &(u32, u32)| a.0 == b.0 && a.1.checked_add(1) == Some(b.1);
        let mut met = HashSet::new();
        if tokens.iter().all(|&(slot, _)| slot == u32::MAX || met.insert(slot)) {
            Self::Single
        } else if !slots.contains(&u32::MAX) && tokens.chunk_by(follows).all(|run| run.len() >= LONG_RUN) {
            Self::Long
        } else {
            Self::Any
        }
    }
}
