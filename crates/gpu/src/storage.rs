//! Storage of activations and caches on a GPU.

use crate::device_api::{Access, Arg, Gpu, Region};
use gristmill_kernels::act::{ACT_BLOCK, Act, Precision, Representations};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::KvFormat;
use gristmill_kernels::ops::elements;
use gristmill_kernels::storage::Storage;
use gristmill_kernels::tensor::Buffer;
use std::sync::Arc;

shared_struct! {
    /// 32 activations as int8: x ≈ scale · q. One cache line.
    pub struct Int8Block {
        /// The numbers, −127..=127, four to a word in ascending order from the lowest byte.
        q: [u32; 8],
        scale: f32,
        /// Sum of all 32 numbers times the scale.
        sum: f32,
        /// Sum of each half's numbers.
        half_sums: [i32; 2],
        /// Sum of each half's numbers times the scale.
        scaled_half_sums: [f32; 2],
        /// Makes the block a cache line.
        padding: [u32; 2],
    }
}

/// Representations of [`GpuAct`]: `ActPart` in the kernels.
pub const EXACT: Representations = Representations(1);
/// See [`RoundedAct::int8`].
pub const INT8: Representations = Representations(2);
/// See [`RoundedAct::bf16`].
pub const BF16: Representations = Representations(4);

/// Activations that a kernel fills, and what their readers want, if these are named.
#[derive(Clone, Copy, Debug)]
pub struct ActOutput<'a> {
    /// The storage.
    pub storage: &'a GpuAct,
    /// See [`Act::wanted`].
    pub wanted: Option<Representations>,
}

impl<'a> ActOutput<'a> {
    /// Checked activations of an operation.
    pub fn new(op: &'static str, act: &'a Act) -> Result<Self> {
        Ok(Self { storage: act.storage(op)?, wanted: act.wanted() })
    }

    /// Whether the readers want bfloat16 alone.
    pub fn only_bf16(&self) -> bool {
        self.wanted == Some(BF16)
    }

    /// The wanted representations among those that there are, as the bits of [`Representations`].
    pub fn parts(&self) -> u32 {
        let rounded = if self.storage.rounded.is_some() { INT8.0 | BF16.0 } else { 0 };
        (EXACT.0 | rounded) & self.wanted.unwrap_or(Representations::ALL).0
    }
}

/// Activations on a GPU.
#[derive(Debug)]
pub struct GpuAct {
    /// rows × cols, contiguous.
    pub exact: Buffer<f32>,
    /// The rounded representations, at [`Precision::Fast`] on a GPU that reads them.
    pub rounded: Option<RoundedAct>,
}

/// Activations as CUDA's products read them.
#[derive(Debug)]
pub struct RoundedAct {
    /// rows × ⌈cols / 32⌉ blocks of [`Int8Block`].
    pub int8: Region,
    /// Each block is 16 words of two bfloat16, zeros past a row's end. In 16 columns, the even ones precede the odd
    /// ones: four lanes with four neighbours each then have them where tensor cores need them.
    pub bf16: Region,
}

impl GpuAct {
    /// Storage for `rows` × `cols` activations.
    pub fn alloc(gpu: &Arc<dyn Gpu>, precision: Precision, rounds: bool, rows: usize, cols: usize) -> Result<Act> {
        let what = "activations";
        let zeroed = |dims: &[usize]| Region::zeroed(gpu, elements(what, dims)?, what);
        let blocks = cols.div_ceil(ACT_BLOCK);
        let rounded = match precision {
            Precision::Fast if rounds => Some(RoundedAct {
                int8: zeroed(&[rows, blocks, size_of::<Int8Block>()])?,
                bf16: zeroed(&[rows, blocks, ACT_BLOCK * size_of::<u16>()])?,
            }),
            _ => None,
        };
        let exact = Buffer::on_device(Box::new(zeroed(&[rows, cols, size_of::<f32>()])?));
        Ok(Act::new(gpu.properties().id, precision, rows, cols, Storage::new(Self { exact, rounded })))
    }

    /// The exact copy.
    pub fn exact(&self, access: Access) -> Arg<'_> {
        Arg::buffer(&self.exact, access)
    }

    /// The int8 blocks, if they are there.
    pub fn int8(&self, access: Access) -> Arg<'_> {
        self.rounded.as_ref().map_or(Arg::Null, |rounded| Arg::region(&rounded.int8, access))
    }

    /// The bfloat16 words, if they are there.
    pub fn bf16(&self, access: Access) -> Arg<'_> {
        self.rounded.as_ref().map_or(Arg::Null, |rounded| Arg::region(&rounded.bf16, access))
    }

    /// All representations, to be written: exact, int8, bfloat16.
    pub fn outputs(&self) -> [Arg<'_>; 3] {
        [self.exact(Access::Write), self.int8(Access::Write), self.bf16(Access::Write)]
    }
}

/// The keys or the values of a cache. Both lie alike on a device: block, head, token, element, so that a token's key is
/// one segment of memory, padded with zeros to a multiple of 16 bytes.
#[derive(Debug)]
pub struct KvData {
    /// Elements, of 16 or 8 bits.
    pub cells: Region,
    /// Scales of 8-bit caches, one for each group of elements, in the same order.
    pub scales: Option<Region>,
}

impl KvData {
    fn args(&self, access: Access) -> [Arg<'_>; 2] {
        let scales = self.scales.as_ref().map_or(Arg::Null, |scales| Arg::region(scales, access));
        [Arg::region(&self.cells, access), scales]
    }
}

/// A KV cache on a GPU.
#[derive(Debug)]
pub struct GpuKv {
    /// blocks × heads × 16 tokens × key width.
    pub keys: KvData,
    /// blocks × heads × 16 tokens × value width.
    pub values: Option<KvData>,
    /// The device's epoch when an operation last wrote to the cache; see `Device::epoch`.
    pub written: u64,
}

impl GpuKv {
    /// Keys, their scales, values, their scales; the keys twice if values are in them.
    pub fn args(&self, access: Access) -> [Arg<'_>; 4] {
        let values = self.values.as_ref().unwrap_or(&self.keys);
        let [[keys, key_scales], [values, value_scales]] = [&self.keys, values].map(|data| data.args(access));
        [keys, key_scales, values, value_scales]
    }
}

/// Bytes of an element of a cache.
pub(crate) fn cell_bytes(format: KvFormat) -> usize {
    match format {
        KvFormat::Q8_0 => 1,
        _ => size_of::<u16>(),
    }
}
