//! AVX-512 (F, BW, VL, VNNI): one register holds one vector.
//!
//! Some of these CPUs have BF16. It serves one operation, so it is an option of this level: a separate level would
//! compile all kernels once more.

#![allow(unsafe_code)]

mod int8;

use gristmill_kernels::simd::{Int8Block, Kernel, Simd, WeightSlice};
use gristmill_kernels::{lanewise, two};
use std::arch::x86_64::*;
use std::mem::transmute;

/// Proof that the CPU has AVX-512 F, BW, VL and VNNI, and all features that [`super::Avx2`] names.
#[derive(Clone, Copy, Debug)]
pub struct Avx512 {
    /// Proof of BF16; `None` on CPUs without it.
    bf16: Option<Avx512Bf16>,
    /// See [`Simd::prefetches`].
    prefetches: bool,
}

/// Proof that the CPU has AVX-512 BF16.
#[derive(Clone, Copy, Debug)]
pub struct Avx512Bf16(());

impl Avx512 {
    /// The token, if this CPU has the features.
    pub fn detect() -> Option<Self> {
        (super::Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni"))
        .then(|| Self {
            bf16: is_x86_feature_detected!("avx512bf16").then_some(Avx512Bf16(())),
            prefetches: falls_behind(),
        })
    }
}

/// Whether the hardware's prefetcher falls behind a product with one activation row (docs/performance-notes.md). It does on
/// Intel's CPUs and on Zen 5, but not on Zen 4.
fn falls_behind() -> bool {
    const ZEN_5: u32 = 0x1a;
    let leaf = __cpuid(0);
    let maker = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat();
    let version = __cpuid(1).eax;
    let family = (version >> 8 & 15) + (version >> 20 & 255);
    maker == b"GenuineIntel" || maker == b"AuthenticAMD" && family >= ZEN_5
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
#[inline(never)]
fn enter<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
    kernel.run(s)
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16")]
#[inline(never)]
fn enter_bf16<K: Kernel>(s: Avx512, kernel: K) -> K::Output {
    kernel.run(s)
}

/// The lower halves of a vector are numbers 0..16, the upper halves are numbers 16..32.
const PAIRS: [u16; 32] = {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (i / 2 + i % 2 * 16) as u16;
        i += 1;
    }
    order
};

/// Reinterprets the bits. There is no intrinsic for it.
#[inline(always)]
fn as_bf16(v: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes, of which any are valid.
    unsafe { transmute::<__m512i, __m512bh>(v) }
}

/// An instruction on whole vectors.
macro_rules! on_register {
    // SAFETY: only `lanewise` uses this, for methods of the token, whose intrinsics access registers only.
    ($f:expr, $($x:ident),*) => { unsafe { $f($($x),*) } };
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
fn proves_features(_: Avx512) {}

/// The address of `N` bytes at `at`, checked.
#[inline(always)]
fn address<const N: usize>(bytes: &[u8], at: usize) -> *const u8 {
    bytes[at..at + N].as_ptr()
}

impl Simd for Avx512 {
    type Codes = __m512i;
    type I32 = __m512i;
    type F32 = __m512;
    type Bf16 = Avx512Bf16;

    const SIGNED_BIAS: i32 = 128;
    const TOKENS: usize = 16;
    const INT8_ROWS: usize = int8::ROWS;
    const FAST_PAIRS: bool = true;

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: the token proves the CPU features of the function.
        unsafe { enter(self, kernel) }
    }
    lanewise! { on_register:
        (Codes, Codes) -> Codes { and: _mm512_and_si512, or: _mm512_or_si512, add_codes: _mm512_add_epi8 }
        (I32, I32) -> I32 {
            and_i32: _mm512_and_si512, or_i32: _mm512_or_si512,
            add_i32: _mm512_add_epi32, mul_i32: _mm512_mullo_epi32,
        }
        (I32) -> F32 { to_f32: _mm512_cvtepi32_ps, as_f32: _mm512_castsi512_ps }
        (F32) -> I32 { round_i32: _mm512_cvtps_epi32 }
        (F32, F32) -> F32 {
            add: _mm512_add_ps, sub: _mm512_sub_ps, mul: _mm512_mul_ps, div: _mm512_div_ps,
            max: _mm512_max_ps, min: _mm512_min_ps,
        }
    }

    #[inline(always)]
    fn bf16(self) -> Option<Avx512Bf16> {
        self.bf16
    }
    // The CPUs differ, not the level.
    #[inline(always)]
    fn prefetches(self) -> bool {
        self.prefetches
    }
    #[inline(always)]
    fn run_bf16<K: Kernel>(self, _: Avx512Bf16, kernel: K) -> K::Output {
        // SAFETY: the tokens prove the CPU features of the function.
        unsafe { enter_bf16(self, kernel) }
    }

    #[inline(always)]
    fn load_codes(self, bytes: &[u8], at: usize) -> __m512i {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        unsafe { _mm512_loadu_si512(address::<64>(bytes, at).cast()) }
    }
    #[inline(always)]
    fn store_codes(self, v: __m512i, bytes: &mut [u8], at: usize) {
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        unsafe { _mm512_storeu_si512(bytes[at..at + 64].as_mut_ptr().cast(), v) }
    }
    #[inline(always)]
    fn splat_codes(self, byte: u8) -> __m512i {
        registers!(self, _mm512_set1_epi8(byte as i8))
    }
    #[inline(always)]
    fn shr_and(self, v: __m512i, n: u32, mask: u8) -> __m512i {
        registers!(self, _mm512_and_si512(_mm512_srl_epi16(v, _mm_cvtsi32_si128(n as i32)), self.splat_codes(mask)))
    }
    #[inline(always)]
    fn shl_and(self, v: __m512i, n: u32, mask: u8) -> __m512i {
        registers!(self, _mm512_and_si512(_mm512_sll_epi16(v, _mm_cvtsi32_si128(n as i32)), self.splat_codes(mask)))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: __m512i) -> __m512i {
        // SAFETY: the token proves the CPU features, and the table has 16 bytes.
        unsafe { _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), v) }
    }
    #[inline(always)]
    fn lookup_half(self, table: &[[i8; 16]; 2], v: __m512i, upper: __m512i) -> __m512i {
        let found = two!(half => self.lookup(&table[half], v));
        registers!(self, _mm512_mask_blend_epi8(_mm512_movepi8_mask(upper), found[0], found[1]))
    }
    #[inline(always)]
    fn gather<const N: usize>(self, table: &[u32; N], index: __m512i) -> __m512i {
        const { assert!(N.is_power_of_two()) }
        // After the mask, an index is within the table.
        let index = self.and_i32(index, self.splat_i32(N as i32 - 1));
        // SAFETY: the token proves the CPU features, and a masked index is within the table.
        unsafe { _mm512_i32gather_epi32::<4>(index, table.as_ptr().cast()) }
    }
    #[inline(always)]
    fn dot(self, acc: __m512i, codes: __m512i, x: i32) -> __m512i {
        registers!(self, _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(x)))
    }
    #[inline(always)]
    fn dot_pairs(self, acc: __m512i, pairs: __m512i, x: i32) -> __m512i {
        registers!(self, _mm512_dpwssd_epi32(acc, pairs, _mm512_set1_epi32(x)))
    }
    #[inline(always)]
    fn multiply_eight(
        self,
        slices: &[WeightSlice<Self>],
        rows: [&[Int8Block]; 8],
        bias: i32,
        has_min: bool,
        out: &mut [[f32; 16]; 8],
    ) -> bool {
        // SAFETY: the token proves the CPU features.
        unsafe { int8::multiply(slices, rows, bias, has_min, out) }
        true
    }
    #[inline(always)]
    fn signed_codes(self, v: __m512i) -> __m512i {
        registers!(self, _mm512_xor_si512(v, self.splat_codes(0x80)))
    }
    #[inline(always)]
    fn dot_signed(self, acc: __m512i, codes: __m512i, x: i32) -> __m512i {
        self.dot(acc, codes, x)
    }
    #[inline(always)]
    fn byte(self, v: __m512i, i: u32) -> __m512i {
        self.and_i32(self.shr_i32(v, 8 * i), self.splat_i32(255))
    }
    #[inline(always)]
    fn byte_signed(self, v: __m512i, i: u32) -> __m512i {
        registers!(self, _mm512_srai_epi32::<24>(self.shl_i32(v, 24 - 8 * i)))
    }
    #[inline(always)]
    fn as_i32(self, v: __m512i) -> __m512i {
        v
    }
    #[inline(always)]
    fn as_codes(self, v: __m512i) -> __m512i {
        v
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        // SAFETY: the token proves the CPU features. A prefetch does not access the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        registers!(self, _mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn load_u8(self, bytes: &[u8], at: usize) -> __m512i {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(address::<16>(bytes, at).cast())) }
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8], at: usize) -> __m512i {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(address::<16>(bytes, at).cast())) }
    }
    #[inline(always)]
    fn load_u16(self, bytes: &[u8], at: usize) -> __m512i {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(address::<32>(bytes, at).cast())) }
    }
    #[inline(always)]
    fn load_i32(self, bytes: &[u8], at: usize) -> __m512i {
        self.load_codes(bytes, at)
    }
    #[inline(always)]
    fn shr_i32(self, v: __m512i, n: u32) -> __m512i {
        registers!(self, _mm512_srl_epi32(v, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shl_i32(self, v: __m512i, n: u32) -> __m512i {
        registers!(self, _mm512_sll_epi32(v, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn select_gt(self, a: __m512i, b: __m512i, x: __m512i, y: __m512i) -> __m512i {
        registers!(self, _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), y, x))
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        registers!(self, _mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load_f32(self, x: &[f32], at: usize) -> __m512 {
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        unsafe { _mm512_loadu_ps(x[at..at + 16].as_ptr()) }
    }
    #[inline(always)]
    fn store_f32(self, v: __m512, x: &mut [f32], at: usize) {
        // SAFETY: the token proves the CPU features, and the slice index that the bytes are inside.
        unsafe { _mm512_storeu_ps(x[at..at + 16].as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_f32_bytes(self, bytes: &[u8], at: usize) -> __m512 {
        self.as_f32(self.load_codes(bytes, at))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8], at: usize) -> __m512 {
        // SAFETY: the token proves the CPU features, and the checked address that the bytes are inside.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(address::<32>(bytes, at).cast())) }
    }
    #[inline(always)]
    fn load_pairs(self, bytes: &[u8], at: usize) -> __m512i {
        // SAFETY: the token proves the CPU features, and the order has 64 bytes.
        unsafe { _mm512_permutexvar_epi16(_mm512_loadu_si512(PAIRS.as_ptr().cast()), self.load_codes(bytes, at)) }
    }
    #[inline(always)]
    fn dot_bf16(self, _: Avx512Bf16, acc: __m512, pairs: __m512i, x: u32) -> __m512 {
        // SAFETY: the tokens prove the CPU features.
        unsafe { _mm512_dpbf16_ps(acc, as_bf16(pairs), as_bf16(_mm512_set1_epi32(x as i32))) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        registers!(self, _mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        registers!(self, _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x))
    }
}
