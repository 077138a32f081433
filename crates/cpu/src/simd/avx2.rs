//! AVX2 with FMA and F16C, optionally with AVX-VNNI. Two registers hold one vector: rows 0..8 and rows 8..16.

#![allow(unsafe_code)]

mod int8;

use gristmill_kernels::simd::{Kernel, Simd};
use gristmill_kernels::{lanewise, no_bf16, two};
use std::arch::asm;
use std::arch::x86_64::*;

/// Proof that the CPU has AVX2, FMA and F16C, and AVX-VNNI if `VNNI` is set.
#[derive(Clone, Copy, Debug)]
pub struct Avx256<const VNNI: bool>(());

/// AVX2, FMA and F16C.
pub type Avx2 = Avx256<false>;

/// AVX2, FMA, F16C and AVX-VNNI, as on Intel CPUs since Alder Lake, with or without AVX-512.
pub type AvxVnni = Avx256<true>;

impl<const VNNI: bool> Avx256<VNNI> {
    /// The token, if this CPU has the features.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni")))
        .then_some(Self(()))
    }
}

impl AvxVnni {
    /// The token of the level without AVX-VNNI, for code that does not multiply int8.
    pub fn avx2(self) -> Avx2 {
        Avx256(())
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn enter<K: Kernel>(s: Avx2, kernel: K) -> K::Output {
    kernel.run(s)
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
#[inline(never)]
fn enter_vnni<K: Kernel>(s: AvxVnni, kernel: K) -> K::Output {
    kernel.run(s)
}

type Halves<T> = [T; 2];

/// An expression for each half.
macro_rules! both {
    ($a:expr, |$x:ident| $e:expr) => {{
        let a = $a;
        two!(i => {
            let $x = a[i];
            $e
        })
    }};
}

/// An instruction on each half of some vectors.
macro_rules! on_halves {
    // SAFETY: only `lanewise` uses this, for methods of the token, whose intrinsics access registers only.
    ($f:expr, $($x:ident),*) => { two!(i => unsafe { $f($($x[i]),*) }) };
}

/// An expression of intrinsics that access registers only. The others are in `unsafe` blocks of their own.
macro_rules! registers {
    ($token:expr, $e:expr) => {{
        proves_features($token);
        // SAFETY: the token proves the CPU features, and no memory is accessed.
        unsafe { $e }
    }};
}

#[inline(always)]
fn proves_features<const VNNI: bool>(_: Avx256<VNNI>) {}

/// The checked addresses of two halves of `2 * N` bytes at `at`.
#[inline(always)]
fn halves<const N: usize>(bytes: &[u8], at: usize) -> Halves<*const u8> {
    let slice = &bytes[at..at + 2 * N];
    [slice.as_ptr(), slice[N..].as_ptr()]
}

/// Returns the vector unchanged, and keeps its uses in source order. Otherwise the compiler sums one row after another
/// and spills the codes, because 16 registers do not hold the codes and the sums.
#[target_feature(enable = "avx2")]
#[inline]
fn in_order(mut v: Halves<__m256i>) -> Halves<__m256i> {
    let [a, b] = &mut v;
    // SAFETY: the template is a comment, no instruction.
    unsafe { asm!("/* {0} {1} */", inout(ymm_reg) * a, inout(ymm_reg) * b, options(nomem, nostack, preserves_flags)) }
    v
}

/// Each 16-bit sum adds two products of adjacent columns, at most 2 · 128 · 127 < 2^15, so `maddubs` does not saturate.
/// A signed code is its magnitude times the activation with the code's sign.
#[inline(always)]
fn multiply_pairs<const VNNI: bool>(s: Avx256<VNNI>, signed: bool, codes: Halves<__m256i>, x: i32) -> Halves<__m256i> {
    two!(i => registers!(s, {
        let x = _mm256_set1_epi32(x);
        if signed {
            _mm256_maddubs_epi16(_mm256_abs_epi8(codes[i]), _mm256_sign_epi8(x, codes[i]))
        } else {
            _mm256_maddubs_epi16(codes[i], x)
        }
    }))
}

/// sums + both 16-bit numbers of a lane, times the scales.
#[inline(always)]
fn add_scaled<const VNNI: bool>(
    s: Avx256<VNNI>,
    sums: Halves<__m256i>,
    pairs: Halves<__m256i>,
    scales: Halves<__m256i>,
) -> Halves<__m256i> {
    two!(i => registers!(s, _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs[i], scales[i]))))
}

impl<const VNNI: bool> Simd for Avx256<VNNI> {
    type Codes = Halves<__m256i>;
    type I32 = Halves<__m256i>;
    type F32 = Halves<__m256>;

