//! The operations of a CPU level.

use super::slice::{Int8Block, WeightSlice};

/// Generic code that [`Simd::run`] compiles with the features of a level.
pub trait Kernel {
    /// The kernel's result.
    type Output;
    /// The body; mark it `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// One CPU level: 16-lane vectors. Loads have a slice and an offset, and panic if the load exceeds the slice.
pub trait Simd: Copy + Send + Sync + 'static {
    /// 16 lanes × 4 bytes.
    type Codes: Copy + 'static;
    /// 16 lanes of i32.
    type I32: Copy + 'static;
    /// 16 lanes of f32.
    type F32: Copy + 'static;
    /// Proof that this CPU multiplies pairs of bfloat16. A level does not require it: not all of its CPUs do.
    type Bf16: Copy;

    /// The number that [`Simd::dot_signed`] adds to the dot product for each activation, times the activation.
    const SIGNED_BIAS: i32;
    /// Activation rows that one pass over a weight tile serves: as many accumulators as the registers hold.
    const TOKENS: usize;
    /// Multiplying by integer scales ([`Simd::scaled_dots`]) takes fewer instructions than by floats.
    const INTEGER_SCALES: bool = false;
    /// The best number of activation rows for one call of [`Simd::dots`]: 2, 4 or 8, so that their integer sums fit
    /// into registers.
    const INT8_ROWS: usize;
    /// [`Simd::dot_pairs`] is a single instruction, so that integer sums rather start with it than with a product that
    /// is computed for each activation row.
    const FAST_PAIRS: bool = false;

    /// Runs a kernel inside a function that has the level's target features. There is one such function for each kernel,
    /// so a kernel that another kernel runs is compiled once for all of its callers.
    fn run<K: Kernel>(self, kernel: K) -> K::Output;
    /// Whether a product with one activation row prefetches the weights of every format, not only of those whose bytes
    /// are read in bursts. It helps where the hardware's prefetcher falls behind, which depends on the CPU.
    #[inline(always)]
    fn prefetches(self) -> bool {
        false
    }
    /// The proof, if this CPU gives it.
    fn bf16(self) -> Option<Self::Bf16>;
    /// Runs a kernel that uses [`Simd::dot_bf16`], as [`Simd::run`] does: only in here is that a single instruction.
    fn run_bf16<K: Kernel>(self, proof: Self::Bf16, kernel: K) -> K::Output;

