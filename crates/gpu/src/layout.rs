//! The layout of prepared weights on a GPU: rows of planes.
//!
//! A row consists of its planes, one after another. A plane has its bytes of all blocks of the row and is padded to 16
//! bytes, so that a thread can read any plane by loads of 16 bytes. Neighbouring planes of a format with 4, 8 or 16
//! bytes together are merged, so that one load reads them. Rows follow each other, experts are outermost. Each format's
//! `blocks.h` reads such rows.
//!
//! # Weights
//!
//! On CUDA, a row consists of its planes one after another. Each plane is aligned to 16 bytes, so a thread loads 16
//! bytes of codes at once. Metal reads the mapped file: a weight is a buffer over the pages of its tensor, one buffer
//! for each tensor. A weight that is not aligned to 16 bytes is copied.

use crate::device::Device;
use crate::device_api::{Access, Arg, Region};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::format::Format;
use gristmill_kernels::ops::elements;
use gristmill_kernels::weight::{TensorShape, TensorView, Weight};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Alignment of planes, which are padded to it and loaded by it.
const ALIGNMENT: usize = 16;
/// Bytes that a thread brings into this layout at once, before they are copied to the device: whole rows, at least one.
pub const PIECE: usize = 1 << 20;
/// The most columns of a span: four pieces, as many as kernels unpack at once.
const SPAN_COLUMNS: usize = 64;

/// Tensors of one format, their outputs side by side.
#[derive(Debug)]
pub struct PlaneRows {
    /// Encoding.
    pub format: Format,
    /// Matrices.
    pub experts: usize,
    /// Outputs of one matrix.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Bytes from a row to the next.
    pub row_bytes: usize,
    /// Spans of a row, see `kernels/weight.h`.
    pub spans: usize,
    memory: Region,
}

impl PlaneRows {
    /// Brings tensors of one format, and of equal `cols` and `experts`, to a device. They must have passed
    /// [`TensorView::check`].
    pub fn new(device: &Device, tensors: &[TensorView]) -> Result<Self> {
        let what = "weights";
        let Some(&TensorView { format, experts, cols, .. }) = tensors.first() else {
            return Err(Error::OutOfMemory { what, bytes: 0 });
        };
        let rows = tensors.iter().map(|t| t.rows).sum();
        let planes = Planes::new(format, cols);
        fits(planes.row_bytes)?;
        let bytes = elements(what, &[experts, rows, planes.row_bytes])?;
        let memory = Region::new(device.gpu(), bytes, what)?;
        let row_bytes = planes.row_bytes;
        let spans = planes.spans();
        let this = Self { format, experts, rows, cols, row_bytes, spans, memory };
        this.fill(&planes, tensors)?;
        Ok(this)
    }

    /// Memory for this number of matrices like these, zeroed.
    pub fn empty(&self, device: &Device, experts: usize) -> Result<Self> {
        let &Self { format, rows, cols, row_bytes, spans, .. } = self;
        let bytes = elements("experts", &[experts, rows, row_bytes])?;
        let memory = Region::zeroed(device.gpu(), bytes, "experts")?;
        Ok(Self { format, experts, rows, cols, row_bytes, spans, memory })
    }

    /// The tensor as it is in the file, without a copy where the device can read the file's map. It must have passed
    /// [`TensorView::check`].
    pub fn of_file(device: &Device, tensor: &TensorView) -> Result<Self> {
        let &TensorView { format, experts, rows, cols, .. } = tensor;
        let row_bytes = format.row_bytes(cols).unwrap_or(0);
        fits(row_bytes)?;
        let memory = Region::of_host(device.gpu(), tensor.bytes.clone(), "weights")?;
        Ok(Self { format, experts, rows, cols, row_bytes, spans: Planes::new(format, cols).spans(), memory })
    }

    /// Bytes that it holds in addition to the file's.
    pub fn bytes(&self) -> usize {
        if self.memory.is_mapped() { 0 } else { self.memory.bytes() }
    }

    /// Frees the memory: see [`Region::free_early`]. Returns the bytes.
    pub fn free_early(&self) -> usize {
        self.memory.free_early()
    }

