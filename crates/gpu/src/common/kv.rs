//! The paged cache: its memory, and what is written to it.

use crate::storage::{GpuKv, KvData, cell_bytes};
use crate::{Access, Arg, Device, Kernel, Launch, Region, Unit};
use gristmill_kernels::error::Result;
use gristmill_kernels::kv::{KV_BLOCK, KvCache, KvFormat, KvSpec, Placement, scale_groups};
use gristmill_kernels::ops::{KvCopy, KvWrite, Operation, elements, require};
use gristmill_kernels::storage::Storage;
use half::f16;

/// Elements of the widest key or value that the kernels have shared memory for.
const MAX_WIDTH: usize = 1024;

/// Elements from one token's key or value to the next one's, for 16-byte loads.
pub fn row_stride(width: usize, format: KvFormat) -> usize {
    match format {
        KvFormat::F16 => width.next_multiple_of(8),
        KvFormat::Q8_0 => width.next_multiple_of(16),
    }
}

/// The definition that kernel sources take for a format of the cache.
pub fn cells_define(format: KvFormat) -> (&'static str, &'static str) {
    match format {
        KvFormat::F16 => ("CELLS_F16", "1"),
        KvFormat::Q8_0 => ("CELLS_Q8_0", "1"),
    }
}

/// The units of a file that is compiled for each format of the cache.
pub(super) fn units_of(file: &'static str) -> impl Iterator<Item = Unit> {
    [KvFormat::F16, KvFormat::Q8_0].into_iter().map(move |format| Unit::new(file, &[cells_define(format)]))
}

/// A size as a kernel's parameter. Ids are 32 bits wide, so what is beyond them limits none.
pub fn limit(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// See [`gristmill_kernels::Backend::alloc_kv`].
pub fn alloc_kv(device: &Device, spec: KvSpec, blocks: usize) -> Result<KvCache> {
    let op = "alloc_kv";
    let what = "the KV cache";
    let rule = "must be at most 1,024 on a GPU";
    require(spec.key_width <= MAX_WIDTH, op, "width of a key", spec.key_width, rule)?;
    require(spec.value_width <= MAX_WIDTH, op, "width of a value", spec.value_width, rule)?;
    let zeroed = |width: usize, bytes: usize| -> Result<Region> {
        Region::zeroed(device.gpu(), elements(what, &[blocks, spec.heads, KV_BLOCK, width, bytes])?, what)
    };
    let data = |width: usize| -> Result<KvData> {
        let cells = zeroed(row_stride(width, spec.format), cell_bytes(spec.format))?;
        let scales = match spec.format {
            KvFormat::Q8_0 => Some(zeroed(scale_groups(width), size_of::<f16>())?),
            _ => None,
        };
        Ok(KvData { cells, scales })
    };
    let keys = data(spec.key_width)?;
    let values = (!spec.values_in_keys).then(|| data(spec.value_width)).transpose()?;
    let storage = GpuKv { keys, values, written: device.epoch() };
    Ok(KvCache::new(device.id(), spec, blocks, Storage::new(storage)))
}

/// Bytes of a cache of this number of blocks.
pub fn bytes(spec: KvSpec, blocks: usize) -> u64 {
    let token = |width: usize| match spec.format {
        KvFormat::F16 => row_stride(width, spec.format) * size_of::<f16>(),
        KvFormat::Q8_0 => row_stride(width, spec.format) + scale_groups(width) * size_of::<f16>(),
    };
    let block = (spec.heads * KV_BLOCK) as u64 * (token(spec.key_width) + token(spec.stored_value_width())) as u64;
    block.saturating_mul(blocks as u64)
}

shared_struct! {
    pub(super) struct WriteParams {
        // Elements from token to token.
        key_input_stride: u64,
        value_input_stride: u64,
        heads: u32,
        key_width: u32,
        value_width: u32,
        // Elements from token to token in the cache.
        key_stride: u32,
        value_stride: u32,
        table_rows: u32,
        table_cols: u32,
        blocks: u32,
    }
}

impl WriteParams {
    /// For keys and values that lie this number of elements apart from token to token.
    pub(super) fn new(
        cache: &KvCache,
        placement: &Placement,
        key_input_stride: usize,
        value_input_stride: usize,
    ) -> Self {
        let spec = cache.spec();
        Self {
            key_input_stride: key_input_stride as u64,
            value_input_stride: value_input_stride as u64,
            heads: limit(spec.heads),
            key_width: limit(spec.key_width),
            value_width: limit(spec.stored_value_width()),
            key_stride: limit(row_stride(spec.key_width, spec.format)),
            value_stride: limit(row_stride(spec.value_width, spec.format)),
            table_rows: limit(placement.table_rows),
            table_cols: limit(placement.table_cols),
            blocks: limit(cache.blocks()),
        }
    }
}

on_device! { kv_write(KvWrite), kv_copy(KvCopy) }

/// [`KvWrite`].
pub fn kv_write(device: &Device, call: KvWrite) -> Result<()> {
    let KvWrite { cache, k, v, placement } = call;
    if k.rows() == 0 {
        return Ok(());
    }
    let tokens = limit(k.rows());
    // Values in keys are not written: of no width, they have no groups.
    let v = v.unwrap_or(k);
    let params = WriteParams::new(cache, placement, k.layout().stride(), v.layout().stride());
    let format = cache.spec().format;
    let data: &mut GpuKv = cache.storage_mut(KvWrite::NAME)?;
    data.written = device.epoch();
    let [keys, k_scales, values, v_scales] = data.args(Access::Write);
    let [slots, positions, table] = placement_args(placement);
    let k = Arg::read(&k);
    let v = Arg::read(&v);
    let flag = device.flag();
    let params = Arg::params(&params);
    let args = [k, v, slots, positions, table, keys, k_scales, values, v_scales, flag, params];
    let kernel = Kernel { file: "kv.gpu", entry: "kv_write", defines: &[cells_define(format)] };
    device.launch(&Launch::new(kernel, [tokens, 1, 1], 256, &args))
}

/// The lists of a placement as arguments: slots, positions, block table.
pub fn placement_args(placement: &Placement) -> [Arg<'_>; 3] {
    [&placement.slots, &placement.positions, &placement.table].map(|ids| Arg::buffer(ids, Access::Read))
}

/// [`KvCopy`]: copies on the device, one after another.
pub fn kv_copy(device: &Device, call: KvCopy) -> Result<()> {
    let KvCopy { cache, blocks } = call;
    let GpuKv { keys, values, .. } = cache.storage(KvCopy::NAME)?;
    let regions =
        [Some(keys), values.as_ref()].into_iter().flatten().flat_map(|data| [Some(&data.cells), data.scales.as_ref()]);
    for region in regions.flatten() {
        let bytes = region.bytes() / cache.blocks().max(1);
        for &(from, to) in blocks.iter().filter(|(from, to)| from != to) {
            let [from, to] = [from, to].map(|block| (region, block as usize * bytes));
            device.copy(KvCopy::NAME, from, to, bytes)?;
        }
    }
    Ok(())
}
