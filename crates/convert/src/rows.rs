//! Rows of a tensor to be written, gathered from where they are in the checkpoint.

use std::array;
use std::ops::Range;

use gristmill_files::safetensors::Tensor;
use gristmill_kernels::format::Format;

use super::checkpoint::Checkpoint;
use super::floats::{BlockScaled, FloatCodes};
use super::mlx::Affine;
use super::packed::Integers;
use super::times::Times;

/// A matrix of the checkpoint, or a stack of them.
#[derive(Clone)]
pub(super) enum Stored {
    /// Row after row.
    Rows(Tensor),
    /// Column after column: `inputs × outputs` where a matrix is `outputs × inputs`.
    Columns { tensor: Tensor, inputs: usize, outputs: usize },
    /// Row after row in MXFP4, of each group of 32 elements 16 bytes of codes in one tensor, and the scale in another.
    Mxfp4 { blocks: Tensor, scales: Tensor },
    /// Row after row in affine codes.
    Affine(Box<Affine>),
    /// Row after row in codes that are floats.
    Floats(Box<FloatCodes>),
    /// Row after row in FP8.
    Blocks(Box<BlockScaled>),
    /// Codes of GPTQ, AWQ or compressed-tensors.
    Integers(Box<Integers>),
    /// Floats, each row times a factor.
    Times(Box<Times>),
}

/// Which rows of a tensor are written.
#[derive(Clone, Copy)]
pub(super) struct RowPlan {
    pub(super) count: usize,
    /// Elements of one.
    pub(super) columns: usize,
    pub(super) order: RowOrder,
}

/// The order in which rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    Same,
    /// See [`How::PairRows`](super::family::How::PairRows); a head has this many rows, an even number.
    Pairs {
        head: usize,
    },
    /// See [`How::HalfRows`](super::family::How::HalfRows); of the rows of a head, the first `rotated` are pairs.
    Halves {
        head: usize,
        rotated: usize,
    },
    /// The first (0) or the second (1) of two matrices with this many rows each, one after the other.
    Half {
        rows: usize,
        which: usize,
    },
    /// The first (0) or the second (1) of two matrices whose rows alternate.
    Interleaved {
        which: usize,
    },
    /// Behind the first rows, heads of `width` rows each, again and again all of them: there those that share a key
    /// head are neighbours, here they are `keys` heads apart.
    Tiled {
        first: usize,
        keys: usize,
        shared: usize,
        width: usize,
    },
    /// Columns of the first `height` of every `head` rows, each `width` long.
    Columns {
        head: usize,
        height: usize,
        width: usize,
    },
    /// Parts of every group of `group` rows, each its first row and its rows: of all groups the first part, then of all
    /// the next.
    Parts {
        groups: usize,
        group: usize,
        parts: [(usize, usize); 3],
    },
    /// Of every group of `group` rows, `width` from row `first` on; those of heads of `pairs` rows are in the order of
    /// [`RowOrder::Pairs`].
    Group {
        group: usize,
        first: usize,
        width: usize,
        pairs: Option<usize>,
    },
}

impl RowOrder {
    /// The row of the checkpoint that is written as row `row`.
    pub(super) fn source(self, row: usize) -> usize {
        match self {
            RowOrder::Same => row,
            RowOrder::Pairs { head } => {
                let (start, within) = (row / head * head, row % head);
                start + within % 2 * (head / 2) + within / 2
            }
            RowOrder::Halves { head, rotated } => {
                let (start, within) = (row / head * head, row % head);
                let pairs = rotated / 2;
                let is_second = within >= pairs;
                let of_pair = 2 * (within - pairs * usize::from(is_second)) + usize::from(is_second);
                start + if within < rotated { of_pair } else { within }
            }
            RowOrder::Half { rows, which } => (row / rows * 2 + which) * rows + row % rows,
            RowOrder::Interleaved { which } => 2 * row + which,
            RowOrder::Tiled { first, keys, shared, width } => match row.checked_sub(first) {
                None => row,
                Some(row) => {
                    let (start, head) = (row / (keys * shared * width) * keys * shared, row / width % (keys * shared));
                    first + (start + head % keys * shared + head / keys) * width + row % width
                }
            },
            RowOrder::Group { group, first, width, pairs } => {
                let row = pairs.map_or(row, |head| RowOrder::Pairs { head }.source(row));
                row / width * group + first + row % width
            }
            // Elements of several rows: see `gather`.
            RowOrder::Columns { head, width, .. } => row / width * head,
            RowOrder::Parts { groups, group, parts } => {
                let mut row = row;
                for (start, width) in parts {
                    if row < groups * width {
                        return row / width * group + start + row % width;
                    }
                    row -= groups * width;
                }
                row
            }
        }
    }
}

