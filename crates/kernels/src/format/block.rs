//! What a format defines: its block, and how kernels unpack it.

use crate::simd::Simd;

/// A run of bytes inside a block that a layout may move as a whole.
///
/// The planes of a format cover each byte of its block once, in the order in which kernels read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// First byte of the plane in the block.
    pub start: usize,
    /// Bytes of the plane within one block.
    pub bytes: usize,
    /// Bytes that must stay together (1, 2 or 4): the granule by which rows are interleaved.
    pub unit: usize,
}

/// `bytes` bytes from `start` on, interleaved in units of `unit`.
pub(super) const fn plane(start: usize, bytes: usize, unit: usize) -> Plane {
    Plane { start, bytes, unit }
}

/// The encoding of one format: block layout, scalar decode and encode.
///
/// Decoding is bit-exact with the GGUF reference (`gguf.quants` of PyPI's `gguf` 0.19).
pub trait BlockFormat: Copy + Default + Send + Sync + 'static {
    /// Elements in one block.
    const BLOCK: usize;
    /// Elements that share a scale: 16 or 32, 1 for floats.
    const GROUP: usize;
    /// Bytes of one block.
    const BYTES: usize;
    /// Planes of the block, in the order of a tile.
    const PLANES: &'static [Plane];
    /// Relative error (NMSE) that encoding standard-normal values may cost; tests hold `encode` to it.
    const ENCODE_NMSE: f64;

    /// No model is quantised to the format: [`BlockFormat::encode`] serves tests and synthetic models. Without an
    /// importance matrix, formats of about two bits lose too much; others are for models that were trained in them.
    const READ_ONLY: bool = false;

    /// Decodes one block: `block.len() == BYTES`, `out.len() == BLOCK`.
    fn decode(block: &[u8], out: &mut [f32]);
    /// The number of blocks that are encoded together: the blocks of 16 groups (elements that share a scale), one group
    /// in each lane.
    const BATCH: usize = 16 * Self::GROUP / Self::BLOCK;
    /// Encodes a batch: `values.len() == BATCH · BLOCK`, `blocks.len() == BATCH · BYTES`. The bytes do not depend on
    /// the CPU, nor a block's on the others. Non-finite values are undefined but safe.
    fn encode<S: Simd>(s: S, values: &[f32], blocks: &mut [u8]);
}

/// A float format. If one element is one block, a tile of 16 rows holds for each column its 16 values side by side.
pub trait Float: BlockFormat {
    /// Whether elements are bfloat16, which some CPUs multiply in pairs: see [`Simd::dot_bf16`].
    const IS_BF16: bool = false;

    /// Loads the 16 rows' values of column `k < BLOCK` from a tile.
    fn load<S: Simd>(s: S, tile: &[u8], k: usize) -> S::F32;
}

/// Scale and minimum of 16 elements × 16 rows: value = scale · (code − ZERO) − min. Lanes are rows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Scale<S: Simd> {
    /// Scale of each row.
    pub scale: S::F32,
    /// Minimum of each row; ignored unless the format says [`Quantised::HAS_MIN`].
    pub min: S::F32,
}

/// A quantised format, unpacked the same way at every CPU level.
///
/// A *tile* is one block of each of 16 rows, permuted by planes and units: for every unit of every plane, in the order
/// of [`BlockFormat::PLANES`], the unit of row 0, of row 1, … of row 15. So a plane before which others of `p` bytes
/// are listed starts at byte `16 * p` of the tile, and its unit `i` of row `r` is at `16 * p + (i * 16 + r) * unit`.
pub trait Quantised: BlockFormat {
    /// Codes are signed bytes. Otherwise they are unsigned, at most 127.
    const SIGNED: bool = false;
    /// The largest magnitude of a code.
    const LARGEST: i32;
    /// The products of two codes with two int8 activations (of at most 127) that may be summed in 16 bits.
    const PAIR_SUMS: usize = (i16::MAX as i32 / (2 * 127 * Self::LARGEST)) as usize;
    /// Subtracted from each code (0 for signed codes).
    const ZERO: i32 = 0;
    /// The format has minima (value = scale · code − min).
    const HAS_MIN: bool = false;
    /// A block's scales are its [`Quantised::unit`] times [`Quantised::integers`], and a block has 256 elements.
    const INTEGER_SCALES: bool = false;

    /// Unpacks the codes of elements `32·g .. 32·g + 32` of the tile: vector `j` holds, for each of the 16 rows,
    /// the codes of elements `32·g + 4·j .. 32·g + 4·j + 4` in ascending order. `g < BLOCK / 32`.
    fn codes<S: Simd>(s: S, tile: &[u8], g: usize) -> [S::Codes; 8];

    /// The unit of each row's scales: by default the f16 at the start of its block.
    #[inline(always)]
    fn unit<S: Simd>(s: S, tile: &[u8]) -> S::F32 {
        s.load_f16(tile, 0)
    }

    /// Integer scales of elements `32·g .. 32·g + 32`, at most 128 in magnitude: first and second sixteen. With
    /// `GROUP == 32` both are the same.
    #[inline(always)]
    fn integers<S: Simd>(s: S, _tile: &[u8], _g: usize) -> [S::I32; 2] {
        [s.splat_i32(1); 2]
    }

    /// Scales of elements `32·g .. 32·g + 32`: first and second sixteen. With `GROUP == 32` both are the same. By
    /// default there are no minima.
    #[inline(always)]
    fn scales<S: Simd>(s: S, tile: &[u8], g: usize) -> [Scale<S>; 2] {
        let unit = Self::unit(s, tile);
        let integers = Self::integers(s, tile, g);
        two!(half => {
            let scale = if Self::INTEGER_SCALES { s.mul(unit, s.to_f32(integers[half])) } else { unit };
            Scale { scale, min: s.splat(0.0) }
        })
    }
}
