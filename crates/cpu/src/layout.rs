//! The layout of prepared weights: tiles of 16 rows, planes interleaved by units.
//!
//! A tile is one block of each of 16 rows. It is a permutation of the file's bytes and has the same size. One 64-byte
//! load brings 4 bytes of each of 16 rows, so no kernel needs a horizontal sum. The order is: expert, row group, tile
//! along the columns. Missing rows of the last group are zero bytes, which every format decodes to finite numbers.
//! Kernels never store their outputs.
//!
//! # A tile is one block of each of 16 rows
//!
//! Its bytes are permuted by planes, so that lane *r* of a vector is row *r*. *No kernel sums across lanes.* A level
//! (`portable`, `avx2`, `avxvnni`, `avx512`, `neon`) implements one trait and has tests of its own; `amx` adds one loop to `avx512`. A CPU with AVX-512
//! but without VNNI uses `avx2`. *One binary serves every CPU: no configuration sets `target-cpu`.*

use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::{Format, Plane};
use gristmill_kernels::weight::TensorShape;
use memmap2::MmapMut;
use std::ops::Range;

/// Rows in a tile.
pub const ROWS: usize = 16;

/// The results of one activation row: one value per weight row of the tile.
pub(crate) type Lanes = [f32; ROWS];

/// A tensor in tiles.
pub struct Tiles {
    /// Encoding.
    pub format: Format,
    /// Number of matrices.
    pub experts: usize,
    /// Rows (outputs) of one matrix.
    pub rows: usize,
    /// Columns (inputs).
    pub cols: usize,
    /// Separate pages: aligned, zeroed on first touch, and huge pages where the system offers them.
    memory: MmapMut,
}

impl Tiles {
    /// Zeroed memory for a tensor, whose columns are whole blocks.
    pub(crate) fn zeroed(shape: &TensorShape) -> Result<Self> {
        let TensorShape { format, experts, rows, cols } = *shape;
        let bytes = usize::try_from(bytes(shape)).unwrap_or(usize::MAX);
        let refused = |_| Error::OutOfMemory { what: "weights", bytes };
        let memory = MmapMut::map_anon(bytes).map_err(refused)?;
        // GEMV streams gigabytes, more than any TLB covers with 4 KiB pages. For 100 MB the gain is within the noise of
        // a busy machine (docs/performance-notes.md). If the system refuses, nothing is lost.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self { format, experts, rows, cols, memory })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Format and dimensions.
    pub(crate) fn shape(&self) -> TensorShape {
        let Self { format, experts, rows, cols, .. } = *self;
        TensorShape { format, experts, rows, cols }
    }

    /// Row groups of one matrix.
    pub fn groups(&self) -> usize {
        groups(&self.shape())
    }

    /// Bytes of one row group: tiles along the columns.
    pub(crate) fn group_bytes(&self) -> usize {
        group_bytes(&self.shape())
    }

    /// The tiles of a row group. `expert < experts`, `group < groups()`.
    pub(crate) fn group(&self, expert: usize, group: usize) -> &[u8] {
        self.row_groups(expert, group..group + 1)
    }

    /// The tiles of consecutive row groups. `expert < experts`, `groups.end <= groups()`.
    pub(crate) fn row_groups(&self, expert: usize, groups: Range<usize>) -> &[u8] {
        let bytes = self.group_bytes();
        &self.memory[(expert * self.groups() + groups.start) * bytes..][..groups.len() * bytes]
    }

    /// All row groups, expert-major.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// All row groups, for filling: expert-major, [`Tiles::group_bytes`] bytes each.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Fills all row groups from all rows of the file, on this thread.
    pub(crate) fn fill(&mut self, rows: &[u8]) {
        let shape = self.shape();
        let groups = self.memory.chunks_exact_mut(group_bytes(&shape));
        groups.enumerate().for_each(|(index, group)| fill_group(&shape, index, rows, group));
    }
}

impl std::fmt::Debug for Tiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tiles({} × {} × {} {})", self.experts, self.rows, self.cols, self.format)
    }
}

/// Row groups of one matrix.
pub(crate) fn groups(shape: &TensorShape) -> usize {
    shape.rows.div_ceil(ROWS)
}

/// Bytes of one row group: tiles along the columns.
pub(crate) fn group_bytes(shape: &TensorShape) -> usize {
    shape.cols / shape.format.block_len() * shape.format.block_bytes() * ROWS
}

/// Bytes of a tensor in tiles.
pub(crate) fn bytes(shape: &TensorShape) -> u64 {
    shape.bytes(shape.rows.saturating_add(ROWS - 1) / ROWS * ROWS, shape.format.row_bytes(shape.cols))
}

/// Fills row group `index`, counted through all matrices, from all rows of the file; missing rows become zero bytes.
pub(crate) fn fill_group(shape: &TensorShape, index: usize, rows: &[u8], group: &mut [u8]) {
    let TensorShape { format, rows: count, .. } = *shape;
    let groups = groups(shape);
    let block = format.block_bytes();
    let row = group_bytes(shape) / ROWS;
    let expert = index / groups;
    let first = index % groups * ROWS;
    let rows = &rows[(expert * count + first) * row..][..ROWS.min(count - first) * row];
    for (i, tile) in group.chunks_exact_mut(ROWS * block).enumerate() {
        let mut blocks: [&[u8]; ROWS] = [&[]; ROWS];
        let mut live = 0;
        for (slot, row) in blocks.iter_mut().zip(rows.chunks_exact(row)) {
            *slot = &row[i * block..][..block];
            live += 1;
        }
        interleave(format.planes(), &blocks[..live], tile);
    }
}

/// Permutes one block of each of up to 16 rows into a tile. `blocks` holds each row's block; missing rows are zeroed.
///
/// `tile.len()` must be 16 × the block's bytes, which is the sum of the planes' bytes.
pub fn interleave(planes: &[Plane], blocks: &[&[u8]], tile: &mut [u8]) {
    if blocks.len() < ROWS {
        tile.fill(0);
    }
    let mut rest = tile;
    for plane in planes {
        let (out, after) = rest.split_at_mut(ROWS * plane.bytes);
        match plane.unit {
            1 => interleave_units::<1>(plane.start, blocks, out),
            2 => interleave_units::<2>(plane.start, blocks, out),
            _ => interleave_units::<4>(plane.start, blocks, out),
        }
        rest = after;
    }
}

fn interleave_units<const UNIT: usize>(start: usize, blocks: &[&[u8]], out: &mut [u8]) {
    for (i, units) in out.chunks_exact_mut(ROWS * UNIT).enumerate() {
        let at = start + i * UNIT;
        for (unit, block) in units.chunks_exact_mut(UNIT).zip(blocks) {
            unit.copy_from_slice(&block[at..at + UNIT]);
        }
    }
}
