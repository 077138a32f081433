//! The block formats of GGUF files, one folder each, and those that tensors get when they are loaded: the affine codes
//! of MLX's folders, codes with a zero point, and `NVFP4` with a scale of the tensor.
//!
//! A *format* is the encoding in the file. How prepared weights are in memory is a *layout* and belongs to a
//! backend; a format only names its planes, so that a layout can permute them without knowing what they mean.
//! To add a format: write its folder and add its line to the table below.
//!
//! # A format unpacks once
//!
//! A format defines how to unpack 32 columns of 16 rows in terms of `Simd`. In `blocks.h` it defines how a GPU thread
//! loads a span. The same code serves every CPU level, every operation and both GPUs. *Only the table in
//! `format/mod.rs` has a `match` over formats. No kernel is for one format. No file is for one pair of format and
//! operation.*

// Formats are named as the field names them: `Q4_K`.
#![allow(non_camel_case_types)]

use std::marker::PhantomData;

use crate::simd::{Kernel, Portable, Simd};

mod bits;
pub mod e4m3;
mod fit;
mod grid;
pub mod rows;
mod shifted;

pub use grid::gpu_sources;

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
const fn plane(start: usize, bytes: usize, unit: usize) -> Plane {
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
        let (unit, integers) = (Self::unit(s, tile), Self::integers(s, tile, g));
        two!(half => {
            let scale = if Self::INTEGER_SCALES { s.mul(unit, s.to_f32(integers[half])) } else { unit };
            Scale { scale, min: s.splat(0.0) }
        })
    }
}

/// Declares every format once. Columns: enum name and struct, GGML type number, folder. Formats without a number may
/// share a folder, which is named after them.
macro_rules! formats {
    (float { $($fname:ident = $fid:literal in $fdir:ident),* $(,)? }
     quantised { $($qname:ident = $qid:literal in $qdir:ident),* $(,)? }
     unnumbered_float { $($vname:ident in $vdir:ident;)* }
     unnumbered { $($($uname:ident),+ in $udir:ident;)* }) => {
        $(pub mod $fdir;)*
        $(pub mod $qdir;)*
        $(pub mod $vdir;)*
        $(pub mod $udir;)*

        /// An encoding of tensor data.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Format { $($fname,)* $($vname,)* $($qname,)* $($($uname,)+)* }

        impl Format {
            /// Every format, floats first.
            pub const ALL: &'static [Format] =
                &[$(Format::$fname,)* $(Format::$vname,)* $(Format::$qname,)* $($(Format::$uname,)+)*];

            /// The format of a GGML type number, or `None` if it is not supported.
            pub fn from_ggml_type(id: u32) -> Option<Format> {
                match id { $($fid => Some(Format::$fname),)* $($qid => Some(Format::$qname),)* _ => None }
            }
            /// The number of this format in GGUF files, or `None` if they cannot have it.
            pub fn ggml_type(self) -> Option<u32> {
                match self {
                    $(Format::$fname => Some($fid),)*
                    $(Format::$qname => Some($qid),)*
                    $(Format::$vname => None,)*
                    $($(Format::$uname => None,)+)*
                }
            }
            /// The usual name, as in `Q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Format::$fname => stringify!($fname),)*
                    $(Format::$qname => stringify!($qname),)*
                    $(Format::$vname => stringify!($vname),)*
                    $($(Format::$uname => stringify!($uname),)+)*
                }
            }
            /// How kernels for GPUs read its blocks: the file's name, and its content.
            pub fn gpu_source(self) -> (&'static str, &'static str) {
                match self {
                    $(Format::$fname => (
                        concat!("format/", stringify!($fdir), "/blocks.h"),
                        include_str!(concat!(stringify!($fdir), "/blocks.h")),
                    ),)*
                    $(Format::$qname => (
                        concat!("format/", stringify!($qdir), "/blocks.h"),
                        include_str!(concat!(stringify!($qdir), "/blocks.h")),
                    ),)*
                    $(Format::$vname => (
                        concat!("format/", stringify!($vdir), "/blocks.h"),
                        include_str!(concat!(stringify!($vdir), "/blocks.h")),
                    ),)*
                    $($(Format::$uname => (
                        concat!("format/", stringify!($udir), "/blocks.h"),
                        include_str!(concat!(stringify!($udir), "/blocks.h")),
                    ),)+)*
                }
            }
            /// Whether elements are floats: also with a scale of several.
            pub fn is_float(self) -> bool {
                match self {
                    $(Format::$fname => true,)*
                    $(Format::$qname => false,)*
                    $(Format::$vname => true,)*
                    $($(Format::$uname => false,)+)*
                }
            }
        }

        /// Runs generic code for the type behind a [`Format`]: `with_format!(format, F => expression)`.
        #[macro_export]
        macro_rules! with_format {
            ($f:expr, $T:ident => $e:expr) => { match $f {
                $($crate::format::Format::$fname => { type $T = $crate::format::$fdir::$fname; $e })*
                $($crate::format::Format::$qname => { type $T = $crate::format::$qdir::$qname; $e })*
                $($crate::format::Format::$vname => { type $T = $crate::format::$vdir::$vname; $e })*
                $($($crate::format::Format::$uname => { type $T = $crate::format::$udir::$uname; $e })+)*
            } };
        }

        /// Like `with_format!`, with one arm for float and one for quantised formats.
        #[macro_export]
        macro_rules! with_format_kind {
            ($f:expr, float $T:ident => $e:expr, quantised $U:ident => $q:expr) => { match $f {
                $($crate::format::Format::$fname => { type $T = $crate::format::$fdir::$fname; $e })*
                $($crate::format::Format::$vname => { type $T = $crate::format::$vdir::$vname; $e })*
                $($crate::format::Format::$qname => { type $U = $crate::format::$qdir::$qname; $q })*
                $($($crate::format::Format::$uname => { type $U = $crate::format::$udir::$uname; $q })+)*
            } };
        }
    };
}

