//! Grouping of pairs by expert: `kernels/group.h`.

use super::{MOST_BLOCKS, count};
use crate::error::Result;
use crate::gpu::twin::twin;
use crate::gpu::{Access, Arg, Device, Kernel, Launch};
use crate::ops::Groups;
use crate::tensor::{Shape, View};
use bytemuck::{Pod, Zeroable};

twin! {
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    pub(super) struct GroupParams in "group.h" {
        ids_stride: u64,
        pairs: u32,
        top_k: u32,
        experts: u32,
        tile_rows: u32,
        chunk: u32,
        tables: u32,
    }
}

/// Pairs that one block sorts; more are cut into chunks of as many. Three launches then cost less than one slow block.
const CHUNK: usize = 8192;
/// Pairs of a thread, when a block is not needed for more.
const THREAD_PAIRS: usize = 4;
/// Shared memory for the warps' tables, where a block has as much beside what the kernels have in any case.
const TABLE_BYTES: u32 = 32 << 10;
pub(super) const FIXED_BYTES: u32 = 9 << 10;

impl GroupParams {
    pub(super) fn new(device: &Device, ids: Shape, experts: usize, tile_rows: usize, threads: usize) -> Result<Self> {
        let room = device.shared(FIXED_BYTES).min(TABLE_BYTES) as usize;
        let pairs = ids.rows().saturating_mul(ids.cols());
        Ok(Self {
            ids_stride: ids.stride() as u64,
            pairs: count("group_by_expert", "pairs", pairs, MOST_BLOCKS)?,
            top_k: count("group_by_expert", "top-k", ids.cols(), MOST_BLOCKS)?,
            experts: experts as u32,
            tile_rows: tile_rows as u32,
            chunk: CHUNK as u32,
            tables: (room / (4 * (experts + 1))).min(threads / 32) as u32,
        })
    }

    /// Bytes of shared memory for the tables, of a column for each expert and one for pairs without.
    pub(super) fn room(&self) -> u32 {
        4 * self.tables * (self.experts + 1)
    }
}

/// Threads of a block that has so many pairs: at least as many as experts.
pub(super) fn threads(experts: usize, pairs: usize) -> usize {
    (pairs / THREAD_PAIRS).max(experts).next_multiple_of(32).min(1024)
}

/// [`crate::ops::Backend::group_by_expert`], checked.
pub(crate) fn group_by_expert(device: &Device, ids: View<u32>, experts: usize, groups: &mut Groups) -> Result<()> {
    let pairs = ids.rows().saturating_mul(ids.cols());
    let block = threads(experts, pairs.min(CHUNK));
    let params = GroupParams::new(device, ids.shape(), experts, groups.tile_rows, block)?;
    let write = |buffer| Arg::buffer(buffer, Access::Write);
    let (counts, sorted) = (write(&groups.counts), write(&groups.pairs));
    let (tiles, tile_count) = (write(&groups.tiles), write(&groups.tile_count));
    let launch = |entry, blocks, shared, args: &[Arg]| {
        let (kernel, block) = (Kernel { file: "group.gpu", entry, defines: &[] }, block as u32);
        device.launch(&Launch { kernel, grid: [blocks, 1, 1], block, shared, overlap: true, args })
    };
    let (ids, flag, parameters) = (Arg::read(&ids), device.flag(), Arg::params(&params));
    if pairs <= CHUNK {
        launch("group", 1, params.room(), &[ids, counts, sorted, tiles, tile_count, flag, parameters])?;
    } else {
        let chunks = params.pairs.div_ceil(params.chunk);
        let workspace = device.workspace(4 * chunks as usize * (experts + 1))?;
        let places = |access| Arg::region(&workspace, access);
        launch("group_counts", chunks, params.room(), &[ids, places(Access::Write), flag, parameters])?;
        launch("group_sums", 1, 0, &[places(Access::ReadWrite), counts, tiles, tile_count, parameters])?;
        launch("group_pairs", chunks, params.room(), &[ids, places(Access::Read), sorted, parameters])?;
    }
    has_sorted(groups, pairs);
    Ok(())
}

/// Keeps how many pairs were sorted. How many of them are padding only the device knows.
pub(super) fn has_sorted(groups: &mut Groups, pairs: usize) {
    (groups.total_pairs, groups.live_pairs) = (pairs, pairs);
}
