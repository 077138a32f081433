//! Every format at every level: what `codes` and `scales` unpack from a tile is what `decode` says.

use gristmill_cpu::Level;
use gristmill_cpu::layout::{ROWS, interleave};
use gristmill_kernels::format::{BlockFormat, Float, Format, Quantised, with_format, with_format_kind};
use gristmill_kernels::simd::{Kernel, Simd};
use proptest::prelude::*;
use std::marker::PhantomData;

/// Unpacks a whole tile into the values of its 16 rows.
struct Rebuild<'a, F>(&'a [u8], PhantomData<F>);

impl<F: Quantised> Kernel for Rebuild<'_, F> {
    type Output = Vec<Vec<f32>>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut rows = vec![vec![0.0; F::BLOCK]; ROWS];
        for g in 0..F::BLOCK / 32 {
            let (codes, scales) = (F::codes(s, self.0, g), F::scales(s, self.0, g));
            for k in 0..32 {
                let (codes, part) = (codes[k / 4], scales[k / 16]);
                let mut bytes = [0; 64];
                s.store_codes(codes, &mut bytes, 0);
                let magnitude = |b: u8| if F::SIGNED { (b as i8).unsigned_abs() } else { b };
                assert!(bytes.iter().all(|&b| i32::from(magnitude(b)) <= F::LARGEST), "a code exceeds LARGEST");
                let i = k as u32 % 4;
                let code = if F::SIGNED { s.byte_signed(codes, i) } else { s.byte(codes, i) };
                let code = s.to_f32(s.add_i32(code, s.splat_i32(-F::ZERO)));
                let value = s.mul(part.scale, code);
                let value = s.to_array(if F::HAS_MIN { s.sub(value, part.min) } else { value });
                for (row, value) in rows.iter_mut().zip(value) {
                    row[32 * g + k] = value;
                }
            }
        }
        rows
    }
}

/// Equal bits, or both NaN (whose sign and payload no format defines).
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Scale, code and minimum are the decoder's own f32 numbers and the expression is the same, so the bits are too.
fn check<F: Quantised>(level: Level, bytes: &[u8]) {
    let blocks: Vec<&[u8]> = bytes.chunks_exact(F::BYTES).take(ROWS).collect();
    let mut tile = vec![0; ROWS * F::BYTES];
    interleave(F::PLANES, &blocks, &mut tile);
    let rows = level.run(Rebuild::<F>(&tile, PhantomData));
    let mut want = vec![0.0; F::BLOCK];
    for (r, block) in blocks.iter().enumerate() {
        F::decode(block, &mut want);
        for (k, (&got, &want)) in rows[r].iter().zip(&want).enumerate() {
            assert!(same(got, want), "{}, row {r}, element {k}: {got} unpacked, {want} decoded", level.name());
        }
    }
}

/// Loads a column of a tile of floats.
struct Load<'a, F>(&'a [u8], usize, PhantomData<F>);

impl<F: Float> Kernel for Load<'_, F> {
    type Output = [f32; ROWS];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        s.to_array(F::load(s, self.0, self.1))
    }
}

/// Columns of floats are the decoder's numbers, at every level that this CPU has.
fn check_floats<F: Float>(bytes: &[u8]) {
    let blocks: Vec<&[u8]> = bytes.chunks_exact(F::BYTES).take(ROWS).collect();
    let mut tile = vec![0; ROWS * F::BYTES];
    interleave(F::PLANES, &blocks, &mut tile);
    let mut want = vec![vec![0.0; F::BLOCK]; ROWS];
    blocks.iter().zip(&mut want).for_each(|(block, want)| F::decode(block, want));
    for level in Level::NAMES.iter().filter_map(|name| Level::named(name).ok()) {
        for k in 0..F::BLOCK {
            let got = level.run(Load::<F>(&tile, k, PhantomData));
            for (&got, want) in got.iter().zip(&want) {
                assert!(same(got, want[k]), "{}, column {k}: {got} loaded, {} decoded", level.name(), want[k]);
            }
        }
    }
}

/// Runs `check` at every level that this CPU has.
fn check_levels<F: Quantised>(bytes: &[u8]) {
    for name in Level::NAMES {
        match Level::named(name) {
            Ok(level) => check::<F>(level, bytes),
            Err(_) => println!("{name}: skipped, this CPU does not have it"),
        }
    }
}