formats! {
    float {
        F32 = 0 in float32,
        F16 = 1 in float16,
        BF16 = 30 in bfloat16,
    }
    quantised {
        Q4_0 = 2 in q4_0,
        Q4_1 = 3 in q4_1,
        Q5_0 = 6 in q5_0,
        Q5_1 = 7 in q5_1,
        Q8_0 = 8 in q8_0,
        Q2_K = 10 in q2_k,
        Q3_K = 11 in q3_k,
        Q4_K = 12 in q4_k,
        Q5_K = 13 in q5_k,
        Q6_K = 14 in q6_k,
        IQ2_XXS = 16 in iq2_xxs,
        IQ2_XS = 17 in iq2_xs,
        IQ3_XXS = 18 in iq3_xxs,
        IQ1_S = 19 in iq1_s,
        IQ4_NL = 20 in iq4_nl,
        IQ3_S = 21 in iq3_s,
        IQ2_S = 22 in iq2_s,
        IQ4_XS = 23 in iq4_xs,
        IQ1_M = 29 in iq1_m,
        TQ1_0 = 34 in tq1_0,
        TQ2_0 = 35 in tq2_0,
        MXFP4 = 39 in mxfp4,
        NVFP4 = 40 in nvfp4,
        Q1_0 = 41 in q1_0,
        Q2_0 = 42 in q2_0,
        IQ4_K = 139 in iq4_k,
        IQ5_K = 140 in iq5_k,
    }
    unnumbered_float {
        FP8_64 in fp8;
    }
    unnumbered {
        AFFINE4_64, AFFINE4_32, AFFINE8_64, AFFINE8_32, INT4_64 in affine;
        NVFP4_SCALED in nvfp4_scaled;
        IQ4_KS in iq4_ks;
        IQ2_KS in iq2_ks;
        IQ5_KS in iq5_ks;
        IQ3_KS in iq3_ks;
        IQ2_KL in iq2_kl;
    }
}

