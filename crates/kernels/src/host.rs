//! Memory of the backends that compute on the host.

use crate::act::{Act, Precision};
use crate::check::{self, elements};
use crate::error::Result;
use crate::group::{self, Sorted};
use crate::kv::{self, Cells, KV_BLOCK, KvCache, KvFormat, KvSpec};
use crate::ops::Groups;
use crate::tensor::{Buffer, DeviceId, View};

pub(crate) const DEVICE: DeviceId = DeviceId::Cpu;

/// Room for `rows` × `cols` activations, as bfloat16 too if the backend reads that; see
/// [`crate::ops::Backend::alloc_act`].
pub(crate) fn alloc_act(precision: Precision, bf16: bool, rows: usize, cols: usize) -> Result<Act> {
    let what = "activations";
    let exact = Buffer::host_zeroed(elements(what, &[rows, cols])?, what)?;
    let blocks = match precision {
        Precision::Exact => 0,
        Precision::Fast => elements(what, &[rows, cols.div_ceil(32)])?,
    };
    let int8 = Buffer::host_zeroed(blocks, what)?;
    let bf16 = Buffer::host_zeroed(if bf16 { elements(what, &[blocks, 16])? } else { 0 }, what)?;
    Ok(Act { device: DEVICE, precision, rows: 0, cols, exact, int8, bf16 })
}

/// A zeroed cache; see [`crate::ops::Backend::alloc_kv`].
pub(crate) fn alloc_kv(spec: KvSpec, blocks: usize) -> Result<KvCache> {
    check::alloc_kv(&spec)?;
    let what = "the KV cache";
    let count = |width: usize| elements(what, &[blocks, spec.heads, width, KV_BLOCK]);
    let cells = |width: usize| -> Result<Cells> {
        Ok(match spec.format {
            KvFormat::F16 => Cells::F16(Buffer::host_zeroed(count(width)?, what)?),
            KvFormat::Q8_0 => Cells::Q8_0 {
                codes: Buffer::host_zeroed(count(width)?, what)?,
                scales: Buffer::host_zeroed(count(kv::groups(width))?, what)?,
            },
        })
    };
    let (keys, values) = (cells(spec.key_width)?, cells(spec.value_width)?);
    Ok(KvCache { device: DEVICE, spec, blocks, keys, values, written: 0 })
}

/// Copies whole blocks within a cache. They have been checked.
pub(crate) fn kv_copy(cache: &mut KvCache, blocks: &[(u32, u32)]) {
    fn copy<T: Copy>(cells: &mut Buffer<T>, all: usize, blocks: &[(u32, u32)]) {
        let len = cells.len() / all.max(1);
        let Some(cells) = cells.as_host_mut() else { return };
        for &(from, to) in blocks {
            let from = from as usize * len;
            cells.copy_within(from..from + len, to as usize * len);
        }
    }
    for cells in [&mut cache.keys, &mut cache.values] {
        match cells {
            Cells::F16(cells) => copy(cells, cache.blocks, blocks),
            Cells::Q8_0 { codes, scales } => {
                copy(codes, cache.blocks, blocks);
                copy(scales, cache.blocks, blocks);
            }
        }
    }
}

/// Room for grouping; see [`crate::ops::Backend::alloc_groups`].
pub(crate) fn alloc_groups(experts: usize, pairs: usize, tile_rows: usize) -> Result<Groups> {
    check::alloc_groups(experts)?;
    let what = "expert groups";
    let tiles = elements(what, &[group::max_tiles(experts, pairs, tile_rows), 3])?;
    Ok(Groups {
        counts: Buffer::host_zeroed(experts, what)?,
        pairs: Buffer::host_zeroed(pairs, what)?,
        tiles: Buffer::host_zeroed(tiles, what)?,
        tile_count: Buffer::host_zeroed(1, what)?,
        tile_rows,
        live_pairs: 0,
        total_pairs: 0,
    })
}

/// [`crate::ops::Backend::group_by_expert`], checks included.
pub(crate) fn group_by_expert(ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
    check::group_by_expert(DEVICE, &ids, experts, groups)?;
    let Groups { counts, pairs, tiles, tile_count, tile_rows, live_pairs, total_pairs } = groups;
    let (counts, pairs) = (counts.as_host_mut(), pairs.as_host_mut());
    let (tiles, tile_count) = (tiles.as_host_mut(), tile_count.as_host_mut());
    // The checks have found all of it on the host.
    if let (Some((values, shape)), Some(counts), Some(pairs), Some(tiles), Some(tile_count)) =
        (ids.as_host(), counts, pairs, tiles, tile_count)
    {
        let to = Sorted { counts, pairs, tiles, tile_count, tile_rows: *tile_rows };
        *live_pairs = group::group(values, shape, ids.rows(), to);
        *total_pairs = ids.rows() * ids.cols();
    }
    Ok(())
}

/// Copies host values into the start of a buffer.
pub(crate) fn upload<T: Copy>(values: &[T], to: &mut Buffer<T>) -> Result<()> {
    check::upload(DEVICE, values, to)?;
    if let Some(memory) = to.as_host_mut() {
        memory[..values.len()].copy_from_slice(values);
    }
    Ok(())
}

/// Copies a view to host memory, contiguous.
pub(crate) fn download<T: Copy>(from: View<T>, to: &mut [T]) -> Result<()> {
    check::download(DEVICE, &from, to)?;
    if let Some((values, shape)) = from.as_host()
        && from.cols() > 0
    {
        for (row, out) in to.chunks_exact_mut(from.cols()).enumerate() {
            out.copy_from_slice(&values[shape.row(row)]);
        }
    }
    Ok(())
}
