//! NEON with dot products (Armv8.2 `FEAT_DotProd`). Four registers hold one vector: rows 0..4, 4..8, 8..12 and 12..16.
//!
//! `FEAT_I8MM` is not used. Its `usdot` multiplies unsigned with signed bytes, but codes of at most 127 are signed
//! bytes already. Its `smmla` halves the dot products and needs two rows of 8 columns in one register, where a tile has
//! four rows of 4.

#![allow(unsafe_code)]

use gristmill_kernels::simd::{Kernel, Simd};
use gristmill_kernels::{four, lanewise, no_bf16, two};
use std::arch::aarch64::*;
use std::arch::asm;

/// Proof that the CPU has NEON and dot products.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Neon {
    /// The token, if this CPU has the features.
    pub fn detect() -> Option<Self> {
        use std::arch::is_aarch64_feature_detected;
        (is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")).then_some(Self(()))
    }
}

#[target_feature(enable = "neon,dotprod")]
#[inline(never)]
fn enter<K: Kernel>(s: Neon, kernel: K) -> K::Output {
    kernel.run(s)
}

type Quarters<T> = [T; 4];

/// An expression for each quarter.
macro_rules! each {
    ($a:expr, |$x:ident| $e:expr) => {{
        let a = $a;
        four!(i => {
            let $x = a[i];
            $e
        })
    }};
}

