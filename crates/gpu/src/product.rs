//! What all kernels that multiply are told: which rows of X, which part of a bias.

use crate::epilogue::{EpilogueParams, ProductEpilogue};
use crate::layout::PlaneRows;
use crate::storage::GpuAct;
use gristmill_kernels::act::Act;
use gristmill_kernels::error::{Error, Result};

use crate::seam::region_of;
use crate::{Access, Arg};
use gristmill_kernels::groups::{Groups, max_tiles};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};

/// The most blocks along the grid's y.
const GRID_Y: usize = 65_535;

/// RowSelection rows of X are multiplied, and where the products go.
#[derive(Clone, Copy)]
pub enum RowSelection<'a> {
    /// Row i becomes row i of Y.
    All,
    /// Row `ids[i]` becomes row i of Y.
    Ids(View<'a, u32>),
    /// Pair p, with row p / pairs_per_row of X, becomes row p of Y.
    Pairs {
        /// The pairs of each expert.
        groups: &'a Groups,
        /// Pairs that share a row of X: top-k, or 1 if X has a row for each pair.
        pairs_per_row: usize,
    },
}

impl RowSelection<'_> {
    /// Blocks along y of kernels that go by `each_stretch`, `at_once` rows of X at a time.
    pub fn tasks(self, experts: usize, y_rows: usize, at_once: usize) -> u32 {
        let tasks = match self {
            // One more is for pairs without an expert.
            Self::Pairs { groups, .. } => max_tiles(experts, y_rows, groups.tile_rows()).min(GRID_Y - 1) + 1,
            _ => y_rows.div_ceil(at_once).min(GRID_Y),
        };
        tasks as u32
    }
}

/// A bias: E × `matrix` elements, of which a product uses those from `first` on.
#[derive(Clone, Copy)]
pub struct Bias<'a> {
    /// The whole bias.
    pub values: &'a Buffer<f32>,
    /// Its first element that the product uses, of each matrix.
    pub first: usize,
    /// Elements from a matrix to the next.
    pub matrix: usize,
}

impl<'a> Bias<'a> {
    /// Biases of gate and up, of so many outputs each.
    pub fn both(biases: Option<[&'a Buffer<f32>; 2]>, outputs: usize) -> [Option<Self>; 2] {
        biases.map_or([None; 2], |both| both.map(|values| Some(Self { values, first: 0, matrix: outputs })))
    }
}

/// The lists of [`Groups`] as arguments: pairs, tiles, number of tiles.
pub fn lists(which: RowSelection) -> [Arg; 3] {
    match which {
        RowSelection::Pairs { groups, .. } => {
            [groups.pairs(), groups.tiles(), groups.tile_count()].map(|list| Arg::buffer(list, Access::Read))
        }
        _ => [Arg::Null; 3],
    }
}

/// The part of a bias that a product uses.
pub fn bias_arg(bias: Option<Bias>) -> Arg {
    let Some(Bias { values, first, .. }) = bias else { return Arg::Null };
    region_of(values).map_or(Arg::Null, |region| Arg::Buffer {
        region,
        offset: first * size_of::<f32>(),
        bytes: (values.len() - first) * size_of::<f32>(),
        access: Access::Read,
    })
}

/// A size as kernels count it.
pub fn word(op: &'static str, what: &'static str, size: usize) -> Result<u32> {
    let rule = "must be below 2^32 - 1 on a GPU";
    let fits = u32::try_from(size).ok().filter(|&size| size < u32::MAX);
    fits.ok_or_else(|| Error::Range { op, what, found: size.to_string(), rule })
}

/// Where gate and up go: as they are, and as activations.
pub struct Gated<'a> {
    /// rows × outputs, if floats are wanted.
    pub h: Option<&'a ViewMut<'a, f32>>,
    /// rows × outputs, if activations are wanted.
    pub act: Option<&'a GpuAct>,
}

impl Gated<'_> {
    /// `h` and the parts of `act` as arguments.
    pub fn args(&self) -> [Arg<'_>; 4] {
        let [exact, int8, bf16] = self.act.map_or([Arg::Null; 3], GpuAct::outputs);
        [self.h.map_or(Arg::Null, |h| Arg::write(h)), exact, int8, bf16]
    }
}

shared_struct! {
    /// Sizes and strides of products, which rows of X they are of, and their epilogue.
    #[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
    #[repr(C)]
    pub struct ProductParams in "product.h" {
        row_bytes: u64,
        matrix_bytes: u64,
        y_stride: u64,
        ids_stride: u64,
        bias_stride: u64,
        outputs: u32,
        blocks: u32,
        x_rows: u32,
        y_rows: u32,
        cut: u32,
        pairs_per_row: u32,
        epilogue: EpilogueParams,
        which: u32,
        biased: u32,
        second: u32,
        third: u32,
        padding: u32,
    }
}

impl ProductParams {
    /// Products of `y_rows` rows of X with a weight; `cut` as the kernel means it.
    pub fn new(
        op: &'static str,
        w: &PlaneRows,
        x: &Act,
        which: RowSelection,
        bias: Option<Bias>,
        cut: u32,
        epilogue: ProductEpilogue,
        y_stride: usize,
        y_rows: usize,
    ) -> Result<Self> {
        let (ids_stride, pairs_per_row, kind) = match which {
            RowSelection::All => (0, 1, 0),
            RowSelection::Ids(ids) => (ids.layout().stride(), 1, 1),
            RowSelection::Pairs { pairs_per_row, .. } => (0, pairs_per_row, 2),
        };
        let outputs = word(op, "outputs", w.rows)?;
        Ok(Self {
            row_bytes: w.row_bytes as u64,
            matrix_bytes: w.matrix_bytes() as u64,
            y_stride: y_stride as u64,
            ids_stride: ids_stride as u64,
            bias_stride: bias.map_or(0, |bias| bias.matrix) as u64,
            outputs,
            blocks: word(op, "blocks in a row", w.blocks())?,
            x_rows: word(op, "rows of X", x.rows())?,
            y_rows: word(op, "rows of Y", y_rows)?,
            cut,
            pairs_per_row: word(op, "pairs of a row", pairs_per_row)?,
            epilogue: epilogue.into(),
            which: kind,
            biased: bias.is_some().into(),
            second: outputs,
            third: outputs,
            padding: 0,
        })
    }

    /// The same of several weights like the first, side by side: at most three.
    pub fn joined(self, op: &'static str, parts: &[PlaneRows]) -> Result<Self> {
        let end = |count| word(op, "outputs", parts.iter().take(count).map(|part| part.rows).sum());
        Ok(Self { second: end(1)?, third: end(2)?, outputs: end(parts.len())?, ..self })
    }
}
