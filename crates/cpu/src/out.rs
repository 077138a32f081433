//! Outputs that several threads write: rows, tiles, or chunks of a slice. The types make them disjoint, so callers need
//! no `unsafe`.

#![allow(unsafe_code)]

use super::cuts::Cuts;
use super::pool::{ChunkOrder, Pool};
use gristmill_kernels::ops::Run;
use gristmill_kernels::tensor::ViewMut;
use std::marker::PhantomData;
use std::ops::Range;

/// A slice that threads write in disjoint ranges.
struct SharedSlice<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: `range` asks its callers for disjoint ranges, so this is a slice that is split among threads.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// A range of the slice. Panics if the range is out of bounds.
    ///
    /// # Safety
    /// While the result lives, no other code may access an overlapping range.
    unsafe fn range(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "range {range:?} of {}", self.len);
        // SAFETY: inside the slice by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Rows of a matrix in host memory.
pub(crate) struct OutRows<'a, T> {
    memory: SharedSlice<'a, T>,
    offset: usize,
    rows: usize,
    cols: usize,
    /// Elements from the start of a row to the start of the next, at least `cols` if there are several rows.
    stride: usize,
}

impl<'a, T: Copy> OutRows<'a, T> {
    /// The rows of a view, if it is in host memory.
    pub(crate) fn new(view: &'a mut ViewMut<'_, T>) -> Option<Self> {
        let (slice, layout) = view.as_host_mut()?;
        let (rows, cols, stride) = (layout.rows(), layout.cols(), layout.stride());
        let offset = if rows == 0 { 0 } else { layout.row(0).start };
        Some(Self { memory: SharedSlice::new(slice), offset, rows, cols, stride })
    }

    /// Contiguous rows of `cols` elements.
    pub(crate) fn contiguous(slice: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self { memory: SharedSlice::new(slice), offset: 0, rows, cols, stride: cols }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// # Safety
    /// While the result lives, no other code may access overlapping columns of this row.
    unsafe fn columns(&self, row: usize, columns: Range<usize>) -> &'a mut [T] {
        assert!(row < self.rows && columns.end <= self.cols, "row {row}, columns {columns:?}");
        let start = self.offset + row * self.stride;
        // SAFETY: rows do not overlap, as the stride says; within a row, the caller's promise.
        unsafe { self.memory.range(start + columns.start..start + columns.end) }
    }
}

/// Outputs that are written row by row: one matrix, or several with the same number of rows.
pub(crate) trait EachRow: Sync {
    /// One row of each output.
    type Row;
    /// Number of rows.
    fn count(&self) -> usize;
    /// # Safety
    /// Each row may be taken once.
    unsafe fn row(&self, row: usize) -> Self::Row;
}

impl<'a, T: Copy + Send> EachRow for OutRows<'a, T> {
    type Row = &'a mut [T];

    fn count(&self) -> usize {
        self.rows
    }

    unsafe fn row(&self, row: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { self.columns(row, 0..self.cols) }
    }
}

impl<A: EachRow, B: EachRow> EachRow for (A, B) {
    type Row = (A::Row, B::Row);

    fn count(&self) -> usize {
        self.0.count()
    }

    unsafe fn row(&self, row: usize) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { (self.0.row(row), self.1.row(row)) }
    }
}

/// Which output rows a tile covers.
enum TileRows<'a> {
    /// Consecutive rows.
    Range(Range<usize>),
    /// Rows by index.
    List(&'a [u32]),
}

/// A rectangle of an output that one chunk owns.
pub(crate) struct Tile<'a, T> {
    out: &'a OutRows<'a, T>,
    rows: TileRows<'a>,
    cols: Range<usize>,
}

impl<T: Copy> Tile<'_, T> {
    /// Some columns of the tile's row `row`; the column indices are those of the output.
    pub(crate) fn columns(&mut self, row: usize, columns: Range<usize>) -> &mut [T] {
        assert!(self.cols.start <= columns.start && columns.end <= self.cols.end, "{columns:?} of {:?}", self.cols);
        let row = match &self.rows {
            TileRows::Range(rows) => {
                assert!(row < rows.len(), "row {row} of {rows:?}");
                rows.start + row
            }
            TileRows::List(rows) => rows[row] as usize,
        };
        // SAFETY: the tile's columns of its rows are this tile's alone (`each_tile`, `each_scattered`), and `self` is
        // borrowed while the result lives.
        unsafe { self.out.columns(row, columns) }
    }
}

/// A run's rows and slots in one of several equal ranges of columns.
pub(crate) struct RunColumns<'a> {
    /// Index of the range of columns.
    pub(crate) index: usize,
    /// Columns of the slot that the run reads.
    pub(crate) before: Option<&'a [f32]>,
    /// Columns of the slot that the run writes.
    pub(crate) after: &'a mut [f32],
    /// Columns of the run's rows.
    pub(crate) out: RunRows<'a>,
}