    const SIGNED_BIAS: i32 = if VNNI { 128 } else { 0 };
    const TOKENS: usize = 6;
    // A VNNI dot product has no 16-bit pairs that a scale could multiply.
    const INTEGER_SCALES: bool = !VNNI;
    const INT8_ROWS: usize = 4;

    // GEMV from memory on two Zen 3 cores: Q4_K 13.1 → 18.6, Q5_K 10.3 → 13.9, IQ4_XS 14.3 → 19.5, MXFP4 15.5 → 20.1,
    // Q8_0 16.8 → 19.0 GB/s. Not measured on CPUs with AVX-VNNI.
    #[inline(always)]
    fn prefetches(self) -> bool {
        !VNNI
    }

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the CPU features of the function.
        if VNNI { unsafe { enter_vnni(Avx256(()), kernel) } } else { unsafe { enter(Avx256(()), kernel) } }
    }

    no_bf16!();

    lanewise! { on_halves:
        (Codes, Codes) -> Codes { and: _mm256_and_si256, or: _mm256_or_si256, add_codes: _mm256_add_epi8 }
        (I32, I32) -> I32 { add_i32: _mm256_add_epi32, mul_i32: _mm256_mullo_epi32 }
        (I32) -> F32 { to_f32: _mm256_cvtepi32_ps, as_f32: _mm256_castsi256_ps }
        (F32) -> I32 { round_i32: _mm256_cvtps_epi32 }
        (F32, F32) -> F32 {
            add: _mm256_add_ps, sub: _mm256_sub_ps, mul: _mm256_mul_ps, div: _mm256_div_ps,
            max: _mm256_max_ps, min: _mm256_min_ps,
        }
    }

