//! The innermost kernel: 16 weight rows times some activation rows.
//!
//! One text serves GEMV and GEMM, every format and every level: a group of 32 columns is unpacked once into 8 vectors
//! and multiplied with up to [`Simd::TOKENS`] activation rows, whose sums stay in registers. The weights stream once
//! through the cache; lanes are weight rows, so nothing is summed across lanes.

use super::act::Int8Block;
use super::layout::ROWS;
use super::level::Level;
use gristmill_kernels::format::{Float, Format, Quantised, with_format_kind};
use gristmill_kernels::simd::{Kernel, Simd};
use std::array::from_mut;
use std::marker::PhantomData;

/// The results of one activation row: one for each weight row of the tile.
pub(crate) type Lanes = [f32; ROWS];

/// Activation rows, in the representation that the weight's format wants.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// f32: float formats, and the exact path of quantised ones.
    Exact(&'a [&'a [f32]]),
    /// int8 with a scale per 32: quantised formats only.
    Int8(&'a [&'a [Int8Block]]),
    /// Pairs of bfloat16: that format only, and only if the level multiplies them.
    Bf16(&'a [&'a [u32]]),
}

/// out[t] = the 16 weight rows of `group` · row t. The group's tiles and each row cover the same columns.
pub(crate) fn dot(level: Level, format: Format, group: &[u8], rows: Rows, out: &mut [Lanes]) {
    with_format_kind!(format,
        float F => match rows {
            Rows::Exact(rows) => level.run(Stretches(FloatDot::<F> { group, rows, out, format: PhantomData })),
            Rows::Bf16(rows) if F::IS_BF16 => {
                let done = level.run_bf16(Stretches(Bf16Dot { group, rows, out }));
                done.expect("bfloat16 rows are for CPUs that multiply them");
            }
            Rows::Bf16(_) | Rows::Int8(_) => unreachable!("float weights read floats, and those of bfloat16 alone pairs"),
        },
        quantised F => match rows {
            Rows::Exact(rows) => level.run(Stretches(ExactDot::<F> { group, rows, out, format: PhantomData })),
            Rows::Int8(rows) => level.run(Stretches(Int8Dot::<F> { group, rows, out, format: PhantomData })),
            Rows::Bf16(_) => unreachable!("quantised weights do not read bfloat16 rows"),
        }
    )
}

/// A kernel that serves `NT` activation rows at a time.
trait Stretch {
    /// Vectors of sums that each row keeps in registers through the inner loop, or `None` if they may wait in memory.
    const SUMS: Option<usize>;
    /// Activation rows in all.
    fn len(&self) -> usize;
    /// Serves rows `first .. first + NT`.
    fn serve<S: Simd, const NT: usize>(&mut self, s: S, first: usize);
}

/// The most rows at a time.
const fn most<S: Simd, T: Stretch>() -> usize {
    match T::SUMS {
        Some(sums) => S::TOKENS / sums,
        None if S::TOGETHER > 1 => 2 * S::TOGETHER,
        None => S::TOKENS,
    }
}

/// Serves all rows, in stretches as long as the level's registers allow.
struct Stretches<T>(T);

impl<T: Stretch> Kernel for Stretches<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut first = 0;
        while first < self.0.len() {
            let left = self.0.len() - first;
            first += if const { most::<S, T>() >= 16 } && left >= 16 {
                self.0.serve::<S, 16>(s, first);
                16
            } else if const { most::<S, T>() >= 8 } && left >= 8 {
                self.0.serve::<S, 8>(s, first);
                8
            } else if const { most::<S, T>() >= 4 } && left >= 4 {
                self.0.serve::<S, 4>(s, first);
                4
            } else if const { most::<S, T>() == 2 } && left >= 2 {
                self.0.serve::<S, 2>(s, first);
                2
            } else {
                self.0.serve::<S, 1>(s, first);
                1
            };
        }
    }
}

struct Int8Dot<'a, F> {
    group: &'a [u8],
    rows: &'a [&'a [Int8Block]],
    out: &'a mut [Lanes],
    format: PhantomData<F>,
}

