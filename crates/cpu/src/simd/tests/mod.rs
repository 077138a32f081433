//! Compares every operation of every level with plain Rust.

mod access;

use crate::Level;
use gristmill_kernels::simd::{Kernel, Simd};
use proptest::prelude::*;

/// A check that runs at every level of this CPU.
trait Check {
    fn check<S: Simd>(&self, s: S);
}

/// Runs the check inside a function with the level's features, as kernels run.
struct Inside<'a, C>(&'a C);

impl<C: Check> Kernel for Inside<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.check(s);
    }
}

fn at_every_level(check: &impl Check) {
    for name in Level::NAMES {
        match Level::named(name) {
            Ok(level) => level.run(Inside(check)),
            Err(_) => println!("{name}: skipped, this CPU does not have it"),
        }
    }
}

#[inline(always)]
fn bytes<S: Simd>(s: S, v: S::Codes) -> [u8; 64] {
    let mut out = [0; 64];
    s.store_codes(v, &mut out, 0);
    out
}

#[inline(always)]
fn ints<S: Simd>(s: S, v: S::I32) -> [i32; 16] {
    let bytes = bytes(s, s.as_codes(v));
    std::array::from_fn(|r| i32::from_le_bytes([bytes[4 * r], bytes[4 * r + 1], bytes[4 * r + 2], bytes[4 * r + 3]]))
}

/// Equal bits, or both NaN: sign and payload of NaN depend on the CPU.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[track_caller]
fn assert_same(got: [f32; 16], want: impl Fn(usize) -> f32) {
    for (r, got) in got.into_iter().enumerate() {
        assert!(same(got, want(r)), "lane {r}: {got:e}, not {:e}", want(r));
    }
}

/// Random input of one case, rich in extreme values.
#[derive(Debug, Clone)]
struct Case {
    a: [u8; 64],
    b: [u8; 64],
    table: [i8; 16],
    x: [i8; 4],
    shift: u32,
    mask: u8,
}

fn case() -> impl Strategy<Value = Case> {
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(vec![0u8, 1, 127, 128, 129, 255])];
    let word = || {
        let extreme: Vec<u32> = vec![
            0,
            1,
            0x7fff_ffff,
            0x8000_0000,
            0x8000_0001,
            0xffff_ffff,
            0x007f_ffff,
            0x0080_0000,
            0x3f80_0000,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0000,
            0xff80_0000,
        ];
        let four = (byte(), byte(), byte(), byte()).prop_map(|(a, b, c, d)| u32::from_le_bytes([a, b, c, d]));
        prop_oneof![four, any::<u32>(), any::<f32>().prop_map(f32::to_bits), prop::sample::select(extreme)]
    };
    let vector =
        move || prop::collection::vec(word(), 16).prop_map(|w| std::array::from_fn(|i| w[i / 4].to_le_bytes()[i % 4]));
    let x = prop_oneof![-127i8..=127, prop::sample::select(vec![-127i8, 0, 127])];
    (vector(), vector(), any::<[i8; 16]>(), [x.clone(), x.clone(), x.clone(), x], 0u32..32, any::<u8>())
        .prop_map(|(a, b, table, x, shift, mask)| Case { a, b, table, x, shift, mask })
}

fn int(bytes: &[u8; 64], r: usize) -> i32 {
    i32::from_le_bytes(bytes[4 * r..4 * r + 4].try_into().unwrap())
}

fn float(bytes: &[u8; 64], r: usize) -> f32 {
    f32::from_bits(int(bytes, r) as u32)
}

struct Codes(Case);

