//! Matrix products as kernels get them: a run of a weight's parts, the rows of X, biases, and where results go.

use crate::device_api::region_of;
use crate::epilogue::{EpilogueParams, ProductEpilogue};
use crate::layout::PlaneRows;
use crate::storage::{ActOutput, BF16, EXACT, GpuAct, INT8};
use crate::{Access, Arg};
use gristmill_kernels::act::{Act, Representations};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::groups::{Groups, max_tiles};
use gristmill_kernels::tensor::{Buffer, View, ViewMut};
use std::slice::from_ref;

/// The most blocks along the grid's y.
const GRID_Y: usize = 65_535;

/// Which rows of X and of Y belong to the pairs of [`Groups`]: row p to pair p, but for one of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOrder {
    /// Both.
    ByPair,
    /// Row i of X is that of pair `pairs[i]`, so that those of an expert are neighbours. Kernels whose results are rounded
    /// know this order and the next.
    XByExpert,
    /// Row i of Y is that of pair `pairs[i]`.
    YByExpert,
}

/// Which rows of X are multiplied, and where the products go.
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
        /// Where a pair's rows are.
        order: PairOrder,
    },
}

impl RowSelection<'_> {
    /// Elements from an id to the next, and pairs that share a row of X.
    pub fn strides(self) -> (usize, usize) {
        match self {
            Self::All => (0, 1),
            Self::Ids(ids) => (ids.layout().stride(), 1),
            Self::Pairs { pairs_per_row, .. } => (0, pairs_per_row),
        }
    }

    /// Where the rows of pairs are.
    pub fn order(self) -> PairOrder {
        match self {
            Self::Pairs { order, .. } => order,
            Self::All | Self::Ids(_) => PairOrder::ByPair,
        }
    }

    /// Ids, pairs, tiles and the number of tiles as arguments.
    pub fn args(&self) -> [Arg<'_>; 4] {
        match self {
            Self::All => [Arg::Null; 4],
            Self::Ids(ids) => [Arg::read(ids), Arg::Null, Arg::Null, Arg::Null],
            Self::Pairs { groups, .. } => {
                let lists = [groups.pairs(), groups.tiles(), groups.tile_count()];
                let [pairs, tiles, tile_count] = lists.map(|list| Arg::buffer(list, Access::Read));
                [Arg::Null, pairs, tiles, tile_count]
            }
        }
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

/// The product of one launch: X · Wᵀ + bias; or with a second weight activation(gate · x + bias, up · x + bias).
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// The operation, for errors.
    pub op: &'static str,
    /// Parts of a weight with one format, whose outputs are side by side; with a second weight the gate alone.
    pub parts: &'a [PlaneRows],
    /// The first of these outputs among all of the weight.
    pub first: usize,
    /// The second weight, of the gate's shape and format.
    pub up: Option<&'a PlaneRows>,
    /// X.
    pub x: &'a Act,
    /// Which rows of X.
    pub rows: RowSelection<'a>,
    /// The biases of both weights.
    pub biases: [Option<Bias<'a>>; 2],
    /// Work on a result before it is stored.
    pub epilogue: ProductEpilogue,
    /// Y. May be left undefined if `act` is given.
    pub y: &'a ViewMut<'a, f32>,
    /// With a second weight, or an activation without a gate: gets the results as activations.
    pub act: Option<ActOutput<'a>>,
    /// Memory with a row for each pair that a product of pairs may overwrite, to bring the rows of X into another order.
    pub spare: Option<&'a ViewMut<'a, f32>>,
    /// Results are bfloat16 alone: one representation of `act`, or else the first half of each row of Y.
    pub rounded: bool,
}

impl<'a> Product<'a> {
    /// A product with one part, whose results are stored as they are.
    pub fn new(
        op: &'static str,
        part: &'a PlaneRows,
        x: &'a Act,
        rows: RowSelection<'a>,
        y: &'a ViewMut<'a, f32>,
    ) -> Self {
        let parts = from_ref(part);
        let biases = [None; 2];
        let epilogue = ProductEpilogue::Store;
        Self { op, parts, first: 0, up: None, x, rows, biases, epilogue, y, act: None, spare: None, rounded: false }
    }

    /// The first weight's first part.
    pub fn weight(&self) -> &'a PlaneRows {
        &self.parts[0]
    }

    /// The format of all weights.
    pub fn format(&self) -> Format {
        self.weight().format
    }

    /// Outputs, of one weight.
    pub fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Blocks along x for this number of outputs each.
    pub fn output_blocks(&self, outputs: usize) -> Result<u32> {
        word(self.op, "blocks of outputs", self.outputs().div_ceil(outputs))
    }

    /// Blocks along y of kernels that take tasks in turns (`row_chunks.cuh`, `tasks.h`), `at_once` rows of X each.
    pub fn tasks(&self, at_once: usize) -> u32 {
        let tasks = match self.rows {
            // One more is for pairs without an expert.
            RowSelection::Pairs { groups, .. } => {
                max_tiles(self.weight().experts, self.y.rows(), groups.tile_rows()).min(GRID_Y - 1) + 1
            }
            _ => self.y.rows().div_ceil(at_once).min(GRID_Y),
        };
        tasks as u32
    }

    /// The exact representation of X as an argument.
    pub fn exact(&self) -> Result<Arg<'a>> {
        Ok(self.x(EXACT)?.exact(Access::Read))
    }

    /// The int8 blocks of X as an argument.
    pub fn int8(&self) -> Result<Arg<'a>> {
        Ok(self.x(INT8)?.int8(Access::Read))
    }

    /// The bfloat16 words of X as an argument.
    pub fn bf16(&self) -> Result<Arg<'a>> {
        Ok(self.x(BF16)?.bf16(Access::Read))
    }

    /// The storage of X, which must have this representation.
    fn x(&self, representation: Representations) -> Result<&'a GpuAct> {
        self.x.expect_filled(self.op, representation)?;
        self.x.storage(self.op)
    }

    /// The second weight as an argument.
    pub fn up_arg(&self) -> Arg<'a> {
        self.up.map_or(Arg::Null, PlaneRows::arg)
    }

    /// The biases as arguments.
    pub fn bias_args(&self) -> [Arg<'a>; 2] {
        self.biases.map(bias_arg)
    }

    /// Y as an argument.
    pub fn y_arg(&self) -> Arg<'a> {
        if self.up.is_some() { Arg::write(self.y) } else { self.epilogue.output(self.y) }
    }

    /// Results as arguments: Y, or exact, int8 and bfloat16 activations.
    pub fn output_args(&self) -> [Arg<'a>; 4] {
        let Some(act) = self.act else { return [self.y_arg(), Arg::Null, Arg::Null, Arg::Null] };
        let [exact, int8, bf16] = act.storage.outputs();
        [Arg::Null, exact, int8, bf16]
    }
}