/// Some columns of adjacent rows.
pub(crate) struct RunRows<'a> {
    out: &'a OutRows<'a, f32>,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl RunRows<'_> {
    /// The columns of row `row`.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows.len(), "row {row} of {:?}", self.rows);
        // SAFETY: the columns of these rows are this unit's alone (`each_unit`), and `self` is borrowed while the
        // result lives.
        unsafe { self.out.columns(self.rows.start + row, self.cols.clone()) }
    }
}

/// The loop order over a grid's chunks: which index is innermost.
#[derive(Clone, Copy)]
pub(crate) enum Fastest {
    Rows,
    Columns,
}

impl Pool {
    /// Calls `work` with the index of every row and the row; a chunk has `per_chunk` rows.
    pub(crate) fn each_row<R: EachRow>(&self, per_chunk: usize, rows: R, work: &(dyn Fn(usize, R::Row) + Sync)) {
        let cuts = Cuts::even(rows.count(), per_chunk);
        self.run(cuts.len(), &|chunk| {
            // SAFETY: a row is in one chunk, and `rows` is given up here.
            cuts.get(chunk).1.for_each(|row| work(row, unsafe { rows.row(row) }));
        });
    }

    /// Calls `work` with the index of every chunk of a slice and the chunk: `len` elements each; the last chunk may be
    /// shorter. Chunks start in ascending order: those of weights read a mapped file, whose read-ahead needs that.
    pub fn each_chunk<T: Copy + Send>(&self, slice: &mut [T], len: usize, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let cuts = Cuts::even(slice.len(), len);
        let shared = SharedSlice::new(slice);
        let work = |chunk: usize| {
            // SAFETY: the chunks do not overlap.
            work(chunk, unsafe { shared.range(cuts.get(chunk).1) });
        };
        self.run_ordered(ChunkOrder::Ascending, cuts.len(), &work);
    }

    /// Calls `work` for every run and every one of `units` equal column ranges of `out` and of `state`. `state` has one
    /// row per slot.
    ///
    /// # Panics
    /// If two runs share rows, or if a run shares the slot that another run writes.
    pub(crate) fn each_unit(
        &self,
        runs: &[Run],
        state: &OutRows<f32>,
        out: &OutRows<f32>,
        units: usize,
        work: &(dyn Fn(Run, RunColumns) + Sync),
    ) {
        for (index, run) in runs.iter().enumerate() {
            let apart = |other: &Run| run.first >= other.first + other.rows && run.written != other.written;
            let shared = !runs[..index].iter().all(apart) || runs.iter().any(|other| other.read == Some(run.written));
            assert!(!shared, "run {index} of {runs:?} shares what it writes");
        }
        let range = |columns: usize, index: usize| columns / units * index..columns / units * (index + 1);
        self.run(runs.len() * units, &|i| {
            let run = runs[i / units];
            let index = i % units;
            let columns = range(state.cols, index);
            // SAFETY: no run writes a slot that one reads, as asserted above.
            let before = run.read.map(|slot| &*unsafe { state.columns(slot, columns.clone()) });
            // SAFETY: this run alone writes the slot, and no other unit has these columns.
            let after = unsafe { state.columns(run.written, columns) };
            let out = RunRows { out, rows: run.first..run.first + run.rows, cols: range(out.cols, index) };
            work(run, RunColumns { index, before, after, out });
        });
    }

    /// Calls `work` with the indices of each range of rows and each range of columns, and their tile of the output.
    pub(crate) fn each_tile<T: Copy + Send>(
        &self,
        out: &OutRows<T>,
        rows: &Cuts,
        cols: &Cuts,
        fastest: Fastest,
        work: &(dyn Fn(usize, usize, Tile<T>) + Sync),
    ) {
        self.run(rows.len() * cols.len(), &|i| {
            let (row, col) = match fastest {
                Fastest::Rows => (i % rows.len(), i / rows.len()),
                Fastest::Columns => (i / cols.len(), i % cols.len()),
            };
            work(row, col, Tile { out, rows: TileRows::Range(rows.get(row).1), cols: cols.get(col).1 });
        });
    }

    /// Calls `work` with the index of each list of rows and each range of columns, and their tile of the output;
    /// columns are innermost. Rows that are in no list are filled with zeros.
    ///
    /// # Panics
    /// If a row is in two lists, or twice in one.
    pub(crate) fn each_scattered(
        &self,
        out: &OutRows<f32>,
        lists: &[&[u32]],
        cols: &Cuts,
        order: ChunkOrder,
        work: &(dyn Fn(usize, usize, Tile<f32>) + Sync),
    ) {
        let mut listed = vec![false; out.rows];
        for &row in lists.iter().copied().flatten() {
            assert!(!std::mem::replace(&mut listed[row as usize], true), "row {row} is in two tiles");
        }
        self.run_ordered(order, lists.len() * cols.len(), &|i| {
            let list = i / cols.len();
            let col = i % cols.len();
            work(list, col, Tile { out, rows: TileRows::List(lists[list]), cols: cols.get(col).1 });
        });
        for row in (0..out.rows).filter(|&row| !listed[row]) {
            // SAFETY: the job has ended, so no thread has columns of the output.
            unsafe { out.columns(row, 0..out.cols) }.fill(0.0);
        }
    }
}
