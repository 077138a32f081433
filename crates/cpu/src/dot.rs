//! The innermost kernel: 16 weight rows times several activation rows.
//!
//! One source serves GEMV and GEMM, every format and every level. It unpacks some columns once and multiplies them with
//! as many activation rows as the registers can hold sums for. The weights stream once through the cache. Lanes are
//! weight rows, so no sum crosses lanes.
//!
//! # One kernel for few and many rows
//!
//! `dot.rs` multiplies columns with as many activation rows as the registers have sums for. The activations are int8,
//! f32 (`Precision::Exact`), or bfloat16 if the CPU multiplies pairs of bfloat16. Columns are unpacked once into the L1
//! cache for all rows of a chunk: up to 256 columns with int8 (`dot/int8.rs`), 64 with floats (`dot/float.rs`). A
//! single int8 row keeps its unpacked columns in registers. *The order of a sum does not depend on the number of rows*, except
//! at level `amx`, whose tiles multiply eight or more rows (`simd/amx`).

mod float;
mod int8;
mod pair;

use super::act::Int8Block;
use super::layout::Lanes;
use super::level::Level;
#[cfg(target_arch = "x86_64")]
use super::simd::{TileProduct, TileRows};
use float::{Bf16Steps, ExactSteps, FloatDot, FloatSteps};
use gristmill_kernels::format::{Float as _, Format, with_format_kind};
use int8::Int8Dot;
pub(crate) use pair::PackedRows;
use pair::PairDot;
use std::marker::PhantomData;

/// Activation rows in the representation that the weight's format reads.
#[derive(Clone, Copy)]
pub(crate) enum ActRows<'a> {
    /// f32: float formats, and the exact path of quantised ones.
    Exact(&'a [&'a [f32]]),
    /// int8 with a scale per 32: quantised formats only.
    Int8(&'a [&'a [Int8Block]]),
    /// Pairs of bfloat16, for bfloat16 weights on a CPU that multiplies such pairs.
    Bf16(&'a [&'a [u32]]),
}

/// out[t] = the 16 weight rows of `group` · row t. The group's tiles and each row cover the same columns.
pub(crate) fn dot(level: Level, format: Format, group: &[u8], rows: ActRows, out: &mut [Lanes]) {
    with_format_kind!(format,
        float F => match rows {
            ActRows::Exact(rows) => level.run(FloatDot::<FloatSteps<F>> { group, rows, out }),
            ActRows::Bf16(rows) if F::IS_BF16 => {
                let done = level.run_bf16(FloatDot::<Bf16Steps> { group, rows, out });
                done.expect("bfloat16 rows are for CPUs that multiply them");
            }
            ActRows::Bf16(_) | ActRows::Int8(_) => unreachable!("float weights read f32, bfloat16 weights also pairs"),
        },
        quantised F => match rows {
            ActRows::Exact(rows) => level.run(FloatDot::<ExactSteps<F>> { group, rows, out }),
            ActRows::Int8(rows) => level.run(Int8Dot::<F> { group, rows, out, format: PhantomData }),
            ActRows::Bf16(_) => unreachable!("quantised weights do not read bfloat16 rows"),
        }
    )
}

/// Copied activation rows of a chunk, in the representation that a float format reads.
pub(crate) enum PackedAct {
    /// See [`ActRows::Exact`].
    Exact(PackedRows<f32>),
    /// See [`ActRows::Bf16`].
    Bf16(PackedRows<u32>),
}

/// [`dot`] for two groups of a float format, with the same bits.
pub(crate) fn dot_pair(level: Level, format: Format, groups: [&[u8]; 2], rows: &PackedAct, out: [&mut [Lanes]; 2]) {
    with_format_kind!(format,
        float F => match rows {
            PackedAct::Exact(rows) => level.run(PairDot::<FloatSteps<F>> { groups, rows, out }),
            PackedAct::Bf16(rows) if F::IS_BF16 => {
                let done = level.run_bf16(PairDot::<Bf16Steps> { groups, rows, out });
                done.expect("bfloat16 rows are for CPUs that multiply them");
            }
            PackedAct::Bf16(_) => unreachable!("only bfloat16 weights read pairs"),
        },
        quantised _F => unreachable!("rows are packed for float weights")
    )
}

/// [`dot`] for any number of groups of a quantised format, one after another. `out` has the rows of each group.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dot_tiles(format: Format, groups: &[u8], rows: &TileRows, out: &mut [Lanes]) {
    with_format_kind!(format,
        float _F => unreachable!("float weights do not read tiles"),
        quantised F => TileProduct::<F> { groups, rows, out, format: PhantomData }.run()
    )
}