    /// Loads 64 bytes.
    fn load_codes(self, bytes: &[u8], at: usize) -> Self::Codes;
    /// Stores 64 bytes.
    fn store_codes(self, v: Self::Codes, bytes: &mut [u8], at: usize);
    /// Every byte the same.
    fn splat_codes(self, byte: u8) -> Self::Codes;
    /// Each byte shifted right by `n < 8` and masked; `mask` must clear what came from the neighbouring byte.
    fn shr_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes;
    /// Each byte shifted left by `n < 8` and masked; `mask` must clear what came from the neighbouring byte.
    fn shl_and(self, v: Self::Codes, n: u32, mask: u8) -> Self::Codes;
    /// Bitwise and.
    fn and(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// Bitwise or.
    fn or(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// Wrapping sum of each byte.
    fn add_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// Each byte (0..16) replaced by its entry of the table.
    fn lookup(self, table: &[i8; 16], v: Self::Codes) -> Self::Codes;
    /// Each byte (0..16) replaced by its entry of one half of the table: of the upper half where bit 7 of `upper` is set.
    fn lookup_half(self, table: &[[i8; 16]; 2], v: Self::Codes, upper: Self::Codes) -> Self::Codes;
    /// Each lane's entry of the table, which has a power of two of entries: as many low bits of the index count.
    fn gather<const N: usize>(self, table: &[u32; N], index: Self::I32) -> Self::I32;
    /// acc + Σ of the lane's four unsigned codes (≤ 127) × the four signed bytes of `x` (little-endian).
    fn dot(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32;
    /// Signed codes as [`Simd::dot_signed`] reads them.
    #[inline(always)]
    fn signed_codes(self, v: Self::Codes) -> Self::Codes {
        v
    }
    /// acc + Σ of the lane's four (signed codes + [`Simd::SIGNED_BIAS`]) × the four signed bytes of `x` (not −128). The
    /// codes have passed [`Simd::signed_codes`].
    fn dot_signed(self, acc: Self::I32, codes: Self::Codes, x: i32) -> Self::I32;
    /// For each of `N` activation rows, `start` + Σ over `4 · J` columns: [`Simd::dot`], or [`Simd::dot_signed`] if
    /// codes are `signed`, of codes `j` and word `j`. Sums of `pair_sums` products of two columns fit into 16 bits.
    #[inline(always)]
    fn dots<const N: usize, const J: usize>(
        self,
        signed: bool,
        _pair_sums: usize,
        start: [i32; N],
        codes: &[Self::Codes; J],
        x: [&[i32; J]; N],
    ) -> [Self::I32; N] {
        let mut sums = [self.splat_i32(0); N];
        for t in 0..N {
            sums[t] = self.splat_i32(start[t]);
        }
        for j in 0..J {
            for t in 0..N {
                let x = x[t][j];
                sums[t] = if signed { self.dot_signed(sums[t], codes[j], x) } else { self.dot(sums[t], codes[j], x) };
            }
        }
        sums
    }
    /// For each of eight activation rows, out += Σ over the slices, with one scale for 32 columns, of scale · x's scale
    /// · (Σ of code · x + `bias` · Σ of x), and if `has_min` − minimum · x's sum; or returns false and does nothing, if
    /// the level has no loop of its own for it. Both give the same bits. The scales and minima are the first of each
    /// slice; `bias` has 16 bits; each row has as many blocks as there are slices.
    #[inline(always)]
    #[must_use]
    fn multiply_eight(
        self,
        _slices: &[WeightSlice<Self>],
        _rows: [&[Int8Block]; 8],
        _bias: i32,
        _has_min: bool,
        _out: &mut [[f32; 16]; 8],
    ) -> bool {
        false
    }
    /// Integer scales, at most 128 in magnitude, as [`Simd::scaled_dots`] reads them.
    #[inline(always)]
    fn dot_scales(self, scales: Self::I32) -> Self::I32 {
        scales
    }
    /// For each of `N` activation rows, `sums` + scale · [`Simd::dots`] from 0. The scales have passed
    /// [`Simd::dot_scales`].
    #[inline(always)]
    fn scaled_dots<const N: usize, const J: usize>(
        self,
        signed: bool,
        pair_sums: usize,
        sums: [Self::I32; N],
        codes: &[Self::Codes; J],
        scales: &Self::I32,
        x: [&[i32; J]; N],
    ) -> [Self::I32; N] {
        let mut sums = sums;
        let dots = self.dots::<N, J>(signed, pair_sums, [0; N], codes, x);
        for t in 0..N {
            sums[t] = self.add_i32(sums[t], self.mul_i32(dots[t], *scales));
        }
        sums
    }
    /// Byte `i < 4` of each lane, zero-extended.
    fn byte(self, v: Self::Codes, i: u32) -> Self::I32;
    /// Byte `i < 4` of each lane, sign-extended.
    fn byte_signed(self, v: Self::Codes, i: u32) -> Self::I32;
    /// The lanes' bits as four bytes each.
    fn as_codes(self, v: Self::I32) -> Self::Codes;
    /// Four bytes each as the bits of a lane.
    fn as_i32(self, v: Self::Codes) -> Self::I32;

    /// Prefetches the cache line of the byte at `at`, which may be behind the slice.
    #[inline(always)]
    fn prefetch(self, _bytes: &[u8], _at: usize) {}

    /// All lanes the same.
    fn splat_i32(self, x: i32) -> Self::I32;
    /// Loads 16 unsigned bytes.
    fn load_u8(self, bytes: &[u8], at: usize) -> Self::I32;
    /// Loads 16 signed bytes.
    fn load_i8(self, bytes: &[u8], at: usize) -> Self::I32;
    /// Loads 16 unsigned 16-bit numbers.
    fn load_u16(self, bytes: &[u8], at: usize) -> Self::I32;
    /// Loads 16 32-bit numbers.
    fn load_i32(self, bytes: &[u8], at: usize) -> Self::I32;
    /// Bitwise and.
    fn and_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Bitwise or.
    fn or_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Logical shift right by `n < 32`.
    fn shr_i32(self, v: Self::I32, n: u32) -> Self::I32;
    /// Shift left by `n < 32`.
    fn shl_i32(self, v: Self::I32, n: u32) -> Self::I32;
    /// Wrapping sum.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Wrapping product.
    fn mul_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Lane by lane `if a > b { x } else { y }`, signed.
    fn select_gt(self, a: Self::I32, b: Self::I32, x: Self::I32, y: Self::I32) -> Self::I32;
    /// Converts to f32, rounding to nearest.
    fn to_f32(self, v: Self::I32) -> Self::F32;
    /// The same bits as f32.
    fn as_f32(self, v: Self::I32) -> Self::F32;

    /// All lanes the same.
    fn splat(self, x: f32) -> Self::F32;
    /// Loads 16 floats from a slice of floats.
    fn load_f32(self, x: &[f32], at: usize) -> Self::F32;
    /// Stores 16 floats.
    fn store_f32(self, v: Self::F32, x: &mut [f32], at: usize);
    /// Loads 16 binary32 from bytes.
    fn load_f32_bytes(self, bytes: &[u8], at: usize) -> Self::F32;
    /// Loads 16 binary16 from bytes.
    fn load_f16(self, bytes: &[u8], at: usize) -> Self::F32;
    /// Loads 16 bfloat16 from bytes.
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8], at: usize) -> Self::F32 {
        self.as_f32(self.shl_i32(self.load_u16(bytes, at), 16))
    }
    /// Two numbers of 16 bits in each lane.
    #[inline(always)]
    fn pairs(self, low: Self::I32, high: Self::I32) -> Self::I32 {
        self.or_i32(self.and_i32(low, self.splat_i32(0xffff)), self.shl_i32(high, 16))
    }
    /// acc + the lane's signed pair · the signed pair `x`: lower half times lower half plus upper times upper.
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I32, pairs: Self::I32, x: i32) -> Self::I32 {
        let low = self.and_i32(pairs, self.splat_i32(0xffff));
        let high = self.shr_i32(pairs, 16);
        let most = self.splat_i32(0x7fff);
        let negative = self.splat_i32(-0x1_0000);
        let low = self.select_gt(low, most, self.add_i32(low, negative), low);
        let high = self.select_gt(high, most, self.add_i32(high, negative), high);
        let products = self.mul_i32(low, self.splat_i32(i32::from(x as i16)));
        self.add_i32(acc, self.add_i32(products, self.mul_i32(high, self.splat_i32(x >> 16))))
    }
    /// Loads 32 16-bit numbers: number r is the lower half of lane r, number 16 + r its upper half.
    #[inline(always)]
    fn load_pairs(self, bytes: &[u8], at: usize) -> Self::I32 {
        let lower = self.load_u16(bytes, at);
        self.or_i32(lower, self.shl_i32(self.load_u16(bytes, at + 32), 16))
    }
    /// acc + the lane's pair of bfloat16 · the pair `x`: lower half times lower half plus upper times upper, in any
    /// order. Denormals count as zero.
    fn dot_bf16(self, proof: Self::Bf16, acc: Self::F32, pairs: Self::I32, x: u32) -> Self::F32;
    /// a + b.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a − b.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a · b.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a · b + c, fused where the level has it.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// The larger of two; `b` if either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The smaller of two; `b` if either is NaN.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane by lane `if a < b { x } else { y }`; `y` if either is NaN.
    #[inline(always)]
    fn select_lt(self, a: Self::F32, b: Self::F32, x: Self::F32, y: Self::F32) -> Self::F32 {
        let (a, b, x, y) = (self.to_array(a), self.to_array(b), self.to_array(x), self.to_array(y));
        let mut out = y;
        for lane in 0..16 {
            if a[lane] < b[lane] {
                out[lane] = x[lane];
            }
        }
        self.load_f32(&out, 0)
    }
    /// a / b.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The nearest integer, ties to even; any number if it does not fit.
    fn round_i32(self, v: Self::F32) -> Self::I32;
    /// Lanes as an array.
    #[inline(always)]
    fn to_array(self, v: Self::F32) -> [f32; 16] {
        let mut out = [0.0; 16];
        self.store_f32(v, &mut out, 0);
        out
    }
}
