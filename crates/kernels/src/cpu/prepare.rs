//! Weights into tiles, on all threads.

use super::Cpu;
use super::layout::{ROWS, Tiles, fill_group};
use super::out::Out;
use crate::error::Result;
use crate::weight::TensorView;

impl Cpu {
    /// A tensor in tiles. The tensor must have passed [`TensorView::check`].
    pub(crate) fn tiles(&self, tensor: &TensorView) -> Result<Tiles> {
        let mut tiles = Tiles::zeroed(tensor)?;
        let (format, cols, rows) = (tiles.format, tiles.cols, tiles.rows);
        let (groups, group_bytes, experts) = (tiles.groups(), tiles.group_bytes(), tiles.experts);
        let row_bytes = group_bytes / ROWS;
        let from = tensor.bytes.as_slice();
        let to = Out::new(tiles.bytes_mut());
        self.pool.run(experts * groups, &|i| {
            let (expert, first) = (i / groups, i % groups * ROWS);
            let count = ROWS.min(rows - first);
            let rows = &from[(expert * rows + first) * row_bytes..][..count * row_bytes];
            // SAFETY: each row group is filled by the one chunk that has it.
            fill_group(format, cols, rows, unsafe { to.part(i * group_bytes..(i + 1) * group_bytes) });
        });
        Ok(tiles)
    }
}