impl Stored {
    /// The name of the first tensor.
    pub(super) fn name(&self) -> &str {
        match self {
            Stored::Rows(tensor) | Stored::Columns { tensor, .. } | Stored::Mxfp4 { blocks: tensor, .. } => {
                &tensor.name
            }
            Stored::Affine(affine) => &affine.codes.name,
            Stored::Floats(floats) => &floats.codes.name,
            Stored::Blocks(blocks) => &blocks.codes.name,
            Stored::Integers(integers) => &integers.codes.name,
            Stored::Times(times) => times.stored.name(),
        }
    }

    pub(super) fn integers(&self) -> Option<&Integers> {
        match self {
            Stored::Integers(integers) => Some(integers),
            _ => None,
        }
    }

    /// Replaces `out` by some of the rows, in `format`.
    pub(super) fn gather(
        &self,
        checkpoint: &Checkpoint,
        rows: &RowPlan,
        some: Range<usize>,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        if let RowOrder::Columns { head, height, width } = rows.order {
            return self.gather_columns(checkpoint, [head, height, width], some, format, out);
        }
        out.clear();
        let sources = some.clone().map(|row| rows.order.source(row));
        match self {
            Stored::Rows(tensor) => {
                let data = checkpoint.data(tensor);
                let bytes = rows.columns * format.block_bytes();
                sources.for_each(|row| out.extend_from_slice(&data[row * bytes..][..bytes]));
            }
            Stored::Columns { tensor, inputs, outputs } => {
                let data = checkpoint.data(tensor);
                let bytes = format.block_bytes();
                for row in sources {
                    let first = row / outputs * inputs * outputs + row % outputs;
                    let elements = (0..*inputs).map(|input| first + input * outputs);
                    elements.for_each(|at| out.extend_from_slice(&data[at * bytes..][..bytes]));
                }
            }
            Stored::Affine(affine) => {
                let columns = rows.columns;
                sources.for_each(|row| affine.append(checkpoint, row * columns, columns, format, out));
            }
            Stored::Floats(floats) => {
                let columns = rows.columns;
                sources.for_each(|row| floats.append(checkpoint, row * columns, columns, format, out));
            }
            Stored::Blocks(blocks) => {
                let columns = rows.columns;
                sources.for_each(|row| blocks.append(checkpoint, row * columns, columns, format, out));
            }
            Stored::Integers(integers) => {
                let columns = rows.columns;
                sources.for_each(|row| integers.append(checkpoint, row * columns, columns, format, out));
            }
            Stored::Times(times) => times.gather(checkpoint, rows, some, out),
            Stored::Mxfp4 { blocks, scales } => {
                let (codes, scales) = (checkpoint.data(blocks), checkpoint.data(scales));
                let groups = rows.columns / format.block_len();
                for group in sources.flat_map(|row| row * groups..(row + 1) * groups) {
                    out.push(scales[group]);
                    out.extend_from_slice(&mxfp4_codes(&codes[group * 16..][..16]));
                }
            }
        }
    }

    /// The same for [`RowOrder::Columns`], in a format whose blocks are single numbers.
    fn gather_columns(
        &self,
        checkpoint: &Checkpoint,
        [head, height, width]: [usize; 3],
        some: Range<usize>,
        format: Format,
        out: &mut Vec<u8>,
    ) {
        let bytes = format.block_bytes();
        let mut columns = Vec::new();
        let mut of_head = None;
        let mut rows = Vec::new();
        for column in some {
            if of_head != Some(column / width) {
                of_head = Some(column / width);
                let first = column / width * head;
                let plan = RowPlan { count: first + height, columns: width, order: RowOrder::Same };
                self.gather(checkpoint, &plan, first..first + height, format, &mut rows);
            }
            let elements = (0..height).map(|row| row * width + column % width);
            elements.for_each(|at| columns.extend_from_slice(&rows[at * bytes..][..bytes]));
        }
        *out = columns;
    }