    /// Whether the memory is freed.
    pub fn is_freed(&self) -> bool {
        self.memory.is_freed.load(Ordering::SeqCst)
    }

    /// Bytes from an expert's matrix to the next.
    pub fn matrix_bytes(&self) -> usize {
        self.rows * self.row_bytes
    }

    /// Blocks in a row.
    pub fn blocks(&self) -> usize {
        self.cols / self.format.block_len()
    }

    /// All rows, to be read.
    pub fn arg(&self) -> Arg<'_> {
        Arg::region(&self.memory, Access::Read)
    }

    /// The matrices of experts.
    pub fn matrices_arg(&self, experts: Range<usize>, access: Access) -> Arg<'_> {
        let bytes = self.matrix_bytes();
        Arg::Buffer { region: &self.memory, offset: experts.start * bytes, bytes: experts.len() * bytes, access }
    }

    /// Brings the rows into this layout, and copies them.
    fn fill(&self, planes: &Planes, tensors: &[TensorView]) -> Result<()> {
        let row = self.row_bytes;
        let make = |start: usize, piece: &mut [u8]| {
            for (i, out) in piece.chunks_exact_mut(row).enumerate() {
                planes.permute(source(tensors, planes.file_bytes, start / row + i), out);
            }
        };
        self.memory.fill((PIECE / row).max(1) * row, &make)
    }
}

/// A weight on a GPU: runs of tensors of one format.
#[derive(Debug)]
pub struct GpuWeight(pub Vec<PlaneRows>);

/// Kernels count the bytes of a row by 32 bits.
fn fits(row_bytes: usize) -> Result<()> {
    let found = row_bytes.to_string();
    let rule = "must be below 2^32 on a GPU";
    let fits = u32::try_from(row_bytes).is_ok();
    if fits { Ok(()) } else { Err(Error::Range { op: "prepare", what: "bytes of a row", found, rule }) }
}

/// The parts of a weight.
pub fn parts<'a>(op: &'static str, w: &'a Weight) -> Result<&'a [PlaneRows]> {
    w.storage::<GpuWeight>(op).map(|GpuWeight(parts)| &parts[..])
}

/// The two parts of a [`gristmill_kernels::weight::Role::GateUp`] weight; of a [`gristmill_kernels::weight::Role::Up`] the one
/// part in both places.
pub fn pair<'a>(op: &'static str, parts: &'a [PlaneRows]) -> Result<[&'a PlaneRows; 2]> {
    match parts {
        [gate, up] => Ok([gate, up]),
        [up] => Ok([up, up]),
        parts => Err(Error::Shape { op, what: "tensors of the weight", found: parts.len(), expected: 2 }),
    }
}

/// The one part of a [`gristmill_kernels::weight::Role::Table`] weight.
pub fn single<'a>(op: &'static str, w: &'a Weight) -> Result<&'a PlaneRows> {
    match parts(op, w)? {
        [only] => Ok(only),
        parts => Err(Error::Shape { op, what: "tensors of the weight", found: parts.len(), expected: 1 }),
    }
}

/// Bytes that a tensor takes on a device.
pub fn bytes(shape: &TensorShape) -> u64 {
    shape.bytes(shape.rows, Some(Planes::new(shape.format, shape.cols).row_bytes))
}

