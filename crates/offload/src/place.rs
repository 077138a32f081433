//! Brings experts from the host's layout into slots: the host side of `kernels/slots.gpu`.

use gristmill_gpu::layout::{self, PlaneRows};
use gristmill_gpu::product::word;
use gristmill_gpu::{Access, Arg, Gpu, Kernel, Launch, Region, Unit, shared_struct};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::{Experts, Operation};
use gristmill_kernels::tensor::Buffer;
use std::ops::Range;
use std::sync::Arc;

const OP: &str = Experts::NAME;
const FILE: &str = "slots.gpu";
/// Planes of a format at most.
const PLANES: usize = 8;
/// Rows of a tile of the host.
const TILE_ROWS: usize = 16;
/// Blocks and threads for each matrix.
const BLOCKS: u32 = 128;
const THREADS: u32 = 256;
/// Alignment of what is staged.
const ALIGNMENT: usize = 256;
/// No expert.
pub(super) const PADDING: u32 = u32::MAX;

shared_struct! {
    /// A plane of a format: where it is in tiles of 16 rows, and where in rows of planes.
    #[derive(Debug)]
    pub(crate) struct SlotPlane {
        // First byte in a tile; first byte in a row, and bytes from a block to the next there.
        from: u32,
        to: u32,
        stride: u32,
        // Units of a block, and bytes of a unit: 1, 2 or 4.
        units: u32,
        unit: u32,
    }
}

shared_struct! {
    /// A matrix in tiles.
    #[derive(Debug)]
    pub(crate) struct SlotMatrix {
        // First bytes of the tiles and of the bias in the staged expert.
        tiles: u64,
        bias: u64,
        rows: u32,
        blocks: u32,
        tile_bytes: u32,
        row_bytes: u32,
        planes: u32,
        padding: u32,
        plane: [SlotPlane; PLANES],
    }
}

shared_struct! {
    pub(crate) struct PlaceParams {
        // Bytes from one staged expert to the next.
        staged_bytes: u64,
        // For the table: the expert, its slot, and the expert that the slot had, or PADDING.
        expert: u32,
        slot: u32,
        evicted: u32,
        padding: u32,
    }
}

/// The unit of the kernel.
pub(crate) fn unit() -> Unit {
    Unit::new(FILE, &[])
}

/// How the parts of an expert are staged, in bytes: the tiles of gate, up and down, or of up and down, and their biases.
#[derive(Debug)]
pub(super) struct Staged {
    /// A [`SlotMatrix`] for each part.
    matrices: Region,
    /// Where the tiles start, and their bytes.
    pub(super) tiles: Vec<(usize, usize)>,
    /// Where the biases start; each has the matrix's rows.
    pub(super) biases: Vec<usize>,
    /// In all.
    pub(super) bytes: usize,
}

impl Staged {
    /// For slots with these parts.
    pub(super) fn new(gpu: &Arc<dyn Gpu>, parts: &[&PlaneRows]) -> Result<Self> {
        let (mut matrices, mut tiles, mut biases) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0;
        for part in parts {
            let tile_bytes = TILE_ROWS * part.format.block_bytes();
            let bytes = part.rows.div_ceil(TILE_ROWS) * part.blocks() * tile_bytes;
            let bias = (end + bytes).next_multiple_of(ALIGNMENT);
            tiles.push((end, bytes));
            biases.push(bias);
            // One kernel counts units by 32 bits.
            word(OP, "bytes of an expert's matrix", part.matrix_bytes())?;
            let (planes, plane) = planes(part.format, part.cols)?;
            matrices.push(SlotMatrix {
                tiles: end as u64,
                bias: bias as u64,
                rows: part.rows as u32,
                blocks: part.blocks() as u32,
                tile_bytes: tile_bytes as u32,
                row_bytes: part.row_bytes as u32,
                planes,
                padding: 0,
                plane,
            });
            end = (bias + size_of::<f32>() * part.rows).next_multiple_of(ALIGNMENT);
        }
        let memory = Region::new(gpu, size_of_val(&matrices[..]), "the layout of experts")?;
        memory.write(0, bytemuck::cast_slice(&matrices))?;
        Ok(Self { matrices: memory, tiles, biases, bytes: end })
    }
}

/// The planes of a format in tiles and in rows, and their number.
fn planes(format: Format, cols: usize) -> Result<(u32, [SlotPlane; PLANES])> {
    let mut out = [bytemuck::Zeroable::zeroed(); PLANES];
    let planes = format.planes();
    if planes.len() > PLANES {
        let found = planes.len().to_string();
        let rule = "must be at most 8 for experts in slots";
        return Err(Error::Range { op: OP, what: "planes of a format", found, rule });
    }
    let mut before = 0;
    for (out, plane) in out.iter_mut().zip(planes) {
        let (to, stride) = layout::position(format, cols, plane.start);
        let [from, to, stride] = [TILE_ROWS * before, to, stride].map(|n| n as u32);
        *out = SlotPlane { from, to, stride, units: (plane.bytes / plane.unit) as u32, unit: plane.unit as u32 };
        before += plane.bytes;
    }
    Ok((planes.len() as u32, out))
}