/// The part of a bias that a product uses.
fn bias_arg(bias: Option<Bias>) -> Arg {
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

shared_struct! {
    /// Sizes and strides of a [`Product`], which rows of X it is of, and its epilogue.
    pub struct ProductParams {
        // Bytes of a weight row and of an expert's matrix.
        row_bytes: u64,
        matrix_bytes: u64,
        // Elements from a row of Y to the next, and from a row id to the next.
        y_stride: u64,
        ids_stride: u64,
        // Elements of the bias from an expert to the next.
        bias_stride: u64,
        // Outputs, and blocks of the format in a row.
        outputs: u32,
        blocks: u32,
        x_rows: u32,
        y_rows: u32,
        // Threads of a group, as a power of two (`gemv.cu`, `gemv.metal`); a block's outputs by 16
        // (`gemm_int8.cu`); or the warps that share columns there (`gemm_int8_tile.cu`).
        cut: u32,
        // Pairs of experts that share a row of X.
        pairs_per_row: u32,
        epilogue: EpilogueParams,
        // A RowSelection, and whether biases are bound, because Metal does not guarantee that an unbound argument
        // is null.
        which: u32,
        biased: u32,
        // Where the outputs of a second and a third weight begin, or the end: Metal does not join weights in
        // memory.
        second: u32,
        third: u32,
        padding: u32,
    }
}

impl ProductParams {
    /// The parameters of a product; `cut` as the kernel means it.
    pub fn new(product: &Product, cut: u32) -> Result<Self> {
        let Product { op, parts, x, rows, biases: [bias, _], epilogue, y, act, .. } = *product;
        let (w, (ids_stride, pairs_per_row)) = (product.weight(), rows.strides());
        let end = |count| word(op, "outputs", parts.iter().take(count).map(|part| part.rows).sum());
        Ok(Self {
            row_bytes: w.row_bytes as u64,
            matrix_bytes: w.matrix_bytes() as u64,
            y_stride: if act.is_some() { 0 } else { y.layout().stride() as u64 },
            ids_stride: ids_stride as u64,
            bias_stride: bias.map_or(0, |bias| bias.matrix) as u64,
            outputs: end(parts.len())?,
            blocks: word(op, "blocks in a row", w.blocks())?,
            x_rows: word(op, "rows of X", x.rows())?,
            y_rows: word(op, "rows of Y", y.rows())?,
            cut,
            pairs_per_row: word(op, "pairs of a row", pairs_per_row)?,
            epilogue: epilogue.into(),
            which: match rows {
                RowSelection::All => 0,
                RowSelection::Ids(_) => 1,
                RowSelection::Pairs { .. } => 2,
            },
            biased: bias.is_some().into(),
            second: end(1)?,
            third: end(2)?,
            padding: 0,
        })
    }
}
