//! Products of weights with few activation rows: the host side of `kernels/gemv.metal`.

use gristmill_gpu::product::{Product, RowSelection};
use gristmill_gpu::{Arg, Device, Kernel, Launch, Unit};
use gristmill_kernels::error::Result;

pub(super) const FILE: &str = "gemv.metal";
/// Threads per block.
pub(super) const BLOCK: usize = 64;
/// Weight rows per lane group in `matmul`, and outputs per lane group in `gate_up`: `GROUP_ROWS` and `GATE_ROWS` in the
/// source.
const GROUP_ROWS: usize = 4;
pub(super) const GATE_ROWS: usize = 2;
/// Range of lanes per lane group, as powers of two: fewer lanes would read partial cache lines.
const LANES_LOG2: std::ops::RangeInclusive<u32> = 2..=5;
/// Rows of X per pass, if there are several.
const SEVERAL: usize = 4;

/// Lanes for rows of this number of spans, as a power of two: minimises idle lanes in the last iteration.
pub(super) fn threads_log2(spans: usize) -> u32 {
    let turns = |log2: &u32| spans.next_multiple_of(1 << log2);
    LANES_LOG2.rev().min_by_key(turns).unwrap_or(*LANES_LOG2.end())
}

pub(super) fn units() -> impl Iterator<Item = Unit> {
    Unit::by_format(FILE)
}

/// Launches a product with lane groups of [`threads_log2`].
pub(super) fn launch(device: &Device, product: &Product, args: &[Arg]) -> Result<()> {
    let rows = product.y.rows();
    let several = match product.rows {
        // Twice the mean per expert: few experts have more.
        RowSelection::Pairs { groups, pairs_per_row, .. } => rows > pairs_per_row && 2 * rows > groups.experts(),
        _ => rows > 1,
    };
    // For one row of X per pass, and for several; and outputs per lane group.
    let (entries, group_rows) = match product.up {
        None => (["matmul", "matmul_several"], GROUP_ROWS),
        Some(_) => (["gate_up", "gate_up_several"], GATE_ROWS),
    };
    let blocks = product.output_blocks(group_rows * (BLOCK >> threads_log2(product.weight().spans)))?;
    let grid = [blocks, product.tasks(if several { SEVERAL } else { 1 }), 1];
    let entry = entries[usize::from(several)];
    let kernel = Kernel { file: FILE, entry, defines: &[("FORMAT", product.format().name())] };
    device.launch(&Launch::new(kernel, grid, BLOCK as u32, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_leave_few_lanes_idle() {
        for (spans, lanes) in [(1, 4), (4, 4), (8, 8), (12, 4), (16, 16), (24, 8), (64, 32), (90, 4), (33, 4)] {
            assert_eq!(1 << threads_log2(spans), lanes, "{spans} spans");
        }
    }
}
