//! The innermost kernel: 16 weight rows times some activation rows.
//!
//! One source serves GEMV and GEMM, every format and every level: a group of 32 columns is unpacked once into 8 vectors
//! and multiplied with up to [`Simd::TOKENS`] activation rows, whose sums stay in registers. The weights stream once
//! through the cache. Lanes are weight rows: no sum crosses lanes.

mod int8;

use super::act::Int8Block;
use super::layout::ROWS;
use super::level::Level;
use gristmill_kernels::format::{Float, Format, Quantised, with_format_kind};
use gristmill_kernels::simd::{Kernel, Simd};
use int8::Int8Dot;
use std::marker::PhantomData;

/// The results of one activation row: one for each weight row of the tile.
pub(crate) type Lanes = [f32; ROWS];

/// Activation rows in the representation that the weight's format reads.
#[derive(Clone, Copy)]
pub(crate) enum ActRows<'a> {
    /// f32: float formats, and the exact path of quantised ones.
    Exact(&'a [&'a [f32]]),
    /// int8 with a scale per 32: quantised formats only.
    Int8(&'a [&'a [Int8Block]]),
    /// Pairs of bfloat16: the format bfloat16 on a CPU that multiplies such pairs.
    Bf16(&'a [&'a [u32]]),
}

/// out[t] = the 16 weight rows of `group` · row t. The group's tiles and each row cover the same columns.
pub(crate) fn dot(level: Level, format: Format, group: &[u8], rows: ActRows, out: &mut [Lanes]) {
    with_format_kind!(format,
        float F => match rows {
            ActRows::Exact(rows) => level.run(RowChunks::<FloatDot<F>> { group, rows, out }),
            ActRows::Bf16(rows) if F::IS_BF16 => {
                let done = level.run_bf16(RowChunks::<Bf16Dot> { group, rows, out });
                done.expect("bfloat16 rows are for CPUs that multiply them");
            }
            ActRows::Bf16(_) | ActRows::Int8(_) => unreachable!("float weights read f32, bfloat16 weights also pairs"),
        },
        quantised F => match rows {
            ActRows::Exact(rows) => level.run(RowChunks::<ExactDot<F>> { group, rows, out }),
            ActRows::Int8(rows) => level.run(Int8Dot::<F> { group, rows, out, format: PhantomData }),
            ActRows::Bf16(_) => unreachable!("quantised weights do not read bfloat16 rows"),
        }
    )
}

/// A product of a row group with `NT` activation rows at a time.
trait RowKernel: Sized {
    /// An element, block or pair of an activation row.
    type Element;
    /// Vectors of sums that each row keeps in registers through the inner loop.
    const SUMS: usize;
    /// Writes the outputs of rows `first .. first + NT`.
    fn dot<S: Simd, const NT: usize>(call: &mut RowChunks<Self>, s: S, first: usize);
}

/// The most rows at a time.
const fn most<S: Simd, K: RowKernel>() -> usize {
    S::TOKENS / K::SUMS
}

/// A row group times all activation rows, in chunks of as many rows as the level's registers allow.
struct RowChunks<'a, K: RowKernel> {
    group: &'a [u8],
    rows: &'a [&'a [K::Element]],
    out: &'a mut [Lanes],
}

impl<K: RowKernel> Kernel for RowChunks<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut first = 0;
        while first < self.rows.len() {
            let left = self.rows.len() - first;
            first += if const { most::<S, K>() >= 16 } && left >= 16 {
                K::dot::<S, 16>(&mut self, s, first);
                16
            } else if const { most::<S, K>() >= 8 } && left >= 8 {
                K::dot::<S, 8>(&mut self, s, first);
                8
            } else if const { most::<S, K>() >= 4 } && left >= 4 {
                K::dot::<S, 4>(&mut self, s, first);
                4
            } else if const { most::<S, K>() == 2 } && left >= 2 {
                K::dot::<S, 2>(&mut self, s, first);
                2
            } else {
                K::dot::<S, 1>(&mut self, s, first);
                1
            };
        }
    }
}

struct ExactDot<F>(PhantomData<F>);

impl<F: Quantised> RowKernel for ExactDot<F> {
    type Element = f32;
    const SUMS: usize = 1;