impl Check for Codes {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let Case { a, b, table, x, shift, mask } = &self.0;
        let (va, vb) = (s.load_codes(a, 0), s.load_codes(b, 0));
        assert_eq!(bytes(s, va), *a);
        assert_eq!(bytes(s, s.splat_codes(*mask)), [*mask; 64]);
        assert_eq!(bytes(s, s.and(va, vb)), std::array::from_fn(|i| a[i] & b[i]));
        assert_eq!(bytes(s, s.or(va, vb)), std::array::from_fn(|i| a[i] | b[i]));
        assert_eq!(bytes(s, s.add_codes(va, vb)), std::array::from_fn(|i| a[i].wrapping_add(b[i])));
        let n = shift % 8;
        let right = mask & 255 >> n;
        let left = mask & 255 << n;
        assert_eq!(bytes(s, s.shr_and(va, n, right)), a.map(|v| v >> n & right));
        assert_eq!(bytes(s, s.shl_and(va, n, left)), a.map(|v| v << n & left));
        let index = a.map(|v| v & 15);
        assert_eq!(bytes(s, s.lookup(table, s.load_codes(&index, 0))), index.map(|v| table[usize::from(v)] as u8));
        let halves = [*table, table.map(|entry| !entry)];
        let found = s.lookup_half(&halves, s.load_codes(&index, 0), vb);
        let half = |i: usize| &halves[usize::from(b[i] >> 7)];
        assert_eq!(bytes(s, found), std::array::from_fn(|i| half(i)[usize::from(index[i])] as u8));
        let entries = std::array::from_fn::<u32, 64, _>(|i| int(b, i % 16) as u32 ^ i as u32);
        let found = s.gather(&entries, s.load_i32(a, 0));
        assert_eq!(ints(s, found), std::array::from_fn(|r| entries[int(a, r) as usize % 64] as i32));
        for i in 0..4 {
            let byte = |r: usize| a[4 * r + i as usize];
            assert_eq!(ints(s, s.byte(va, i)), std::array::from_fn(|r| i32::from(byte(r))));
            assert_eq!(ints(s, s.byte_signed(va, i)), std::array::from_fn(|r| i32::from(byte(r) as i8)));
        }

        // Half the range for the sum so far, so that no sum overflows.
        let sum: [i32; 16] = std::array::from_fn(|r| int(b, r) / 2);
        let acc = s.load_i32(&sum.map(i32::to_le_bytes).concat(), 0);
        let word = i32::from_le_bytes(x.map(|x| x as u8));
        let dot = |code: &dyn Fn(u8) -> i32| -> [i32; 16] {
            std::array::from_fn(|r| (0..4).fold(sum[r], |sum, i| sum + code(a[4 * r + i]) * i32::from(x[i])))
        };
        let unsigned = s.and(va, s.splat_codes(127));
        assert_eq!(ints(s, s.dot(acc, unsigned, word)), dot(&|c| i32::from(c & 127)));
        assert_eq!(ints(s, s.dot_signed(acc, s.signed_codes(va), word)), dot(&|c| i32::from(c as i8) + S::SIGNED_BIAS));
        self.dots::<S, 1, 4>(s);
        self.dots::<S, 4, 4>(s);
        self.dots::<S, 1, 8>(s);
        self.dots::<S, 4, 8>(s);
        self.dots::<S, 8, 8>(s);
    }
}