#[test]
fn planes_cover_the_block() {
    for &format in Format::ALL {
        let planes = format.planes();
        assert_eq!(planes.iter().map(|p| p.bytes).sum::<usize>(), format.block_bytes(), "{format}");
        assert!(planes.iter().all(|p| [1, 2, 4].contains(&p.unit) && p.bytes % p.unit == 0), "{format}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Uniformly random bytes: a sixteenth of all f16 scales is subnormal, and some are infinite or NaN.
    #[test]
    fn unpacking_equals_decoding(
        random in prop::collection::vec(any::<u8>(), ROWS * 256),
        extreme in prop::sample::select(vec![None, Some(0u8), Some(0x7f), Some(0x80), Some(0xff)]),
    ) {
        for &format in Format::ALL {
            let mut bytes = random[..ROWS * format.block_bytes()].to_vec();
            if let Some(byte) = extreme {
                bytes[..format.block_bytes()].fill(byte);
            }
            with_format_kind!(format, float F => check_floats::<F>(&bytes), quantised F => check_levels::<F>(&bytes));
        }
    }
}

/// Σ(decode(encode(x)) − x)² / Σx² over standard-normal values: enough that the result of Q4_0, of which 64 K values
/// differ by 1.5% from run to run, is 4 standard deviations below the stated one. Encoders that only serve tests search
/// slowly and get fewer values; their statements leave 5%.
fn nmse(format: Format, seed: u64) -> f64 {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let count = if format.is_read_only() { 32 } else { 512 } * 1024;
    let values: Vec<f32> = (0..count)
        .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
        .collect();
    let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
    let mut decoded = vec![0.0; values.len()];
    format.encode(&values, &mut bytes).unwrap();
    format.decode(&bytes, &mut decoded).unwrap();
    let square = |x: f64| x * x;
    let noise: f64 = values.iter().zip(&decoded).map(|(v, d)| square(f64::from(*v) - f64::from(*d))).sum();
    noise / values.iter().map(|v| square(f64::from(*v))).sum::<f64>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1))]

    #[test]
    fn encoding_is_as_good_as_stated(seed: u64) {
        for &format in Format::ALL {
            let got = nmse(format, seed);
            let stated = with_format!(format, F => F::ENCODE_NMSE);
            println!("{format}: {got:.3e} of {stated:.1e}");
            assert!(got <= stated, "{format}: NMSE {got:.3e}, stated {stated:.1e}");
        }
    }
}

/// `value(i)` of whole blocks, and what is left of them after encoding and decoding.
fn round_trip(format: Format, value: impl Fn(usize) -> f32) -> (Vec<f32>, Vec<f32>) {
    let values: Vec<f32> = (0..format.block_len().max(16)).map(value).collect();
    let mut bytes = vec![0xaa; format.row_bytes(values.len()).unwrap()];
    let mut decoded = vec![f32::NAN; values.len()];
    format.encode(&values, &mut bytes).unwrap();
    format.decode(&bytes, &mut decoded).unwrap();
    (values, decoded)
}

#[test]
fn zeros_encode_to_zeros() {
    for &format in Format::ALL {
        for zero in [0.0, -0.0] {
            let (_, decoded) = round_trip(format, |_| zero);
            assert!(decoded.iter().all(|&v| v == 0.0), "{format}: {decoded:?}");
        }
    }
}

#[test]
fn equal_values_come_back() {
    for &format in Format::ALL {
        for value in [1.0, -1.0, 0.37, -251.0] {
            let (_, decoded) = round_trip(format, |_| value);
            for got in decoded {
                // A block of one value costs the rounding of its scale: f16, or 4 to 8 bits, or a power of two.
                assert!((got - value).abs() <= 0.13 * f32::abs(value), "{format}: {value} became {got}");
            }
        }
    }
}

#[test]
fn finite_values_stay_finite() {
    let sizes = [f32::MAX, 1e30, 65504.0, 6e-5, 1e-7, f32::MIN_POSITIVE, f32::from_bits(1)];
    // binary16 and bfloat16 themselves overflow to infinity, as they must.
    for &format in Format::ALL.iter().filter(|f| !f.is_float()) {
        for size in sizes {
            for shape in [[1.0, -1.0, 0.5, 0.0], [1.0, 1.0, 0.9, 0.8], [-1.0, -0.9, -1.0, -0.2], [1.0, 1e-20, 0.0, 0.0]]
            {
                let (values, decoded) = round_trip(format, |i| size * shape[i % 4]);
                let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
                for (value, got) in values.iter().zip(decoded) {
                    assert!(got.is_finite(), "{format}: {value:e} became {got}");
                    let bound = f64::from(largest) * 1.5;
                    assert!(f64::from(got.abs()) <= bound, "{format}: {value:e} became {got:e}");
                }
            }
        }
    }
}

proptest! {
    /// The result is undefined, but nothing panics, in encoding or in decoding it.
    #[test]
    fn any_bits_encode(bits in prop::collection::vec(any::<u32>(), 16), special in 0usize..256) {
        for &format in Format::ALL {
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let (_, decoded) = round_trip(format, |i| {
                    if i == special { odd } else { f32::from_bits(bits[i % 16].wrapping_mul(i as u32 | 1)) }
                });
                assert!(!decoded.is_empty());
                round_trip(format, |_| odd);
            }
        }
    }
}