impl<F: Quantised> Stretch for Int8Dot<'_, F> {
    // A block's products have sums of their own, of integers.
    const SUMS: Option<usize> = None;

    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn serve<S: Simd, const NT: usize>(&mut self, s: S, first: usize) {
        let groups = F::BLOCK / 32;
        let tiles = self.group.len() / (ROWS * F::BYTES);
        // Cut to one length, so that the bounds checks of the inner loop are against one number.
        let rows: [&[Int8Block]; NT] = std::array::from_fn(|t| &self.rows[first + t][..tiles * groups]);
        let mut sums = [s.splat(0.0); NT];
        for (i, tile) in self.group.chunks_exact(ROWS * F::BYTES).enumerate() {
            for g in 0..groups {
                if NT <= 4 && F::GROUP == 16 {
                    prefetch_part(s, tile, g, groups);
                }
                let codes = F::codes(s, tile, g);
                let scales = F::scales(s, tile, g);
                let at = i * groups + g;
                if S::TOGETHER == 4 && NT >= 4 {
                    for (sums, rows) in sums.as_chunks_mut().0.iter_mut().zip(rows.as_chunks().0) {
                        add_blocks::<F, S, 4>(s, sums, &codes, &scales, rows.map(|row| &row[at]));
                    }
                } else {
                    for t in 0..NT {
                        let block = &rows[t][at];
                        add_blocks::<F, S, 1>(s, from_mut(&mut sums[t]), &codes, &scales, [block]);
                    }
                }
            }
        }
        for t in 0..NT {
            s.store_f32(sums[t], &mut self.out[first + t], 0);
        }
    }
}

/// How far ahead of its use the tile of a format with groups of 16 is fetched, in bytes: about two tiles. With few
/// activation rows, a group of 32 columns takes its bytes in bursts, because one byte holds columns of several groups, and
/// the processor does not look far enough ahead by itself: Q6_K went from 21.5 to 28.5 GB/s of 40 (two Zen 4 cores), Q3_K
/// from 28 to 31; 4,096 did the same, 2,048 less. Formats whose tile is read more evenly lose by it (Q4_K).
const AHEAD: usize = 8192;

/// Fetches the `g`-th of `parts` parts of the tile that is [`AHEAD`].
#[inline(always)]
fn prefetch_part<S: Simd>(s: S, tile: &[u8], g: usize, parts: usize) {
    let part = tile.len() / parts;
    for line in 0..part.div_ceil(64) {
        s.prefetch(tile, AHEAD + g * part + 64 * line);
    }
}

/// sums += Σ over the 32 columns of a block of weight · activation, for `N` rows of activations.
#[inline(always)]
fn add_blocks<F: Quantised, S: Simd, const N: usize>(
    s: S,
    sums: &mut [S::F32; N],
    codes: &[S::Codes; 8],
    scales: &[gristmill_kernels::format::Scale<S>; 2],
    x: [&Int8Block; N],
) {
    if F::GROUP == 32 {
        let d = dot_codes::<F, S, N, 8>(s, codes, x.map(|x| &x.q), x.map(|x| x.half_sums[0] + x.half_sums[1]));
        for t in 0..N {
            let x = x[t];
            sums[t] = s.mul_add(d[t], s.mul(scales[0].scale, s.splat(x.scale)), sums[t]);
            if F::HAS_MIN {
                sums[t] = s.mul_add(scales[0].min, s.splat(-x.sum), sums[t]);
            }
        }
    } else {
        for half in 0..2 {
            let q = x.map(|x| &x.q.as_chunks().0[half]);
            let d = dot_codes::<F, S, N, 4>(s, &codes.as_chunks().0[half], q, x.map(|x| x.half_sums[half]));
            for t in 0..N {
                let x = x[t];
                sums[t] = s.mul_add(d[t], s.mul(scales[half].scale, s.splat(x.scale)), sums[t]);
                if F::HAS_MIN {
                    sums[t] = s.mul_add(scales[half].min, s.splat(-x.scaled_half_sums[half]), sums[t]);
                }
            }
        }
    }
}

/// Σ of (code − bias) · x, where the sums of x are `sums`.
#[inline(always)]
fn dot_codes<F: Quantised, S: Simd, const N: usize, const J: usize>(
    s: S,
    codes: &[S::Codes; J],
    x: [&[i32; J]; N],
    sums: [i32; N],
) -> [S::F32; N] {
    let bias = F::ZERO + if F::SIGNED { S::SIGNED_BIAS } else { 0 };
    // The codes' bias comes off as an integer, before any rounding.
    let start = sums.map(|sum| -bias * sum);
    let products = if F::SIGNED { s.dots_signed(start, codes, x) } else { s.dots(start, codes, x) };
    let mut floats = [s.splat(0.0); N];
    for t in 0..N {
        floats[t] = s.to_f32(products[t]);
    }
    floats
}

