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

pub mod affine;
pub mod bfloat16;
mod bits;
mod block;
pub mod e4m3;
mod encoding;
mod fit;
pub mod float16;
pub mod float32;
pub mod fp8;
mod grid;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_kl;
pub mod iq2_ks;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_ks;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_k;
pub mod iq4_ks;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod iq5_k;
pub mod iq5_ks;
mod k_scales;
pub mod mxfp4;
pub mod nvfp4;
pub mod nvfp4_scaled;
pub mod q1_0;
pub mod q2_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod rows;
mod shifted;
pub mod tq1_0;
pub mod tq2_0;

use block::plane;
pub use block::{BlockFormat, Float, Plane, Quantised, Scale};
pub use grid::gpu_sources;

/// Declares every format once. Columns: enum name and struct, GGML type number, folder. Formats without a number may
/// share a folder, which is named after them.
macro_rules! formats {
    (float { $($fname:ident = $fid:literal in $fdir:ident),* $(,)? }
     quantised { $($qname:ident = $qid:literal in $qdir:ident),* $(,)? }
     unnumbered_float { $($vname:ident in $vdir:ident;)* }
     unnumbered { $($($uname:ident),+ in $udir:ident;)* }) => {
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
