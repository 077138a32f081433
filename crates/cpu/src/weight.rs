//! Weights: tiles of 16 rows for products, and embedding tables in the file's layout.

use super::cpu::Cpu;
use super::host;
use super::layout::{self, Tiles, fill_group};
use super::offload::streamed::Streamed;
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::{BlockFormat, with_format};
use gristmill_kernels::ops::{Embed, Operation};
use gristmill_kernels::storage::Storage;
use gristmill_kernels::weight::{Footprint, Prepared, Role, TensorShape, TensorView, Weight};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug)]
pub(super) struct CpuWeight {
    /// A table of rows that are looked up by id, in the file's layout and mapped memory.
    pub(super) table: Option<TensorView>,
    pub(super) matrices: Matrices,
}

/// The tiles of a weight for products, one set per tensor.
#[derive(Debug)]
pub(super) enum Matrices {
    InMemory(Vec<Tiles>),
    /// Experts that are read from a file when they are chosen.
    Streamed(Arc<Streamed>),
}

/// Bytes that a tensor needs; see [`gristmill_kernels::Backend::footprint`].
pub(super) fn footprint(shape: &TensorShape, role: Role) -> Footprint {
    let tiles = layout::bytes(shape);
    let file = shape.file_bytes();
    match role {
        Role::Table => Footprint { owned: 0, mapped: file },
        Role::Tied => Footprint { owned: tiles, mapped: file },
        Role::Matrix | Role::GateUp | Role::Up => Footprint { owned: tiles, mapped: 0 },
    }
}

pub(super) fn matrices<'a>(op: &'static str, weight: &'a Weight) -> Result<&'a Matrices> {
    weight.storage::<CpuWeight>(op).map(|weight| &weight.matrices)
}

/// The tiles of a weight matrix in memory, one set per tensor.
pub(super) fn tiles<'a>(op: &'static str, weight: &'a Weight) -> Result<&'a [Tiles]> {
    match matrices(op, weight)? {
        Matrices::InMemory(tiles) => Ok(tiles),
        Matrices::Streamed(_) => {
            let found = "a weight whose experts are in a file".to_owned();
            Err(Error::Range { op, what: "weight", found, rule: "only products of experts read it" })
        }
    }
}

/// The shapes of a weight's tensors.
pub(super) fn shapes(op: &'static str, weight: &Weight) -> Result<Vec<TensorShape>> {
    Ok(match matrices(op, weight)? {
        Matrices::InMemory(tiles) => tiles.iter().map(Tiles::shape).collect(),
        Matrices::Streamed(streamed) => streamed.shapes().collect(),
    })
}

/// Gate and up of a weight's tensors or shapes; without a gate up in both places.
pub(super) fn gate_and_up<'a, T>(op: &'static str, tensors: &'a [T]) -> Result<[&'a T; 2]> {
    match tensors {
        [gate, up] => Ok([gate, up]),
        [up] => Ok([up, up]),
        tensors => Err(Error::Shape { op, what: "tensors of the weight", found: tensors.len(), expected: 2 }),
    }
}

on_cpu! { decode_rows(Embed): rows, out; }

impl Cpu {
    /// See [`gristmill_kernels::Backend::prepare`].
    pub(super) fn prepare_weight(&self, tensors: &[TensorView], role: Role) -> Result<Prepared> {
        let table = if matches!(role, Role::Table | Role::Tied) { tensors.first().cloned() } else { None };
        let multiplied = if role == Role::Table { &[] } else { tensors };
        let tiles: Vec<Tiles> = multiplied.iter().map(|t| self.tiles(t)).collect::<Result<_>>()?;
        let owned_bytes = tiles.iter().map(Tiles::bytes).sum();
        let matrices = Matrices::InMemory(tiles);
        Ok(self.prepared(CpuWeight { table, matrices }, owned_bytes))
    }

    pub(super) fn prepared(&self, weight: CpuWeight, owned_bytes: usize) -> Prepared {
        self.prepared_bytes.fetch_add(owned_bytes as u64, Ordering::Relaxed);
        Prepared { storage: Storage::new(weight), owned_bytes }
    }

    /// A tensor in tiles. The tensor must have passed [`TensorView::check`].
    fn tiles(&self, tensor: &TensorView) -> Result<Tiles> {
        let shape = tensor.shape();
        let mut tiles = Tiles::zeroed(&shape)?;
        let group_bytes = tiles.group_bytes();
        let rows = tensor.bytes.as_slice();
        self.pool.each_chunk(tiles.bytes_mut(), group_bytes, &|i, group| fill_group(&shape, i, rows, group));
        Ok(tiles)
    }

    /// Decodes rows of a table.
    pub(super) fn decode_rows(&self, call: Embed) -> Result<()> {
        let Embed { table, rows, scale, mut out } = call;
        let foreign = Error::ForeignLayout { op: Embed::NAME, what: "a weight" };
        let tensor = table.storage::<CpuWeight>(Embed::NAME)?.table.as_ref().ok_or(foreign)?;
        let ids = host::rows(Embed::NAME, rows)?;
        let out = host::rows_mut(Embed::NAME, &mut out)?;
        let format = tensor.format;
        let bytes = tensor.bytes.as_slice();
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