pub use {with_format, with_format_kind};

impl Format {
    /// The formats of GGUF files.
    pub fn numbered() -> impl Iterator<Item = Format> {
        Self::ALL.iter().copied().filter(|format| format.ggml_type().is_some())
    }

    /// The format of this name, in any case.
    pub fn named(name: &str) -> Option<Format> {
        Self::ALL.iter().copied().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// Whether elements are bfloat16, so that [`crate::act::Precision::Fast`] may round activations to it.
    pub fn is_bf16(self) -> bool {
        with_format_kind!(self, float F => F::IS_BF16, quantised _F => false)
    }

    /// Whether kernels of [`crate::act::Precision::Fast`] may round weights and activations to bfloat16: floats with fewer
    /// bits and a scale.
    pub fn is_narrow_float(self) -> bool {
        self.is_float() && self.block_len() > 1
    }

    /// Whether no model is quantised to this format, see [`BlockFormat::READ_ONLY`].
    pub fn is_read_only(self) -> bool {
        with_format!(self, F => F::READ_ONLY)
    }

    /// Elements in one block.
    pub fn block_len(self) -> usize {
        with_format!(self, F => F::BLOCK)
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        with_format!(self, F => F::BYTES)
    }

    /// The planes of one block, in the order of a tile.
    pub fn planes(self) -> &'static [Plane] {
        with_format!(self, F => F::PLANES)
    }

    /// Bytes of a row of `columns` elements, or `None` if a row is not whole blocks or overflows.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if !columns.is_multiple_of(self.block_len()) {
            return None;
        }
        (columns / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks into floats. Returns `None` unless `bytes` is exactly the blocks of `out`.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Option<()> {
        if self.row_bytes(out.len())? != bytes.len() {
            return None;
        }
        with_format!(self, F => {
            for (block, values) in bytes.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
                F::decode(block, values);
            }
        });
        Some(())
    }

    /// Encodes floats into whole blocks. Returns `None` unless `bytes` is exactly the blocks of `values`.
    pub fn encode(self, values: &[f32], bytes: &mut [u8]) -> Option<()> {
        self.encode_by(Portable, values, bytes)
    }

    /// [`Format::encode`] by a level of the CPU; all give the same bytes.
    pub fn encode_by(self, level: impl Simd, values: &[f32], bytes: &mut [u8]) -> Option<()> {
        if self.row_bytes(values.len())? != bytes.len() {
            return None;
        }
        with_format!(self, F => level.run(Encode::<F> { values, bytes, format: PhantomData }));
        Some(())
    }
}

/// The most elements and bytes of a batch, in any format.
const BATCH_ELEMENTS: usize = 1024;
const BATCH_BYTES: usize = 2048;

/// Encodes whole blocks, batch after batch, the last one padded with zeros.
struct Encode<'a, F> {
    values: &'a [f32],
    bytes: &'a mut [u8],
    format: PhantomData<F>,
}

impl<F: BlockFormat> Kernel for Encode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (elements, size) = (F::BATCH * F::BLOCK, F::BATCH * F::BYTES);
        let whole = self.values.len() / elements;
        let (values, last) = self.values.split_at(whole * elements);
        let (blocks, last_blocks) = self.bytes.split_at_mut(whole * size);
        for (values, blocks) in values.chunks_exact(elements).zip(blocks.chunks_exact_mut(size)) {
            F::encode(s, values, blocks);
        }
        if !last.is_empty() {
            let mut values = [0.0; BATCH_ELEMENTS];
            let mut blocks = [0; BATCH_BYTES];
            values[..last.len()].copy_from_slice(last);
            F::encode(s, &values[..elements], &mut blocks[..size]);
            last_blocks.copy_from_slice(&blocks[..last_blocks.len()]);
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
