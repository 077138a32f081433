//! Grouping of pairs by expert: `kernels/group.h`.

use super::grid::{MOST_BLOCKS, count};
use gristmill_kernels::error::Result;

use crate::{Access, Arg, Device, Kernel, Launch};
use gristmill_kernels::groups::GroupLists;
use gristmill_kernels::tensor::{RowLayout, View};

shared_struct! {
    pub(super) struct GroupParams {
        // Elements from one row of ids to the next.
        ids_stride: u64,
        pairs: u32,
        top_k: u32,
        experts: u32,
        tile_rows: u32,
        // Pairs of a block, and warps that have a table.
        chunk: u32,
        tables: u32,
        // The first expert that is grouped, and the experts that ids are of.
        first: u32,
        all: u32,
    }
}

/// Pairs that one block sorts; more are split into chunks of as many. Three launches then cost less than one slow
/// block.
const CHUNK: usize = 8192;
/// Pairs of a thread, unless a block has too few threads.
const THREAD_PAIRS: usize = 4;
/// Shared memory for the warps' tables, where a block has as much next to what the kernels have in any case.
const TABLE_BYTES: u32 = 32 << 10;
pub(super) const FIXED_BYTES: u32 = 9 << 10;

impl GroupParams {
    pub(super) fn new(device: &Device, ids: RowLayout, lists: &GroupLists, threads: usize) -> Result<Self> {
        let experts = lists.counts.len();
        let scratch = device.shared(FIXED_BYTES).min(TABLE_BYTES) as usize;
        let pairs = ids.rows().saturating_mul(ids.cols());
        Ok(Self {
            ids_stride: ids.stride() as u64,
            pairs: count("group_by_expert", "pairs", pairs, MOST_BLOCKS)?,
            top_k: count("group_by_expert", "top-k", ids.cols(), MOST_BLOCKS)?,
            experts: experts as u32,
            tile_rows: *lists.tile_rows as u32,
            chunk: CHUNK as u32,
            tables: (scratch / (4 * (experts + 1))).min(threads / 32) as u32,
            first: lists.first as u32,
            all: lists.all as u32,
        })
    }

    /// Bytes of shared memory for the tables, of a column for each expert and one for pairs without.
    pub(super) fn scratch(&self) -> u32 {
        4 * self.tables * (self.experts + 1)
    }
}

/// Threads of a block that has this number of pairs: at least as many as experts.
pub(super) fn threads(experts: usize, pairs: usize) -> usize {
    (pairs / THREAD_PAIRS).max(experts).next_multiple_of(32).min(1024)
}

/// [`gristmill_kernels::ops::GroupByExpert`].
pub fn group_by_expert(device: &Device, ids: View<u32>, lists: &GroupLists) -> Result<()> {
    let experts = lists.counts.len();
    let pairs = ids.rows().saturating_mul(ids.cols());
    let block = threads(experts, pairs.min(CHUNK));
    let params = GroupParams::new(device, ids.layout(), lists, block)?;
    let [counts, sorted, tiles, tile_count] = list_args(lists);
    let launch = |entry, blocks, shared, args: &[Arg]| {
        let launch = Launch::new(Kernel::plain("group.gpu", entry), [blocks, 1, 1], block as u32, args);
        device.launch(&Launch { shared, ..launch })
    };
    let ids = Arg::read(&ids);
    let flag = device.flag();
    let parameters = Arg::params(&params);
    if pairs <= CHUNK {
        launch("group", 1, params.scratch(), &[ids, counts, sorted, tiles, tile_count, flag, parameters])?;
    } else {
        let chunks = params.pairs.div_ceil(params.chunk);
        let workspace = device.workspace(4 * chunks as usize * (experts + 1))?;
        let places = |access| Arg::region(&workspace, access);
        launch("group_counts", chunks, params.scratch(), &[ids, places(Access::Write), flag, parameters])?;
        launch("group_sums", 1, 0, &[places(Access::ReadWrite), counts, tiles, tile_count, parameters])?;
        launch("group_pairs", chunks, params.scratch(), &[ids, places(Access::Read), sorted, parameters])?;
    }
    Ok(())
}

/// The lists as arguments: counts, pairs, tiles, number of tiles.
pub(super) fn list_args<'a>(lists: &'a GroupLists) -> [Arg<'a>; 4] {
    let GroupLists { counts, pairs, tiles, tile_count, .. } = lists;
    [&**counts, &**pairs, &**tiles, &**tile_count].map(|list| Arg::buffer(list, Access::Write))
}