impl Codes {
    /// `N` rows times `J` words are as many dot products.
    #[inline(always)]
    fn dots<S: Simd, const N: usize, const J: usize>(&self, s: S) {
        let Case { a, b, x, .. } = &self.0;
        let word = |i: usize| i32::from_le_bytes(std::array::from_fn(|b| x[(i + b) % 4].wrapping_mul(i as i8) as u8));
        // Words of −128 do not occur.
        let word = |i: usize| i32::from_le_bytes(word(i).to_le_bytes().map(|x| if x == 128 { 1 } else { x }));
        let words: [[i32; J]; N] = std::array::from_fn(|t| std::array::from_fn(|j| word(8 * t + j)));
        let start: [i32; N] = std::array::from_fn(|t| int(b, t) / 2);
        let mut signed = [s.load_codes(a, 0); J];
        for j in 0..J {
            signed[j] = s.shl_and(s.load_codes(if j % 2 == 0 { a } else { b }, 0), j as u32 / 2, 255 << (j / 2));
        }
        let rows: [&[i32; J]; N] = std::array::from_fn(|t| &words[t]);
        let mut prepared = signed;
        for j in 0..J {
            prepared[j] = s.signed_codes(signed[j]);
        }
        let sums = s.dots(true, 1, start, &prepared, rows);
        for t in 0..N {
            let mut want = s.splat_i32(start[t]);
            for j in 0..J {
                want = s.dot_signed(want, prepared[j], words[t][j]);
            }
            assert_eq!(ints(s, sums[t]), ints(s, want), "row {t} of {N}, {J} words, signed");
        }
        // With more bits for codes, fewer products fit into 16 bits.
        for (largest, pair_sums) in [(127, 1), (63, 2), (31, 4), (15, 8), (7, 18), (3, 43)] {
            let mut codes = signed;
            for j in 0..J {
                codes[j] = s.and(signed[j], s.splat_codes(largest));
            }
            let sums = s.dots(false, pair_sums, start, &codes, rows);
            for t in 0..N {
                let mut want = s.splat_i32(start[t]);
                for j in 0..J {
                    want = s.dot(want, codes[j], words[t][j]);
                }
                assert_eq!(ints(s, sums[t]), ints(s, want), "row {t} of {N}, {J} words, codes up to {largest}");
            }
            self.scaled_dots(s, pair_sums, &codes, rows);
        }
    }
}

impl Codes {
    /// Scales multiply the dot products, as integers.
    #[inline(always)]
    fn scaled_dots<S: Simd, const N: usize, const J: usize>(
        &self,
        s: S,
        pair_sums: usize,
        codes: &[S::Codes; J],
        rows: [&[i32; J]; N],
    ) {
        let scales = self.0.b.map(|b| i32::from(b as i8));
        let sums = std::array::from_fn::<i32, 16, _>(|r| int(&self.0.a, r) / 4);
        let lanes = |values: &[i32; 16]| s.load_i32(&values.map(i32::to_le_bytes).concat(), 0);
        let scales: [i32; 16] = std::array::from_fn(|r| scales[4 * r]);
        let from = lanes(&sums);
        let scaled = s.scaled_dots(false, pair_sums, [from; N], codes, &s.dot_scales(lanes(&scales)), rows);
        let dots = s.dots(false, pair_sums, [0; N], codes, rows);
        for t in 0..N {
            let dots = ints(s, dots[t]);
            let want: [i32; 16] = std::array::from_fn(|r| sums[r] + scales[r] * dots[r]);
            assert_eq!(ints(s, scaled[t]), want, "row {t} of {N}, {J} words, scales {scales:?}");
        }
    }
}

struct Ints(Case);

