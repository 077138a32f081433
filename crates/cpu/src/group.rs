//! Sorts (token, slot) pairs by expert on the host: a counting sort, ascending within an expert.

use super::cpu::Cpu;
use super::host;
use super::operation::OnCpu;
use gristmill_kernels::error::Result;
use gristmill_kernels::groups::GroupLists;
use gristmill_kernels::ops::{Checked, GroupByExpert, Operation};
use gristmill_kernels::tensor::Buffer;

impl OnCpu for GroupByExpert<'_> {
    fn run(call: Checked<Self>, _cpu: &Cpu) -> Result<()> {
        let (ids, lists) = call.into_lists();
        let (tokens, top_k) = (ids.rows(), ids.cols());
        let ids = host::rows(Self::NAME, ids)?;
        group(tokens, top_k, &|token| ids.row(token), lists)
    }
}

/// Sorts pairs and cuts each expert's pairs into tiles. Ids of experts that are not grouped are left out, as padding is. The lists
/// must be long enough.
fn group<'a>(tokens: usize, top_k: usize, ids: &dyn Fn(usize) -> &'a [u32], lists: GroupLists) -> Result<()> {
    fn list(buffer: &mut Buffer<u32>) -> &mut [u32] {
        buffer.as_host_mut().unwrap_or(&mut [])
    }
    let tile_rows = *lists.tile_rows;
    let (counts, sorted) = (list(lists.counts), list(lists.pairs));
    // Wraps for experts before the first, and is too large for padding too: there are far fewer experts than ids.
    let (first, experts) = (lists.first as u32, counts.len());
    let grouped = |id: u32| Some(id.wrapping_sub(first) as usize).filter(|&expert| expert < experts);
    counts.fill(0);
    for expert in (0..tokens).flat_map(ids).filter_map(|&id| grouped(id)) {
        counts[expert] += 1;
    }

    // Counts become ends; filling backwards turns the ends into starts.
    let mut live = 0;
    for count in counts.iter_mut() {
        live += *count;
        *count = live;
    }
    for token in (0..tokens).rev() {
        for (slot, &id) in ids(token).iter().enumerate().rev() {
            let Some(expert) = grouped(id) else { continue };
            let end = &mut counts[expert];
            *end -= 1;
            sorted[*end as usize] = (token * top_k + slot) as u32;
        }
    }

    // Starts become counts again while the tiles are cut.
    let mut tiles = list(lists.tiles).chunks_exact_mut(3);
    let mut tile_count = 0;
    for expert in 0..counts.len() {
        let start = counts[expert];
        let end = counts.get(expert + 1).copied().unwrap_or(live);
        counts[expert] = end - start;
        for first in (start..end).step_by(tile_rows) {
            if let Some(tile) = tiles.next() {
                tile.copy_from_slice(&[expert as u32, first, (end - first).min(tile_rows as u32)]);
                tile_count += 1;
            }
        }
    }
    list(lists.tile_count).fill(tile_count);
    Ok(())
}