/// Bytes that each plane of a row has of a block, in the order of the planes.
pub fn plane_bytes(format: Format) -> Vec<usize> {
    Planes::new(format, format.block_len()).planes.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Where a byte of a row's first block is in a row of this layout, and how far from the same byte of the next block. Bytes that
/// follow in the same plane of the format follow here too.
pub fn position(format: Format, cols: usize, byte: usize) -> (usize, usize) {
    let planes = Planes::new(format, cols);
    let blocks = cols / format.block_len();
    let mut at = 0;
    for (start, bytes) in planes.planes {
        if (start..start + bytes).contains(&byte) {
            return (at + byte - start, bytes);
        }
        at += (blocks * bytes).next_multiple_of(ALIGNMENT);
    }
    (at, 0)
}

/// The bytes in the file of row `row` of the joined tensors, experts outermost. An owner of bytes that breaks its
/// promise and shrinks gives none.
fn source(tensors: &[TensorView], row_bytes: usize, row: usize) -> &[u8] {
    let rows: usize = tensors.iter().map(|t| t.rows).sum();
    let expert = row / rows;
    let mut row = row % rows;
    for tensor in tensors {
        if row < tensor.rows {
            let at = (expert * tensor.rows + row) * row_bytes;
            return tensor.bytes.as_slice().get(at..at + row_bytes).unwrap_or(&[]);
        }
        row -= tensor.rows;
    }
    &[]
}

/// How a format's blocks become a row.
#[derive(Debug)]
struct Planes {
    /// First byte in the block, and bytes.
    planes: Vec<(usize, usize)>,
    block_bytes: usize,
    cols: usize,
    /// Bytes of a row in the file and here.
    file_bytes: usize,
    row_bytes: usize,
}

impl Planes {
    /// For rows of `cols` elements, which must be whole blocks.
    fn new(format: Format, cols: usize) -> Self {
        let mut planes: Vec<(usize, usize)> = Vec::new();
        for plane in format.planes() {
            match planes.last_mut() {
                Some((start, bytes))
                    if *start + *bytes == plane.start && matches!(*bytes + plane.bytes, 4 | 8 | 16) =>
                {
                    *bytes += plane.bytes;
                }
                _ => planes.push((plane.start, plane.bytes)),
            }
        }
        let blocks = cols / format.block_len();
        let row_bytes = planes.iter().map(|&(_, bytes)| (blocks * bytes).next_multiple_of(ALIGNMENT)).sum();
        let block_bytes = format.block_bytes();
        Self { planes, block_bytes, cols, file_bytes: blocks * block_bytes, row_bytes }
    }

    /// Spans of a row: 16 bytes of the format's largest plane, but at most 64 columns.
    fn spans(&self) -> usize {
        let largest = self.planes.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let of_bytes = (self.file_bytes / self.block_bytes * largest).div_ceil(ALIGNMENT);
        of_bytes.max(self.cols.div_ceil(SPAN_COLUMNS))
    }

    /// Brings one row's blocks into the layout, with zeros between planes.
    fn permute(&self, blocks: &[u8], row: &mut [u8]) {
        let mut rest = row;
        for &(start, bytes) in &self.planes {
            let len = blocks.len() / self.block_bytes * bytes;
            let (plane, after) = rest.split_at_mut(len.next_multiple_of(ALIGNMENT));
            let (plane, padding) = plane.split_at_mut(len);
            padding.fill(0);
            match bytes {
                _ if bytes == self.block_bytes => plane.copy_from_slice(blocks),
                1 => self.gather::<1>(start, blocks, plane),
                2 => self.gather::<2>(start, blocks, plane),
                4 => self.gather::<4>(start, blocks, plane),
                8 => self.gather::<8>(start, blocks, plane),
                12 => self.gather::<12>(start, blocks, plane),
                16 => self.gather::<16>(start, blocks, plane),
                32 => self.gather::<32>(start, blocks, plane),
                64 => self.gather::<64>(start, blocks, plane),
                128 => self.gather::<128>(start, blocks, plane),
                _ => {
                    for (to, block) in plane.chunks_exact_mut(bytes).zip(blocks.chunks_exact(self.block_bytes)) {
                        to.copy_from_slice(&block[start..start + bytes]);
                    }
                }
            }
            rest = after;
        }
    }

    /// A plane of a size that the compiler knows: a copy is then a few instructions.
    fn gather<const N: usize>(&self, start: usize, blocks: &[u8], plane: &mut [u8]) {
        for (to, block) in plane.as_chunks_mut::<N>().0.iter_mut().zip(blocks.chunks_exact(self.block_bytes)) {
            to.copy_from_slice(&block[start..start + N]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_kernels::tensor::SharedBytes;

    /// Every byte of a row of distinct bytes is where the planes say, and the gaps are zero.
    #[test]
    fn rows_are_planes() {
        for &format in Format::ALL {
            for blocks in [1, 2, 3, 7, 16, 33] {
                let planes = Planes::new(format, blocks * format.block_len());
                let file: Vec<u8> = (0..planes.file_bytes).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
                let mut row = vec![0xff; planes.row_bytes];
                planes.permute(&file, &mut row);
                let (mut at, mut seen) = (0, 0);
                for &(start, bytes) in &planes.planes {
                    assert_eq!(at % ALIGNMENT, 0, "{format}");
                    for (i, block) in file.chunks_exact(format.block_bytes()).enumerate() {
                        assert_eq!(row[at + i * bytes..][..bytes], block[start..start + bytes], "{format}, block {i}");
                    }
                    let end = (at + blocks * bytes).next_multiple_of(ALIGNMENT);
                    assert!(row[at + blocks * bytes..end].iter().all(|&byte| byte == 0), "{format}: padding");
                    (at, seen) = (end, seen + bytes);
                }
                assert_eq!((at, seen), (row.len(), format.block_bytes()), "{format}");
            }
        }
    }

    /// Properties that `blocks.h` counts on.
    #[test]
    fn heads_are_one_plane() {
        let planes = |format| Planes::new(format, 256).planes;
        assert_eq!(planes(Format::Q4_K), [(0, 16), (16, 128)]);
        assert_eq!(planes(Format::Q5_1), [(0, 8), (8, 16)]);
        assert_eq!(planes(Format::IQ4_XS), [(0, 8), (8, 128)]);
        assert_eq!(planes(Format::IQ4_K), [(0, 16), (16, 128)]);
        assert_eq!(planes(Format::IQ4_KS), [(0, 4), (4, 8), (12, 128)]);
        assert_eq!(planes(Format::IQ3_KS), [(0, 8), (8, 64), (72, 32)]);
        assert_eq!(planes(Format::Q5_0), [(0, 2), (2, 4), (6, 16)]);
        assert_eq!(planes(Format::IQ2_S), [(0, 2), (2, 32), (34, 32), (66, 16)]);
    }

    #[test]
    fn spans_are_those_of_the_kernels() {
        let elements = |format| 256 * 256 / Planes::new(format, 256 * 256).spans();
        for (formats, expected) in [
            ([Format::F32].as_slice(), 4),
            (&[Format::F16, Format::BF16], 8),
            (&[Format::Q8_0], 16),
            (&[Format::Q4_0, Format::Q5_1, Format::Q4_K, Format::Q5_K, Format::IQ4_XS, Format::MXFP4], 32),
            (&[Format::Q2_K, Format::Q3_K, Format::Q6_K], 64),
            (&[Format::IQ1_S, Format::IQ1_M, Format::IQ2_XXS, Format::IQ2_XS, Format::IQ2_S, Format::IQ3_XXS], 64),
            (&[Format::IQ4_K, Format::IQ5_K, Format::IQ4_KS, Format::IQ5_KS], 32),
            (&[Format::IQ3_KS, Format::IQ2_KS, Format::IQ2_KL], 64),
            (&[Format::IQ3_S, Format::TQ2_0, Format::NVFP4, Format::Q1_0, Format::Q2_0], 64),
        ] {
            assert!(formats.iter().all(|&format| elements(format) == expected), "{formats:?}");
        }
    }

    #[test]
    fn joined_rows_stand_side_by_side_in_every_expert() {
        let tensor = |rows: usize, tag: u8| TensorView {
            name: "t".into(),
            format: Format::F32,
            experts: 2,
            rows,
            cols: 1,
            bytes: SharedBytes::from((0..2 * rows).flat_map(|i| [tag, i as u8, 0, 0]).collect::<Vec<u8>>()),
        };
        let tensors = [tensor(2, 7), tensor(1, 9)];
        let rows: Vec<_> = (0..7).map(|row| source(&tensors, 4, row).to_vec()).collect();
        let expected: [&[u8]; 7] =
            [&[7, 0, 0, 0], &[7, 1, 0, 0], &[9, 0, 0, 0], &[7, 2, 0, 0], &[7, 3, 0, 0], &[9, 1, 0, 0], &[]];
        assert_eq!(rows, expected);
    }
}