impl Check for Ints {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let Case { a, b, shift, .. } = &self.0;
        let n = *shift;
        let (va, vb) = (s.load_i32(a, 0), s.load_i32(b, 0));
        let each = |f: fn(i32, i32) -> i32| -> [i32; 16] { std::array::from_fn(|r| f(int(a, r), int(b, r))) };
        assert_eq!(ints(s, va), each(|a, _| a));
        assert_eq!(bytes(s, s.as_codes(va)), *a);
        assert_eq!(bytes(s, s.as_codes(s.as_i32(s.as_codes(va)))), *a);
        assert_eq!(ints(s, s.splat_i32(int(a, 0))), [int(a, 0); 16]);
        for at in 0..32 {
            assert_eq!(ints(s, s.load_u8(a, at)), std::array::from_fn(|r| i32::from(a[at + r])));
            assert_eq!(ints(s, s.load_i8(a, at)), std::array::from_fn(|r| i32::from(a[at + r] as i8)));
            let half = |r: usize| u16::from_le_bytes([a[at + 2 * r], a[at + 2 * r + 1]]);
            assert_eq!(ints(s, s.load_u16(a, at)), std::array::from_fn(|r| i32::from(half(r))));
        }
        let two = [&a[..], &b[..]].concat();
        for at in 0..64 {
            let half = |i: usize| i32::from(u16::from_le_bytes([two[at + 2 * i], two[at + 2 * i + 1]]));
            assert_eq!(ints(s, s.load_pairs(&two, at)), std::array::from_fn(|r| half(r) | half(16 + r) << 16));
        }
        let signed = |pair: i32| [i32::from(pair as i16), pair >> 16];
        assert_eq!(ints(s, s.pairs(va, vb)), each(|a, b| a & 0xffff | b << 16));
        // The sum of two products of −32,768 would not fit.
        let x = int(b, 0) & !0x8000;
        let [low, high] = signed(x);
        let dots = each(|a, _| a).map(|a| signed(a)[0].wrapping_mul(low).wrapping_add(signed(a)[1].wrapping_mul(high)));
        assert_eq!(ints(s, s.dot_pairs(s.splat_i32(7), va, x)), dots.map(|sum| sum.wrapping_add(7)));
        assert_eq!(ints(s, s.and_i32(va, vb)), each(|a, b| a & b));
        assert_eq!(ints(s, s.or_i32(va, vb)), each(|a, b| a | b));
        assert_eq!(ints(s, s.add_i32(va, vb)), each(i32::wrapping_add));
        assert_eq!(ints(s, s.mul_i32(va, vb)), each(i32::wrapping_mul));
        assert_eq!(ints(s, s.shr_i32(va, n)), std::array::from_fn(|r| (int(a, r) as u32 >> n) as i32));
        assert_eq!(ints(s, s.shl_i32(va, n)), std::array::from_fn(|r| int(a, r) << n));
        let selected = s.select_gt(va, vb, s.splat_i32(1), s.splat_i32(-1));
        assert_eq!(ints(s, selected), each(|a, b| if a > b { 1 } else { -1 }));
        assert_eq!(ints(s, s.select_gt(va, va, s.splat_i32(1), vb)), each(|_, b| b));
        assert_same(s.to_array(s.to_f32(va)), |r| int(a, r) as f32);
        assert_eq!(s.to_array(s.as_f32(va)).map(f32::to_bits), each(|a, _| a).map(|a| a as u32));
    }
}

struct Floats(Case);

impl Check for Floats {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let Case { a, b, .. } = &self.0;
        let c: [f32; 16] = std::array::from_fn(|r| float(a, 15 - r));
        let va = s.load_f32_bytes(a, 0);
        let vb = s.load_f32_bytes(b, 0);
        let vc = s.load_f32(&c, 0);
        let (a, b) = (|r| float(a, r), |r| float(b, r));
        assert_same(s.to_array(va), a);
        assert_same(s.to_array(vc), |r| c[r]);
        assert_same(s.to_array(s.splat(c[0])), |_| c[0]);
        let mut stored = [1.0; 18];
        s.store_f32(vc, &mut stored, 1);
        assert!(same(stored[1], c[0]) && same(stored[16], c[15]) && stored[0] == 1.0 && stored[17] == 1.0);
        assert_same(s.to_array(s.add(va, vb)), |r| a(r) + b(r));
        assert_same(s.to_array(s.sub(va, vb)), |r| a(r) - b(r));
        assert_same(s.to_array(s.mul(va, vb)), |r| a(r) * b(r));
        assert_same(s.to_array(s.max(va, vb)), |r| if a(r) > b(r) { a(r) } else { b(r) });
        assert_same(s.to_array(s.min(va, vb)), |r| if a(r) < b(r) { a(r) } else { b(r) });
        assert_same(s.to_array(s.div(va, vb)), |r| a(r) / b(r));
        for (r, got) in ints(s, s.round_i32(va)).into_iter().enumerate() {
            // Beyond the range of i32 any number will do. The limits are powers of two, exact in f32.
            if (-2147483648.0..2147483648.0).contains(&a(r)) {
                assert_eq!(got, a(r).round_ties_even() as i32, "lane {r}: {:e}", a(r));
            }
        }
        let ties: [f32; 16] = std::array::from_fn(|r| r as f32 - 7.5);
        assert_eq!(ints(s, s.round_i32(s.load_f32(&ties, 0))), ties.map(|v| v.round_ties_even() as i32));
        for (r, got) in s.to_array(s.mul_add(va, vb, vc)).into_iter().enumerate() {
            let once = a(r).mul_add(b(r), c[r]);
            let twice = a(r) * b(r) + c[r];
            assert!(same(got, once) || same(got, twice), "lane {r}: {got:e}, not {once:e} or {twice:e}");
        }
    }
}