    /// Frees the pages of the data, which will not be read again.
    pub(super) fn done(&self, checkpoint: &Checkpoint) {
        match self {
            Stored::Rows(tensor) | Stored::Columns { tensor, .. } => checkpoint.done(tensor),
            Stored::Mxfp4 { blocks, scales } => [blocks, scales].into_iter().for_each(|tensor| checkpoint.done(tensor)),
            Stored::Affine(affine) => {
                [&affine.codes, &affine.scales, &affine.biases].into_iter().for_each(|tensor| checkpoint.done(tensor));
            }
            Stored::Floats(floats) => {
                [&floats.codes, &floats.scales].into_iter().for_each(|tensor| checkpoint.done(tensor));
            }
            Stored::Blocks(blocks) => {
                [&blocks.codes, &blocks.scales].into_iter().for_each(|tensor| checkpoint.done(tensor));
            }
            Stored::Integers(integers) => integers.tensors().for_each(|tensor| checkpoint.done(tensor)),
            Stored::Times(times) => times.stored.done(checkpoint),
        }
    }
}

/// 32 codes of 4 bits. Neighbours share a byte in the checkpoint, the first one its low half; in GGUF the codes `i` and
/// `i + 16` do.
pub(super) fn mxfp4_codes(pairs: &[u8]) -> [u8; 16] {
    let code = |i: usize| pairs[i / 2] >> (i % 2 * 4) & 15;
    array::from_fn(|i| code(i) | code(i + 16) << 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_rows() {
        let rows = |order: RowOrder, count| (0..count).map(|row| order.source(row)).collect::<Vec<_>>();
        assert_eq!(rows(RowOrder::Same, 3), [0, 1, 2]);
        assert_eq!(rows(RowOrder::Pairs { head: 6 }, 12), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert_eq!(rows(RowOrder::Halves { head: 6, rotated: 4 }, 12), [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
        assert_eq!(rows(RowOrder::Half { rows: 2, which: 1 }, 4), [2, 3, 6, 7]);
        assert_eq!(rows(RowOrder::Interleaved { which: 1 }, 3), [1, 3, 5]);
        let tiled = |first, width| RowOrder::Tiled { first, keys: 2, shared: 3, width };
        assert_eq!(rows(tiled(0, 1), 12), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        assert_eq!(rows(tiled(1, 2), 13), [0, 1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12]);
        let columns = RowOrder::Columns { head: 5, height: 3, width: 2 };
        assert_eq!(rows(columns, 4), [0, 0, 5, 5]);
        let parts = RowOrder::Parts { groups: 2, group: 5, parts: [(0, 1), (3, 2), (0, 0)] };
        assert_eq!(rows(parts, 6), [0, 5, 3, 4, 8, 9]);
        let heads = |first, width, pairs| RowOrder::Group { group: 8, first, width, pairs };
        assert_eq!(rows(heads(0, 4, Some(4)), 8), [0, 2, 1, 3, 8, 10, 9, 11]);
        assert_eq!(rows(heads(6, 2, None), 4), [6, 7, 14, 15]);
    }

    #[test]
    fn codes_of_a_block() {
        // Code i is i / 2: both halves of byte j are j.
        let pairs: Vec<u8> = (0..16).map(|j| j << 4 | j).collect();
        let expected: [u8; 16] = array::from_fn(|i| (i as u8 / 2) | (i as u8 / 2 + 8) << 4);
        assert_eq!(mxfp4_codes(&pairs), expected);
        // Low halves 0 to 15, high halves 15 to 0.
        let pairs: Vec<u8> = (0..16).map(|j| j | (15 - j) << 4).collect();
        assert_eq!(mxfp4_codes(&pairs)[..4], [0x80, 0x7f, 0x91, 0x6e]);
    }
}