struct ExactDot<'a, F> {
    group: &'a [u8],
    rows: &'a [&'a [f32]],
    out: &'a mut [Lanes],
    format: PhantomData<F>,
}

impl<F: Quantised> Stretch for ExactDot<'_, F> {
    const SUMS: Option<usize> = Some(1);

    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn serve<S: Simd, const NT: usize>(&mut self, s: S, first: usize) {
        let mut sums = [s.splat(0.0); NT];
        for (i, tile) in self.group.chunks_exact(ROWS * F::BYTES).enumerate() {
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
                            sums[t] = s.mul_add(w, s.splat(self.rows[first + t][k]), sums[t]);
                        }
                    }
                }
            }
        }
        for t in 0..NT {
            s.store_f32(sums[t], &mut self.out[first + t], 0);
        }
    }
}

struct FloatDot<'a, F> {
    group: &'a [u8],
    rows: &'a [&'a [f32]],
    out: &'a mut [Lanes],
    format: PhantomData<F>,
}

impl<F: Float> Stretch for FloatDot<'_, F> {
    const SUMS: Option<usize> = Some(2);

    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn serve<S: Simd, const NT: usize>(&mut self, s: S, first: usize) {
        let cols = self.group.len() / (ROWS * F::BYTES);
        let rows: [&[f32]; NT] = std::array::from_fn(|t| &self.rows[first + t][..cols]);
        // Even and odd columns are summed apart: one sum alone would wait for the latency of every addition. Doing so
        // for one row only would make the order of a sum depend on the number of rows.
        let mut sums = [[s.splat(0.0); 2]; NT];
        for k in 0..cols / 2 {
            for odd in 0..2 {
                let w = F::load(s, self.group, 2 * k + odd);
                for t in 0..NT {
                    sums[t][odd] = s.mul_add(w, s.splat(rows[t][2 * k + odd]), sums[t][odd]);
                }
            }
        }
        if cols % 2 == 1 {
            let w = F::load(s, self.group, cols - 1);
            for t in 0..NT {
                sums[t][0] = s.mul_add(w, s.splat(rows[t][cols - 1]), sums[t][0]);
            }
        }
        for t in 0..NT {
            s.store_f32(s.add(sums[t][0], sums[t][1]), &mut self.out[first + t], 0);
        }
    }
}

/// bfloat16 weights and activations: one instruction multiplies two columns. Against f32 activations, which [`FloatDot`]
/// multiplies at nearly the peak of such products, GEMM went from 209 to 395 Gop/s (two Zen 4 cores, `matmul_speed`).
struct Bf16Dot<'a> {
    group: &'a [u8],
    rows: &'a [&'a [u32]],
    out: &'a mut [Lanes],
}

impl Stretch for Bf16Dot<'_> {
    // As in `FloatDot`.
    const SUMS: Option<usize> = Some(2);

    #[inline(always)]
    fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline(always)]
    fn serve<S: Simd, const NT: usize>(&mut self, s: S, first: usize) {
        let Some(proof) = s.bf16() else { unreachable!("`dot` has seen that there is one") };
        // Four columns of 16 rows at a time.
        let (steps, rest) = self.group.as_chunks::<{ 4 * 2 * ROWS }>();
        let rows: [&[[u32; 2]]; NT] = std::array::from_fn(|t| &self.rows[first + t].as_chunks().0[..steps.len()]);
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
                sums[t][0] = s.dot_bf16(proof, sums[t][0], w, self.rows[first + t][at]);
            }
        }
        if !last.is_empty() {
            // The other half of each lane is zero, as it is in the row.
            let w = s.load_u16(last, 0);
            for t in 0..NT {
                sums[t][1] = s.dot_bf16(proof, sums[t][1], w, self.rows[first + t][at + pairs.len()]);
            }
        }
        for t in 0..NT {
            s.store_f32(s.add(sums[t][0], sums[t][1]), &mut self.out[first + t], 0);
        }
    }
}