/// Experts that have arrived, one after the other in memory, and the slots that they get.
pub(super) struct Placement<'a> {
    pub(super) staged: &'a Staged,
    /// Staging memory, and the first expert's first byte in it.
    pub(super) memory: (&'a Region, usize),
    pub(super) parts: Vec<&'a PlaneRows>,
    /// Biases of the slots, one for each part.
    pub(super) biases: Vec<Option<&'a Region>>,
    /// A slot for each expert.
    pub(super) slots: Range<usize>,
    /// The entry of the only expert in the table of a layer's slots.
    pub(super) entry: Option<TableEntry<'a>>,
}

/// A change of a layer's table.
pub(super) struct TableEntry<'a> {
    /// Slots of the layer's experts.
    pub(super) table: &'a Region,
    pub(super) expert: usize,
    /// The expert that the slot had.
    pub(super) evicted: usize,
}

impl Placement<'_> {
    /// Launches the kernel. It starts after all submitted work, and later work starts after it.
    pub(super) fn launch(&self, gpu: &Arc<dyn Gpu>) -> Result<()> {
        let Self { staged, memory, parts, biases, slots, entry } = self;
        let [expert, evicted] =
            entry.as_ref().map_or([PADDING; 2], |entry| [entry.expert as u32, entry.evicted as u32]);
        let (staged_bytes, slot) = (staged.bytes as u64, slots.start as u32);
        let params = PlaceParams { staged_bytes, expert, slot, evicted, padding: 0 };
        let matrix = |i: usize| parts.get(i).map_or(Arg::Null, |part| part.matrices_arg(slots.clone(), Access::Write));
        let bias = |i: usize| {
            let (Some(part), Some(&Some(region))) = (parts.get(i), biases.get(i)) else { return Arg::Null };
            let row_bytes = size_of::<f32>() * part.rows;
            let (offset, bytes) = (slots.start * row_bytes, slots.len() * row_bytes);
            Arg::Buffer { region, offset, bytes, access: Access::Write }
        };
        let &(region, offset) = memory;
        let memory = Arg::Buffer { region, offset, bytes: slots.len() * staged.bytes, access: Access::Read };
        let table = entry.as_ref().map_or(Arg::Null, |entry| Arg::region(entry.table, Access::Write));
        let matrices = Arg::region(&staged.matrices, Access::Read);
        let params = Arg::params(&params);
        let args = [matrices, memory, matrix(0), matrix(1), matrix(2), bias(0), bias(1), bias(2), table, params];
        let grid = [BLOCKS, parts.len() as u32, word(OP, "experts of a copy", slots.len())?];
        let launch = Launch::new(Kernel::plain(FILE, "place_experts"), grid, THREADS, &args);
        gpu.launch(&Launch { overlap: false, ..launch })
    }
}

shared_struct! {
    pub(crate) struct RingParams {
        // The first expert and the one after the last; pairs in all.
        first: u32,
        end: u32,
        pairs: u32,
        padding: u32,
    }
}

/// The tiles of a range of experts, whose ids become their places in a ring.
pub(super) struct RingTiles<'a> {
    /// Tiles of all experts, and their number.
    pub(super) tiles: &'a Buffer<u32>,
    pub(super) tile_count: &'a Buffer<u32>,
    /// The place of each expert.
    pub(super) places: &'a Region,
    /// The first expert, and the one after the last.
    pub(super) range: [usize; 2],
}

impl RingTiles<'_> {
    /// Launches the kernel. An empty tile after all pairs ends the list, so that no product zeroes the rows of other pairs.
    pub(super) fn launch(
        &self,
        gpu: &Arc<dyn Gpu>,
        pairs: usize,
        [tiles, tile_count]: [&Buffer<u32>; 2],
    ) -> Result<()> {
        let [first, end] = self.range.map(|expert| expert as u32);
        let params = RingParams { first, end, pairs: word(OP, "pairs", pairs)?, padding: 0 };
        let read = |list| Arg::buffer(list, Access::Read);
        let write = |list| Arg::buffer(list, Access::Write);
        let places = Arg::region(self.places, Access::Read);
        let args =
            [read(self.tiles), read(self.tile_count), places, write(tiles), write(tile_count), Arg::params(&params)];
        let launch = Launch::new(Kernel::plain(FILE, "ring_tiles"), [1, 1, 1], THREADS, &args);
        gpu.launch(&Launch { overlap: false, ..launch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole units are aligned in tiles and rows, and every byte of a block has a place of its own.
    #[test]
    fn planes_of_all_formats_are_placed() {
        for &format in Format::ALL {
            for blocks in [1, 3, 16] {
                let (count, planes) = planes(format, blocks * format.block_len()).unwrap();
                let mut seen = vec![false; 2 * blocks * format.block_bytes() + 256];
                for plane in &planes[..count as usize] {
                    assert_eq!([plane.from % plane.unit, plane.to % plane.unit, plane.stride % plane.unit], [0; 3]);
                    for block in 0..blocks as u32 {
                        for byte in 0..plane.units * plane.unit {
                            let at = (plane.to + block * plane.stride + byte) as usize;
                            assert!(!std::mem::replace(&mut seen[at], true), "{format}: byte {at}");
                        }
                    }
                }
                let bytes = seen.iter().filter(|&&seen| seen).count();
                assert_eq!(bytes, blocks * format.block_bytes(), "{format}");
            }
        }
    }
}
