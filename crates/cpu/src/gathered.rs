//! The activation rows of a chunk: references to them, and copies where a kernel reads copies faster.

use super::act::{CpuAct, Int8Block};
use super::cuts::TOKEN_BLOCK;
use super::dot::{ActRows, PackedAct, PackedRows};
use super::level::Level;
#[cfg(target_arch = "x86_64")]
use super::simd::TileRows;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::Result;
use gristmill_kernels::format::Format;

/// The fewest row groups of a chunk, and the fewest rows, for which rows are copied: a copy takes as long as two or three groups.
pub(crate) const PACKED_GROUPS: usize = 16;
/// See [`PACKED_GROUPS`].
const PACKED_ROWS: usize = 16;

/// The fewest rows for which a level with tiles uses them: with 8, products are as fast as by vectors or faster (one core of
/// a Xeon, Q4_K and Q4_0 the same, Q6_K, Q8_0 and MXFP4 1.3 times).
pub(crate) const TILED_ROWS: usize = 8;

/// Row groups that one call multiplies by tiles: configuring tiles takes 65 ns, a group with 64 rows about 2 µs.
pub(crate) const TILE_GROUPS: usize = 8;

/// References to the activation rows of a chunk.
pub(crate) struct Gathered<'a> {
    int8: [&'a [Int8Block]; TOKEN_BLOCK],
    bf16: [&'a [u32]; TOKEN_BLOCK],
    exact: [&'a [f32]; TOKEN_BLOCK],
    len: usize,
    /// Copies for float weights of many row groups.
    pub(crate) packed: Option<PackedAct>,
    /// Copies for quantised weights, at a level with tiles.
    #[cfg(target_arch = "x86_64")]
    pub(crate) tiles: Option<TileRows>,
}

impl<'a> Gathered<'a> {
    /// Collects at most [`TOKEN_BLOCK`] rows of `x`.
    pub(crate) fn new(x: &'a Operand, rows: impl Iterator<Item = usize>) -> Self {
        let mut this = Self {
            int8: [&[]; TOKEN_BLOCK],
            bf16: [&[]; TOKEN_BLOCK],
            exact: [&[]; TOKEN_BLOCK],
            len: 0,
            packed: None,
            #[cfg(target_arch = "x86_64")]
            tiles: None,
        };
        for row in rows.take(TOKEN_BLOCK) {
            this.exact[this.len] = &x.exact[row * x.cols..][..x.cols];
            if !x.int8.is_empty() {
                let blocks = x.cols.div_ceil(32);
                this.int8[this.len] = &x.int8[row * blocks..][..blocks];
            }
            if !x.bf16.is_empty() {
                let pairs = x.cols.div_ceil(2);
                this.bf16[this.len] = &x.bf16[row * pairs..][..pairs];
            }
            this.len += 1;
        }
        this
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the rows for tiles, if the level has tiles and a format is quantised.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut, unused_variables))]
    pub(crate) fn tiled(mut self, level: Level, mut formats: impl Iterator<Item = Format>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = level.tiles().filter(|_| self.len >= TILED_ROWS && !self.int8[0].is_empty())
            && formats.any(|format| !format.is_float())
        {
            self.tiles = Some(TileRows::new(amx, &self.exact[..self.len]));
        }
        self
    }

    /// Whether rows were copied for tiles.
    pub(crate) fn is_tiled(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.tiles.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Row groups that are multiplied before their results are stored.
    pub(crate) fn groups_at_once(&self) -> usize {
        if self.is_tiled() { TILE_GROUPS } else { TOKEN_BLOCK / self.len.max(1) }
    }

    /// Copies the rows, if weights of this format and so many row groups are multiplied faster with copies.
    pub(crate) fn packed(mut self, format: Format, groups: usize) -> Self {
        if format.is_float() && self.len >= PACKED_ROWS && groups >= PACKED_GROUPS {
            self.packed = match self.rows(format) {
                ActRows::Exact(rows) => Some(PackedAct::Exact(PackedRows::new(rows))),
                ActRows::Bf16(rows) => Some(PackedAct::Bf16(PackedRows::new(rows))),
                ActRows::Int8(_) => None,
            };
        }
        self
    }

    /// The rows in the representation that weights of this format read.
    pub(crate) fn rows(&self, format: Format) -> ActRows<'_> {
        if !format.is_float() && !self.int8[0].is_empty() {
            ActRows::Int8(&self.int8[..self.len])
        } else if format.is_bf16() && !self.bf16[0].is_empty() {
            ActRows::Bf16(&self.bf16[..self.len])
        } else {
            ActRows::Exact(&self.exact[..self.len])
        }
    }
}

/// Prepared activations in host memory.
pub(crate) struct Operand<'a> {
    exact: &'a [f32],
    /// Empty at [`gristmill_kernels::act::Precision::Exact`].
    int8: &'a [Int8Block],
    /// Empty at [`gristmill_kernels::act::Precision::Exact`], and if the level does not multiply bfloat16.
    bf16: &'a [u32],
    cols: usize,
}

impl<'a> Operand<'a> {
    pub(crate) fn new(op: &'static str, act: &'a Act) -> Result<Self> {
        let CpuAct { exact, int8, bf16 } = act.storage(op)?;
        Ok(Self { exact, int8, bf16, cols: act.cols() })
    }
}