    #[inline(always)]
    fn dot<S: Simd, const NT: usize>(call: &mut RowChunks<Self>, s: S, first: usize) {
        let mut sums = [s.splat(0.0); NT];
        for (i, tile) in call.group.chunks_exact(ROWS * F::BYTES).enumerate() {
            for g in 0..F::BLOCK / 32 {
                let codes = F::codes(s, tile, g);
                let scales = F::scales(s, tile, g);
                for (j, &four) in codes.iter().enumerate() {
                    let scale = scales[j / 4];
                    for b in 0..4 {
                        let code = if F::SIGNED { s.byte_signed(four, b) } else { s.byte(four, b) };
                        let mut w = s.mul(scale.scale, s.to_f32(s.add_i32(code, s.splat_i32(-F::ZERO))));
                        if F::HAS_MIN {
                            w = s.sub(w, scale.min);
                        }
                        let k = i * F::BLOCK + 32 * g + 4 * j + b as usize;
                        for t in 0..NT {
                            sums[t] = s.mul_add(w, s.splat(call.rows[first + t][k]), sums[t]);
                        }
                    }
                }
            }
        }
        for t in 0..NT {
            s.store_f32(sums[t], &mut call.out[first + t], 0);
        }
    }
}

struct FloatDot<F>(PhantomData<F>);

impl<F: Float> RowKernel for FloatDot<F> {
    type Element = f32;
    const SUMS: usize = 2;

    #[inline(always)]
    fn dot<S: Simd, const NT: usize>(call: &mut RowChunks<Self>, s: S, first: usize) {
        let cols = call.group.len() / (ROWS * F::BYTES);
        let rows: [&[f32]; NT] = std::array::from_fn(|t| &call.rows[first + t][..cols]);
        // Even and odd columns have sums of their own: a single sum would wait for the latency of every addition. All
        // chunk sizes do so, hence the order of a sum does not depend on the number of rows.
        let mut sums = [[s.splat(0.0); 2]; NT];
        for k in 0..cols / 2 {
            for odd in 0..2 {
                let w = F::load(s, call.group, 2 * k + odd);
                for t in 0..NT {
                    sums[t][odd] = s.mul_add(w, s.splat(rows[t][2 * k + odd]), sums[t][odd]);
                }
            }
        }
        if cols % 2 == 1 {
            let w = F::load(s, call.group, cols - 1);
            for t in 0..NT {
                sums[t][0] = s.mul_add(w, s.splat(rows[t][cols - 1]), sums[t][0]);
            }
        }
        for t in 0..NT {
            s.store_f32(s.add(sums[t][0], sums[t][1]), &mut call.out[first + t], 0);
        }
    }
}

/// bfloat16 weights and activations: one instruction multiplies two columns. GEMM reaches 395 Gop/s, with f32
/// activations ([`FloatDot`], near its peak) 209 (two Zen 4 cores, `matmul_speed`).
struct Bf16Dot;

impl RowKernel for Bf16Dot {
    type Element = u32;
    // Sums of even and odd pairs, as in `FloatDot`.
    const SUMS: usize = 2;

    #[inline(always)]
    fn dot<S: Simd, const NT: usize>(call: &mut RowChunks<Self>, s: S, first: usize) {
        let Some(proof) = s.bf16() else { unreachable!("`dot` runs this kernel by `run_bf16` alone") };
        // Four columns of 16 rows at a time.
        let (steps, rest) = call.group.as_chunks::<{ 4 * 2 * ROWS }>();
        let rows: [&[[u32; 2]]; NT] = std::array::from_fn(|t| &call.rows[first + t].as_chunks().0[..steps.len()]);
        let mut sums = [[s.splat(0.0); 2]; NT];
        for (k, columns) in steps.iter().enumerate() {
            for odd in 0..2 {
                let w = s.load_pairs(columns, odd * 4 * ROWS);
                for t in 0..NT {
                    sums[t][odd] = s.dot_bf16(proof, sums[t][odd], w, rows[t][k][odd]);
                }
            }
        }
        let (pairs, last) = rest.as_chunks::<{ 2 * 2 * ROWS }>();
        let at = 2 * steps.len();
        if let [pair] = pairs {
            let w = s.load_pairs(pair, 0);
            for t in 0..NT {
                sums[t][0] = s.dot_bf16(proof, sums[t][0], w, call.rows[first + t][at]);
            }
        }
        if !last.is_empty() {
            // The other half of each lane is zero, as it is in the row.
            let w = s.load_u16(last, 0);
            for t in 0..NT {
                sums[t][1] = s.dot_bf16(proof, sums[t][1], w, call.rows[first + t][at + pairs.len()]);
            }
        }
        for t in 0..NT {
            s.store_f32(s.add(sums[t][0], sums[t][1]), &mut call.out[first + t], 0);
        }
    }
}
