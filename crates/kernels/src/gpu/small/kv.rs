//! The paged cache: its memory, and what is written to it.
//!
//! Keys and values lie alike on a device: block, head, token, element, so that a token's key is one stretch of memory. It
//! is padded with zeros to a multiple of 16 bytes. Scales of 8-bit caches lie likewise, one for each group of elements.

use crate::check::{elements, require};
use crate::error::Result;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch, Text, memory};
use crate::kv::{Cells, KV_BLOCK, KvCache, KvFormat, KvSpec, Placement, groups};
use crate::tensor::{Buffer, View};
use bytemuck::{Pod, Zeroable};
use half::f16;

/// Elements of the widest key or value that the kernels have shared memory for.
const MAX_WIDTH: usize = 1024;

/// Elements from one token's key or value to the next one's, for 16-byte loads.
pub(crate) fn row_stride(width: usize, format: KvFormat) -> usize {
    match format {
        KvFormat::F16 => width.next_multiple_of(8),
        KvFormat::Q8_0 => width.next_multiple_of(16),
    }
}

/// What the kernels' text wants defined for a format of the cache.
pub(crate) fn cells_define(format: KvFormat) -> (&'static str, &'static str) {
    match format {
        KvFormat::F16 => ("CELLS_F16", "1"),
        KvFormat::Q8_0 => ("CELLS_Q8_0", "1"),
    }
}

/// Every compilation of a text that knows the formats of the cache.
pub(crate) fn texts_of(file: &'static str) -> impl Iterator<Item = Text> {
    [KvFormat::F16, KvFormat::Q8_0].into_iter().map(move |format| {
        let (name, value) = cells_define(format);
        Text { file, defines: vec![(name, value.to_owned())] }
    })
}

/// The cells and their scales as arguments; there are no scales of 16-bit cells.
pub(crate) fn cells_args(cells: &Cells, access: Access) -> [Arg<'_>; 2] {
    match cells {
        Cells::F16(cells) => [Arg::buffer(cells, access), Arg::Null],
        Cells::Q8_0 { codes, scales } => [Arg::buffer(codes, access), Arg::buffer(scales, access)],
    }
}

/// A size as a kernel's parameter. Ids are 32 bits wide, so what is beyond them limits none.
pub(crate) fn limit(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// [`crate::ops::Backend::alloc_kv`], checked.
pub(crate) fn alloc_kv(device: &Device, spec: KvSpec, blocks: usize) -> Result<KvCache> {
    let (op, what) = ("alloc_kv", "the KV cache");
    let rule = "must be at most 1,024 on a GPU";
    require(spec.key_width <= MAX_WIDTH, op, "width of a key", spec.key_width, rule)?;
    require(spec.value_width <= MAX_WIDTH, op, "width of a value", spec.value_width, rule)?;
    let count = |width: usize| elements(what, &[blocks, spec.heads, KV_BLOCK, width]);
    let cells = |width: usize| -> Result<Cells> {
        let stored = count(row_stride(width, spec.format))?;
        Ok(match spec.format {
            KvFormat::F16 => Cells::F16(memory::alloc(device, stored, what)?),
            KvFormat::Q8_0 => Cells::Q8_0 {
                codes: memory::alloc(device, stored, what)?,
                scales: memory::alloc(device, count(groups(width))?, what)?,
            },
        })
    };
    let (keys, values) = (cells(spec.key_width)?, cells(spec.value_width)?);
    Ok(KvCache { device: device.id(), spec, blocks, keys, values, written: device.pauses() })
}

/// Bytes of a cache of so many blocks.
pub(crate) fn bytes(spec: KvSpec, blocks: usize) -> u64 {
    let token = |width: usize| match spec.format {
        KvFormat::F16 => row_stride(width, spec.format) * size_of::<f16>(),
        KvFormat::Q8_0 => row_stride(width, spec.format) + groups(width) * size_of::<f16>(),
    };
    let block = (spec.heads * KV_BLOCK) as u64 * (token(spec.key_width) + token(spec.value_width)) as u64;
    block.saturating_mul(blocks as u64)
}

twin! {
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    pub(crate) struct WriteParams in "kv.h" {
        key_input_stride: u64,
        value_input_stride: u64,
        heads: u32,
        key_width: u32,
        value_width: u32,
        key_stride: u32,
        value_stride: u32,
        table_rows: u32,
        table_cols: u32,
        blocks: u32,
    }
}

impl WriteParams {
    /// For keys and values that lie so many elements apart from token to token.
    pub(crate) fn new(cache: &KvCache, place: &Placement, key_input_stride: usize, value_input_stride: usize) -> Self {
        let spec = cache.spec;
        Self {
            key_input_stride: key_input_stride as u64,
            value_input_stride: value_input_stride as u64,
            heads: limit(spec.heads),
            key_width: limit(spec.key_width),
            value_width: limit(spec.value_width),
            key_stride: limit(row_stride(spec.key_width, spec.format)),
            value_stride: limit(row_stride(spec.value_width, spec.format)),
            table_rows: limit(place.table_rows),
            table_cols: limit(place.table_cols),
            blocks: limit(cache.blocks),
        }
    }
}

/// [`crate::ops::Backend::kv_write`], checked.
pub(crate) fn kv_write(
    device: &Device,
    cache: &mut KvCache,
    k: View<f32>,
    v: View<f32>,
    place: &Placement,
) -> Result<()> {
    if k.rows() == 0 {
        return Ok(());
    }
    let params = WriteParams::new(cache, place, k.shape().stride(), v.shape().stride());
    cache.written = device.pauses();
    let [keys, key_scales] = cells_args(&cache.keys, Access::Write);
    let [values, value_scales] = cells_args(&cache.values, Access::Write);
    device.launch(&Launch {
        kernel: Kernel { file: "kv.gpu", entry: "kv_write", defines: &[cells_define(cache.spec.format)] },
        grid: [limit(k.rows()), 1, 1],
        block: 256,
        shared: 0,
        overlap: true,
        args: &[
            Arg::read(&k),
            Arg::read(&v),
            Arg::buffer(&place.slots, Access::Read),
            Arg::buffer(&place.positions, Access::Read),
            Arg::buffer(&place.table, Access::Read),
            keys,
            key_scales,
            values,
            value_scales,
            device.flag(),
            Arg::params(&params),
        ],
    })
}

/// [`crate::ops::Backend::kv_copy`], checked: copies on the device, one after another.
pub(crate) fn kv_copy(device: &Device, cache: &mut KvCache, blocks: &[(u32, u32)]) -> Result<()> {
    fn copy<T: Copy>(device: &Device, cells: &Buffer<T>, all: usize, blocks: &[(u32, u32)]) -> Result<()> {
        let bytes = cells.len() / all.max(1) * size_of::<T>();
        let Some(region) = cells.region() else { return Ok(()) };
        for &(from, to) in blocks.iter().filter(|(from, to)| from != to) {
            let address = |block: u32| region.address() + u64::from(block) * bytes as u64;
            device.gpu().copy(address(from), address(to), bytes)?;
        }
        Ok(())
    }
    for cells in [&cache.keys, &cache.values] {
        match cells {
            Cells::F16(cells) => copy::<f16>(device, cells, cache.blocks, blocks)?,
            Cells::Q8_0 { codes, scales } => {
                copy(device, codes, cache.blocks, blocks)?;
                copy(device, scales, cache.blocks, blocks)?;
            }
        }
    }
    Ok(())
}