/// An instruction on each quarter of some vectors.
macro_rules! on_quarters {
    // SAFETY: only `lanewise` uses this, for methods of the token, whose intrinsics access registers only.
    ($f:expr, $($x:ident),*) => { four!(i => unsafe { $f($($x[i]),*) }) };
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
fn proves_features(_: Neon) {}

/// The checked addresses of four quarters of `4 * N` bytes at `at`.
#[inline(always)]
fn quarters<const N: usize>(bytes: &[u8], at: usize) -> Quarters<*const u8> {
    let slice = &bytes[at..at + 4 * N];
    [slice.as_ptr(), slice[N..].as_ptr(), slice[2 * N..].as_ptr(), slice[3 * N..].as_ptr()]
}

/// acc + Σ of four products of `codes` with word `LANE` of `x`, per lane. The intrinsic is unstable in Rust 1.95.
///
/// # Safety
/// The CPU must have dot products, and the caller must be compiled with that feature.
#[inline(always)]
unsafe fn sdot<const LANE: usize>(mut acc: int32x4_t, codes: uint8x16_t, x: int32x4_t) -> int32x4_t {
    // SAFETY: an instruction on registers alone, which the caller's CPU has.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {codes:v}.16b, {x:v}.4b[{lane}]",
            acc = inout(vreg) acc,
            codes = in(vreg) codes,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// sums += dot products of 16 columns from vector `j` of codes on. One load reads four words of a row, and `sdot`
/// selects one. All codes would fill the registers, so a part is read at a time, once for all rows.
#[inline(always)]
fn add_dots<const N: usize, const J: usize>(
    _: Neon,
    sums: &mut [Quarters<int32x4_t>; N],
    codes: &[Quarters<uint8x16_t>; J],
    x: [&[i32; J]; N],
    j: usize,
) {
    // SAFETY: the token proves the CPU features, and the slice index that the words are inside.
    unsafe {
        let mut words = [vdupq_n_s32(0); N];
        for t in 0..N {
            words[t] = vld1q_s32(x[t][j..j + 4].as_ptr());
        }
        for t in 0..N {
            sums[t] = four!(i => sdot::<0>(sums[t][i], codes[j][i], words[t]));
        }
        for t in 0..N {
            sums[t] = four!(i => sdot::<1>(sums[t][i], codes[j + 1][i], words[t]));
        }
        for t in 0..N {
            sums[t] = four!(i => sdot::<2>(sums[t][i], codes[j + 2][i], words[t]));
        }
        for t in 0..N {
            sums[t] = four!(i => sdot::<3>(sums[t][i], codes[j + 3][i], words[t]));
        }
    }
}

/// Each lane's bytes as one number.
#[inline(always)]
fn as_i32(v: Quarters<uint8x16_t>) -> Quarters<int32x4_t> {
    // SAFETY: the same bits; NEON is part of the architecture's baseline.
    each!(v, |v| unsafe { vreinterpretq_s32_u8(v) })
}

impl Neon {
    /// The quarters of a vector of 16 unsigned bytes.
    #[inline(always)]
    fn widen(self, v: uint8x16_t) -> Quarters<uint32x4_t> {
        // SAFETY: the token proves the CPU features.
        unsafe {
            let low = vmovl_u8(vget_low_u8(v));
            let high = vmovl_high_u8(v);
            [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)]
        }
    }
}

impl Simd for Neon {
    type Codes = Quarters<uint8x16_t>;
    type I32 = Quarters<int32x4_t>;
    type F32 = Quarters<float32x4_t>;

    const SIGNED_BIAS: i32 = 0;
    const TOKENS: usize = 4;
    const INT8_ROWS: usize = 4;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the CPU features of the function.
        unsafe { enter(self, kernel) }
    }

    no_bf16!();

    lanewise! { on_quarters:
        (Codes, Codes) -> Codes { and: vandq_u8, or: vorrq_u8, add_codes: vaddq_u8 }
        (I32) -> Codes { as_codes: vreinterpretq_u8_s32 }
        (Codes) -> I32 { as_i32: vreinterpretq_s32_u8 }
        (I32, I32) -> I32 { and_i32: vandq_s32, or_i32: vorrq_s32, add_i32: vaddq_s32, mul_i32: vmulq_s32 }
        (I32) -> F32 { to_f32: vcvtq_f32_s32, as_f32: vreinterpretq_f32_s32 }
        (F32) -> I32 { round_i32: vcvtnq_s32_f32 }
        (F32, F32) -> F32 { add: vaddq_f32, sub: vsubq_f32, mul: vmulq_f32, div: vdivq_f32 }
    }

    #[inline(always)]
    fn load_codes(self, bytes: &[u8], at: usize) -> Self::Codes {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        each!(quarters::<16>(bytes, at), |p| unsafe { vld1q_u8(p) })
    }
    #[inline(always)]
    fn store_codes(self, v: Self::Codes, bytes: &mut [u8], at: usize) {
        for (quarter, v) in bytes[at..at + 64].chunks_exact_mut(16).zip(v) {
            // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
            unsafe { vst1q_u8(quarter.as_mut_ptr(), v) }
        }
    }
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        // The intrinsic is unstable in Rust 1.95. The instruction does nothing for an address that is not mapped.
        let address = bytes.as_ptr().wrapping_add(at);
        // SAFETY: the token proves the CPU features. A prefetch does not access the address.
        unsafe { asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags)) }
    }
    #[inline(always)]
    fn splat_codes(self, byte: u8) -> Self::Codes {
        [registers!(self, vdupq_n_u8(byte)); 4]
    }
    #[inline(always)]
    fn shr_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes {
        let shifted = each!(v, |v| registers!(self, vshlq_u8(v, vdupq_n_s8(-(n as i8)))));
        // Shift only: often no mask is needed.
        if mask == 255 >> n { shifted } else { self.and(shifted, self.splat_codes(mask)) }
    }
    #[inline(always)]
    fn shl_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes {
        let shifted = each!(v, |v| registers!(self, vshlq_u8(v, vdupq_n_s8(n as i8))));
        if mask == 255 << n { shifted } else { self.and(shifted, self.splat_codes(mask)) }
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Self::Codes) -> Self::Codes {
        // SAFETY: the token proves the CPU features, and the table has 16 bytes.
        let table = unsafe { vreinterpretq_u8_s8(vld1q_s8(table.as_ptr())) };
        each!(v, |v| registers!(self, vqtbl1q_u8(table, v)))
    }
    #[inline(always)]
    fn lookup_half(self, table: &[[i8; 16]; 2], v: Self::Codes, upper: Self::Codes) -> Self::Codes {
        let found = two!(half => self.lookup(&table[half], v));
        let upper = each!(upper, |v| registers!(self, vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(v)))));
        four!(i => registers!(self, vbslq_u8(upper[i], found[1][i], found[0][i])))
    }
    #[inline(always)]
    fn gather<const N: usize>(self, table: &[u32; N], index: Self::I32) -> Self::I32 {
        const { assert!(N.is_power_of_two()) }
        // SAFETY: the token proves the CPU features, and an array of four lanes has 16 bytes.
        each!(index, |index| unsafe {
            let mut lanes = [0; 4];
            vst1q_s32(lanes.as_mut_ptr(), index);
            for lane in &mut lanes {
                *lane = table[*lane as usize & (N - 1)] as i32;
            }
            vld1q_s32(lanes.as_ptr())
        })
    }
    #[inline(always)]
    fn dot(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32 {
        four!(i => registers!(self, sdot::<0>(acc[i], codes[i], vdupq_n_s32(x))))
    }
    #[inline(always)]
    fn dot_signed(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32 {
        self.dot(acc, codes, x)
    }
    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        _signed: bool,
        _pair_sums: usize,
        start: [i32; N],
        codes: &[Self::Codes; J],
        x: [&[i32; J]; N],
    ) -> [Self::I32; N] {
        const { assert!(J == 4 || J == 8, "16 or 32 columns") }
        let mut sums = [self.splat_i32(0); N];
        for t in 0..N {
            sums[t] = self.splat_i32(start[t]);
        }
        add_dots(self, &mut sums, codes, x, 0);
        if J == 8 {
            add_dots(self, &mut sums, codes, x, 4);
        }
        sums
    }
    #[inline(always)]
    fn byte(self, v: Self::Codes, i: u32) -> Self::I32 {
        self.and_i32(self.shr_i32(as_i32(v), 8 * i), self.splat_i32(255))
    }
    #[inline(always)]
    fn byte_signed(self, v: Self::Codes, i: u32) -> Self::I32 {
        each!(self.shl_i32(as_i32(v), 24 - 8 * i), |v| registers!(self, vshrq_n_s32::<24>(v)))
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> Self::I32 {
        [registers!(self, vdupq_n_s32(x)); 4]
    }
    #[inline(always)]
    fn load_u8(self, bytes: &[u8], at: usize) -> Self::I32 {
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        let v = unsafe { vld1q_u8(bytes[at..at + 16].as_ptr()) };
        each!(self.widen(v), |v| registers!(self, vreinterpretq_s32_u32(v)))
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8], at: usize) -> Self::I32 {
        each!(self.shl_i32(self.load_u8(bytes, at), 24), |v| registers!(self, vshrq_n_s32::<24>(v)))
    }
    #[inline(always)]
    fn load_u16(self, bytes: &[u8], at: usize) -> Self::I32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        each!(quarters::<8>(bytes, at), |p| unsafe {
            vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))))
        })
    }
    #[inline(always)]
    fn load_i32(self, bytes: &[u8], at: usize) -> Self::I32 {
        as_i32(self.load_codes(bytes, at))
    }
    #[inline(always)]
    fn shr_i32(self, v: Self::I32, n: u32) -> Self::I32 {
        each!(v, |v| registers!(
            self,
            vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), vdupq_n_s32(-(n as i32))))
        ))
    }
    #[inline(always)]
    fn shl_i32(self, v: Self::I32, n: u32) -> Self::I32 {
        each!(v, |v| registers!(self, vshlq_s32(v, vdupq_n_s32(n as i32))))
    }
    #[inline(always)]
    fn select_gt(self, a: Self::I32, b: Self::I32, x: Self::I32, y: Self::I32) -> Self::I32 {
        four!(i => registers!(self, vbslq_s32(vcgtq_s32(a[i], b[i]), x[i], y[i])))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F32 {
        [registers!(self, vdupq_n_f32(x)); 4]
    }
    #[inline(always)]
    fn load_f32(self, x: &[f32], at: usize) -> Self::F32 {
        let x = &x[at..at + 16];
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        four!(i => unsafe { vld1q_f32(x[4 * i..].as_ptr()) })
    }
    #[inline(always)]
    fn store_f32(self, v: Self::F32, x: &mut [f32], at: usize) {
        for (quarter, v) in x[at..at + 16].chunks_exact_mut(4).zip(v) {
            // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
            unsafe { vst1q_f32(quarter.as_mut_ptr(), v) }
        }
    }
    #[inline(always)]
    fn load_f32_bytes(self, bytes: &[u8], at: usize) -> Self::F32 {
        self.as_f32(self.load_i32(bytes, at))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8], at: usize) -> Self::F32 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        each!(quarters::<8>(bytes, at), |p| unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))) })
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        four!(i => registers!(self, vfmaq_f32(c[i], a[i], b[i])))
    }
    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        four!(i => registers!(self, vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i])))
    }
    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        four!(i => registers!(self, vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i])))
    }
}