    #[inline(always)]
    fn load_codes(self, bytes: &[u8], at: usize) -> Self::Codes {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        both!(halves::<32>(bytes, at), |p| unsafe { _mm256_loadu_si256(p.cast()) })
    }
    #[inline(always)]
    fn store_codes(self, v: Self::Codes, bytes: &mut [u8], at: usize) {
        for (half, v) in bytes[at..at + 64].chunks_exact_mut(32).zip(v) {
            // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
            unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), v) }
        }
    }
    #[inline(always)]
    fn splat_codes(self, byte: u8) -> Self::Codes {
        [registers!(self, _mm256_set1_epi8(byte as i8)); 2]
    }
    #[inline(always)]
    fn shr_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes {
        let shifted = both!(v, |v| registers!(self, _mm256_srl_epi16(v, _mm_cvtsi32_si128(n as i32))));
        self.and(shifted, self.splat_codes(mask))
    }
    #[inline(always)]
    fn shl_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes {
        let shifted = both!(v, |v| registers!(self, _mm256_sll_epi16(v, _mm_cvtsi32_si128(n as i32))));
        self.and(shifted, self.splat_codes(mask))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Self::Codes) -> Self::Codes {
        // SAFETY: the token proves the CPU features, and the table has 16 bytes.
        let table = unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())) };
        both!(v, |v| registers!(self, _mm256_shuffle_epi8(table, v)))
    }
    #[inline(always)]
    fn lookup_half(self, table: &[[i8; 16]; 2], v: Self::Codes, upper: Self::Codes) -> Self::Codes {
        let found = two!(half => self.lookup(&table[half], v));
        two!(i => registers!(self, _mm256_blendv_epi8(found[0][i], found[1][i], upper[i])))
    }
    #[inline(always)]
    fn gather<const N: usize>(self, table: &[u32; N], index: Self::I32) -> Self::I32 {
        const { assert!(N.is_power_of_two()) }
        // After the mask, an index is within the table.
        let index = self.and_i32(index, self.splat_i32(N as i32 - 1));
        // SAFETY: the token proves the CPU features, and a masked index is within the table.
        both!(index, |index| unsafe { _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), index) })
    }
    #[inline(always)]
    fn dot(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32 {
        if VNNI {
            return two!(i => registers!(self, _mm256_dpbusd_avx_epi32(acc[i], codes[i], _mm256_set1_epi32(x))));
        }
        // Pair sums are at most 2 · 127 · 127 < 2^15, so maddubs does not saturate.
        two!(i => registers!(self, {
            let pairs = _mm256_maddubs_epi16(codes[i], _mm256_set1_epi32(x));
            _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }))
    }
    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        signed: bool,
        pair_sums: usize,
        start: [i32; N],
        codes: &[Self::Codes; J],
        x: [&[i32; J]; N],
    ) -> [Self::I32; N] {
        let mut sums = [self.splat_i32(0); N];
        for t in 0..N {
            sums[t] = self.splat_i32(start[t]);
        }
        if VNNI {
            for j in 0..J {
                for t in 0..N {
                    sums[t] = registers!(self, in_order(self.dot(sums[t], codes[j], x[t][j])));
                }
            }
            return sums;
        }
        let ones = [registers!(self, _mm256_set1_epi16(1)); 2];
        self.scaled_dots(signed, pair_sums, sums, codes, &ones, x)
    }
    #[inline(always)]
    fn dot_scales(self, scales: Self::I32) -> Self::I32 {
        if VNNI { scales } else { self.pairs(scales, scales) }
    }
    #[inline(always)]
    fn scaled_dots<const N: usize, const J: usize>(
        self,
        signed: bool,
        pair_sums: usize,
        mut sums: [Self::I32; N],
        codes: &[Self::Codes; J],
        scales: &Self::I32,
        x: [&[i32; J]; N],
    ) -> [Self::I32; N] {
        if VNNI {
            let dots = self.dots::<N, J>(signed, pair_sums, [0; N], codes, x);
            for t in 0..N {
                sums[t] = self.add_i32(sums[t], self.mul_i32(dots[t], *scales));
            }
            return sums;
        }
        if !signed && pair_sums > 1 {
            // SAFETY: the token proves the CPU features.
            return unsafe { int8::unsigned(pair_sums, sums, codes, scales, x) };
        }
        // Row by row, because the registers do not hold the sums of all rows beside the codes.
        for j in 0..J {
            for t in 0..N {
                let products = multiply_pairs(self, signed, codes[j], x[t][j]);
                sums[t] = registers!(self, in_order(add_scaled(self, sums[t], products, *scales)));
            }
        }
        sums
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I32, pairs: Self::I32, x: i32) -> Self::I32 {
        two!(i => registers!(self, _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs[i], _mm256_set1_epi32(x)))))
    }
    #[inline(always)]
    fn signed_codes(self, v: Self::Codes) -> Self::Codes {
        if VNNI { both!(v, |v| registers!(self, _mm256_xor_si256(v, _mm256_set1_epi8(-128)))) } else { v }
    }
    #[inline(always)]
    fn dot_signed(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32 {
        if VNNI {
            return self.dot(acc, codes, x);
        }
        // |code| · (x with the code's sign): at most 2 · 128 · 127 < 2^15, so maddubs does not saturate.
        two!(i => registers!(self, {
            let x = _mm256_sign_epi8(_mm256_set1_epi32(x), codes[i]);
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[i]), x);
            _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }))
    }
    #[inline(always)]
    fn byte(self, v: Self::Codes, i: u32) -> Self::I32 {
        self.and_i32(self.shr_i32(v, 8 * i), self.splat_i32(255))
    }
    #[inline(always)]
    fn byte_signed(self, v: Self::Codes, i: u32) -> Self::I32 {
        both!(self.shl_i32(v, 24 - 8 * i), |v| registers!(self, _mm256_srai_epi32::<24>(v)))
    }
    #[inline(always)]
    fn as_i32(self, v: Self::Codes) -> Self::I32 {
        v
    }
    #[inline(always)]
    fn as_codes(self, v: Self::I32) -> Self::Codes {
        v
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        // SAFETY: the token proves the CPU features. A prefetch does not access the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        [registers!(self, _mm256_set1_epi32(x)); 2]
    }
    #[inline(always)]
    fn load_u8(self, bytes: &[u8], at: usize) -> Self::I32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        both!(halves::<8>(bytes, at), |p| unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())) })
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8], at: usize) -> Self::I32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        both!(halves::<8>(bytes, at), |p| unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())) })
    }
    #[inline(always)]
    fn load_u16(self, bytes: &[u8], at: usize) -> Self::I32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        both!(halves::<16>(bytes, at), |p| unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())) })
    }
    #[inline(always)]
    fn load_i32(self, bytes: &[u8], at: usize) -> Self::I32 {
        self.load_codes(bytes, at)
    }
    #[inline(always)]
    fn and_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        self.and(a, b)
    }
    #[inline(always)]
    fn or_i32(self, a: Self::I32, b: Self::I32) -> Self::I32 {
        self.or(a, b)
    }
    #[inline(always)]
    fn shr_i32(self, v: Self::I32, n: u32) -> Self::I32 {
        both!(v, |v| registers!(self, _mm256_srl_epi32(v, _mm_cvtsi32_si128(n as i32))))
    }
    #[inline(always)]
    fn shl_i32(self, v: Self::I32, n: u32) -> Self::I32 {
        both!(v, |v| registers!(self, _mm256_sll_epi32(v, _mm_cvtsi32_si128(n as i32))))
    }
    #[inline(always)]
    fn select_gt(self, a: Self::I32, b: Self::I32, x: Self::I32, y: Self::I32) -> Self::I32 {
        two!(i => registers!(self, _mm256_blendv_epi8(y[i], x[i], _mm256_cmpgt_epi32(a[i], b[i]))))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        [registers!(self, _mm256_set1_ps(x)); 2]
    }
    #[inline(always)]
    fn load_f32(self, x: &[f32], at: usize) -> Self::F32 {
        let x = &x[at..at + 16];
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        both!([x.as_ptr(), x[8..].as_ptr()], |p| unsafe { _mm256_loadu_ps(p) })
    }
    #[inline(always)]
    fn store_f32(self, v: Self::F32, x: &mut [f32], at: usize) {
        for (half, v) in x[at..at + 16].chunks_exact_mut(8).zip(v) {
            // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
            unsafe { _mm256_storeu_ps(half.as_mut_ptr(), v) }
        }
    }
    #[inline(always)]
    fn load_f32_bytes(self, bytes: &[u8], at: usize) -> Self::F32 {
        self.as_f32(self.load_codes(bytes, at))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8], at: usize) -> Self::F32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        both!(halves::<16>(bytes, at), |p| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) })
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        two!(i => registers!(self, _mm256_fmadd_ps(a[i], b[i], c[i])))
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, x: Self::F32, y: Self::F32) -> Self::F32 {
        two!(i => registers!(self, _mm256_blendv_ps(y[i], x[i], _mm256_cmp_ps::<_CMP_LT_OQ>(a[i], b[i]))))
    }
}