/// The numbers of a pair of bfloat16; denormals are zero.
fn normals(pair: u32) -> [f64; 2] {
    [pair << 16, pair & 0xffff_0000].map(f32::from_bits).map(|x| if x.is_subnormal() { 0.0 } else { f64::from(x) })
}

struct Bf16(Case);

impl Check for Bf16 {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let Some(proof) = s.bf16() else {
            println!("bfloat16: skipped, this CPU or its level does not multiply it");
            return;
        };
        let Case { a, b, table, .. } = &self.0;
        let acc: [f32; 16] = std::array::from_fn(|r| float(b, r));
        // Both extreme pairs and those of usual size.
        for x in [int(b, 0) as u32, u32::from_le_bytes([table[0] as u8, 0x3f, table[1] as u8, 0xbf])] {
            let got = s.to_array(s.dot_bf16(proof, s.load_f32(&acc, 0), s.load_i32(a, 0), x));
            for (r, got) in got.into_iter().enumerate() {
                let [w0, w1] = normals(int(a, r) as u32);
                let [x0, x1] = normals(x);
                let terms = [f64::from(acc[r]), w0 * x0, w1 * x1];
                let (sum, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
                if !size.is_finite() {
                    assert!(!got.is_finite(), "lane {r}: {got:e} of {terms:?}");
                } else if size < f64::from(f32::MAX) {
                    // A rounding to 24 bits for each of two or three steps, and numbers below the normal ones are lost.
                    let most = size * 2.0_f64.powi(-22) + 4.0 * f64::from(f32::MIN_POSITIVE);
                    assert!((f64::from(got) - sum).abs() <= most, "lane {r}: {got:e}, not {sum:e} of {terms:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn pairs_of_bfloat16_are_multiplied(case in case()) {
        at_every_level(&Bf16(case));
    }

    #[test]
    fn codes_are_those_of_plain_rust(case in case()) {
        at_every_level(&Codes(case));
    }

    #[test]
    fn integers_are_those_of_plain_rust(case in case()) {
        at_every_level(&Ints(case));
    }

    #[test]
    fn floats_are_those_of_plain_rust(case in case()) {
        at_every_level(&Floats(case));
    }
}

struct DotExtremes;

impl Check for DotExtremes {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        for code in [0u8, 1, 126, 127, 128, 129, 255] {
            for x in [-127i8, -1, 0, 1, 127] {
                let codes = s.splat_codes(code);
                let word = i32::from_le_bytes([x as u8; 4]);
                let x = i32::from(x);
                if code <= 127 {
                    assert_eq!(ints(s, s.dot(s.splat_i32(5), codes, word)), [5 + 4 * i32::from(code) * x; 16]);
                }
                let signed = i32::from(code as i8) + S::SIGNED_BIAS;
                assert_eq!(
                    ints(s, s.dot_signed(s.splat_i32(5), s.signed_codes(codes), word)),
                    [5 + 4 * signed * x; 16]
                );
            }
        }
    }
}

#[test]
fn dot_products_do_not_saturate() {
    at_every_level(&DotExtremes);
}

struct EveryHalf;

impl Check for EveryHalf {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for first in (0..=u16::MAX).step_by(16) {
            let at = 2 * usize::from(first);
            let bits = |r: usize| first + r as u16;
            assert_same(s.to_array(s.load_f16(&halves, at)), |r| half::f16::from_bits(bits(r)).to_f32_const());
            assert_same(s.to_array(s.load_bf16(&halves, at)), |r| f32::from_bits(u32::from(bits(r)) << 16));
        }
    }
}

#[test]
fn every_half_loads() {
    at_every_level(&EveryHalf);
}
