//! The memory that a kernel may access: its arguments, and the history of their bytes.

use super::history::Cell;
use super::who::{Wrong, no_memory};
use crate::fault::Kind;
use crate::launch::Access;
use memmap2::{MmapMut, MmapOptions};

/// Whether a kernel may write.
fn writes(access: Access) -> bool {
    access != Access::Read
}

/// A buffer among the arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// Number of the argument, from 0.
    pub(crate) argument: usize,
    pub(crate) begin: usize,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    /// Whether no earlier launch in flight writes it.
    pub(crate) settled: bool,
}

impl Buffer {
    fn holds(&self, at: usize, bytes: usize) -> bool {
        self.begin <= at && at + bytes <= self.begin + self.bytes
    }
}

/// A cell for each byte of a range of memory; untouched cells take no memory.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    map: Option<MmapMut>,
}

impl Shadow {
    /// The cells of `bytes` bytes from `at`, in memory of `all` bytes.
    pub(super) fn cells(&mut self, all: usize, at: usize, bytes: usize) -> Result<&mut [Cell], std::io::Error> {
        if self.map.is_none() {
            self.map = Some(MmapOptions::new().len(all * size_of::<Cell>()).no_reserve_swap().map_anon()?);
        }
        let map = self.map.as_mut().expect("it was just made");
        let cells = &mut map[at * size_of::<Cell>()..(at + bytes) * size_of::<Cell>()];
        // SAFETY: a map begins at a page and is zero, which is an untouched cell; any bits are a valid cell.
        let (before, cells, after) = unsafe { cells.align_to_mut::<Cell>() };
        debug_assert!(before.is_empty() && after.is_empty());
        Ok(cells)
    }
}

/// Buffers that overlap, as one range of memory.
#[derive(Debug)]
struct Extent {
    begin: usize,
    end: usize,
    buffers: Vec<Buffer>,
    /// Whether all are read-only, so that no history is needed.
    constant: bool,
    shadow: Shadow,
}

/// The arguments of a launch, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Extents {
    extents: Vec<Extent>,
    /// The argument of the last access, which is often that of the next.
    last: usize,
}

/// Memory of an argument.
pub(super) struct Found<'a> {
    /// `None` if it cannot be written.
    pub(super) cells: Option<&'a mut [Cell]>,
    /// Whether it is declared write-only.
    pub(super) fresh: bool,
    /// Whether no earlier launch in flight writes it.
    pub(super) settled: bool,
    pub(super) argument: usize,
}

impl Extents {
    pub(super) fn new(buffers: &[Buffer]) -> Result<Self, std::io::Error> {
        let mut sorted: Vec<Buffer> = buffers.iter().copied().filter(|buffer| buffer.bytes > 0).collect();
        sorted.sort_by_key(|buffer| buffer.begin);
        let mut extents: Vec<Extent> = Vec::new();
        for buffer in sorted {
            let (begin, end) = (buffer.begin, buffer.begin + buffer.bytes);
            match extents.last_mut() {
                Some(last) if begin < last.end => {
                    last.end = last.end.max(end);
                    last.buffers.push(buffer);
                    last.constant &= !writes(buffer.access);
                }
                _ => {
                    let constant = !writes(buffer.access);
                    extents.push(Extent { begin, end, buffers: vec![buffer], constant, shadow: Shadow::default() });
                }
            }
        }
        Ok(Self { extents, last: 0 })
    }

    /// The argument that contains some bytes, if this kind of access is allowed.
    pub(super) fn find(&mut self, at: usize, bytes: usize, write: bool) -> Result<Found<'_>, Wrong> {
        let holds = |extent: &Extent| extent.begin <= at && at + bytes <= extent.end;
        if !self.extents.get(self.last).is_some_and(holds) {
            let Some(found) = self.extents.iter().position(holds) else { return Err(self.outside(at, bytes, write)) };
            self.last = found;
        }
        let holding = || self.extents[self.last].buffers.iter().filter(|buffer| buffer.holds(at, bytes));
        let Some(first) = holding().next() else { return Err(self.outside(at, bytes, write)) };
        if write && !holding().any(|buffer| writes(buffer.access)) {
            let what = format!("writes argument {}, which is declared as read", first.argument);
            return Err(Wrong { kind: Kind::Undeclared, what, earlier: None });
        }
        let fresh = holding().all(|buffer| buffer.access == Access::Write);
        let settled = holding().all(|buffer| buffer.settled);
        let argument = first.argument;
        let extent = &mut self.extents[self.last];
        let cells = match extent.constant {
            true => None,
            false => {
                let all = extent.end - extent.begin;
                Some(extent.shadow.cells(all, at - extent.begin, bytes).map_err(no_memory)?)
            }
        };
        Ok(Found { cells, fresh, settled, argument })
    }

    /// Describes an access out of bounds, by the nearest argument.
    fn outside(&self, at: usize, bytes: usize, write: bool) -> Wrong {
        let does = if write { "writes" } else { "reads" };
        let distance = |buffer: &&Buffer| {
            let end = buffer.begin + buffer.bytes;
            if at < buffer.begin { buffer.begin - at } else { (at + bytes).saturating_sub(end) }
        };
        let nearest = self.extents.iter().flat_map(|extent| &extent.buffers).min_by_key(distance);
        let what = match nearest {
            _ if at < 4_096 => format!("{does} {bytes} bytes at a null pointer"),
            Some(buffer) if distance(&buffer) < 1 << 30 => {
                let offset = at as i128 - buffer.begin as i128;
                let (argument, size) = (buffer.argument, buffer.bytes);
                format!("{does} {bytes} bytes at byte {offset} of argument {argument}, which has {size} bytes")
            }
            _ => format!("{does} {bytes} bytes that belong to no argument"),
        };
        Wrong { kind: Kind::OutOfBounds, what, earlier: None }
    }
}
