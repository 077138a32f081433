//! Weights: tiles of 16 rows for products, and embedding tables in the file's layout.

use super::Cpu;
use super::host;
use super::layout::{self, ROWS, Tiles, fill_group};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::{BlockFormat, with_format};
use gristmill_kernels::ops::{Embed, Operation};
use gristmill_kernels::storage::Storage;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView, Weight};

#[derive(Debug)]
struct CpuWeight {
    /// A table of rows that are looked up by id, in the file's layout and mapped memory.
    table: Option<TensorView>,
    /// Tiles for products, one set per tensor.
    tiles: Vec<Tiles>,
}

/// Bytes that a tensor needs; see [`gristmill_kernels::Backend::footprint`].
pub(super) fn footprint(shape: &TensorShape, role: Role) -> Footprint {
    let (tiles, file) = (layout::bytes(shape), shape.file_bytes());
    match role {
        Role::Table => Footprint { owned: 0, mapped: file },
        Role::Tied => Footprint { owned: tiles, mapped: file },
        Role::Matrix | Role::GateUp => Footprint { owned: tiles, mapped: 0 },
    }
}

/// The tiles of a weight matrix, one set per tensor.
pub(super) fn tiles<'a>(op: &'static str, weight: &'a Weight) -> Result<&'a [Tiles]> {
    weight.storage::<CpuWeight>(op).map(|weight| &weight.tiles[..])
}

pub(super) fn gate_and_up<'a>(op: &'static str, weight: &'a Weight) -> Result<[&'a Tiles; 2]> {
    match tiles(op, weight)? {
        [gate, up] => Ok([gate, up]),
        tiles => Err(Error::Shape { op, what: "tensors of the weight", found: tiles.len(), expected: 2 }),
    }
}

impl Cpu {
    /// See [`gristmill_kernels::Backend::prepare`].
    pub(super) fn prepare_weight(&self, tensors: &[TensorView], role: Role) -> Result<Prepared> {
        let table = if matches!(role, Role::Table | Role::Tied) { tensors.first().cloned() } else { None };
        let multiplied = if role == Role::Table { &[] } else { tensors };
        let tiles: Vec<Tiles> = multiplied.iter().map(|t| self.tiles(t)).collect::<Result<_>>()?;
        let owned_bytes = tiles.iter().map(Tiles::bytes).sum();
        Ok(Prepared { storage: Storage::new(CpuWeight { table, tiles }), owned_bytes })
    }

    /// A tensor in tiles. The tensor must have passed [`TensorView::check`].
    fn tiles(&self, tensor: &TensorView) -> Result<Tiles> {
        let mut tiles = Tiles::zeroed(tensor)?;
        let (format, cols, rows) = (tiles.format, tiles.cols, tiles.rows);
        let (groups, group_bytes) = (tiles.groups(), tiles.group_bytes());
        let row_bytes = group_bytes / ROWS;
        let from = tensor.bytes.as_slice();
        self.pool.each_chunk(tiles.bytes_mut(), group_bytes, &|i, group| {
            let (expert, first) = (i / groups, i % groups * ROWS);
            let count = ROWS.min(rows - first);
            fill_group(format, cols, &from[(expert * rows + first) * row_bytes..][..count * row_bytes], group);
        });
        Ok(tiles)
    }

    /// Decodes rows of a table.
    pub(super) fn decode_rows(&self, call: Embed) -> Result<()> {
        let Embed { table, rows, scale, mut out } = call;
        let foreign = Error::ForeignLayout { op: Embed::NAME, what: "a weight" };
        let tensor = table.storage::<CpuWeight>(Embed::NAME)?.table.as_ref().ok_or(foreign)?;
        let ids = host::rows(Embed::NAME, rows)?;
        let out = host::rows_mut(Embed::NAME, &mut out)?;
        let (format, bytes) = (tensor.format, tensor.bytes.as_slice());
        let row_bytes = format.row_bytes(tensor.cols).unwrap_or(0);
        self.each_row(out, tensor.cols, &|i, out| {
            let row = &bytes[ids.row(i)[0] as usize * row_bytes..][..row_bytes];
            with_format!(format, F => decode_row::<F>(row, out));
            if scale != 1.0 {
                out.iter_mut().for_each(|x| *x *= scale);
            }
        });
        Ok(())
    }
}

fn decode_row<F: BlockFormat>(row: &[u8], out: &mut [f32]) {
    for (block, values) in row.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
        F::decode(block, values);
    }
}
