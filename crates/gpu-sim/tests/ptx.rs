//! The plain C++ of `ptx.cuh` against plain loops over whole matrices. Which lane holds what is written out again here,
//! from the tables of the PTX ISA (sections "Matrix Fragments for mma.m16n8k16 with floating point type", "… for
//! mma.m16n8k32" and "ldmatrix").
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::*;
use gpu_sim::{Mode, Order, Program};

const TEXT: &str = "
KERNEL(floats)(float* d, const u32* a, const u32* b) {
    u32 lane = threadIdx.x, fa[4], fb[2];
    float fd[4];
    for (int i = 0; i < 4; i++) fa[i] = a[4 * lane + i], fd[i] = d[4 * lane + i];
    for (int i = 0; i < 2; i++) fb[i] = b[2 * lane + i];
    MMA(fd, fa, fb);
    for (int i = 0; i < 4; i++) d[4 * lane + i] = fd[i];
}
KERNEL(s8)(int* d, const u32* a, const u32* b) {
    u32 lane = threadIdx.x, fa[4], fb[2];
    int fd[4];
    for (int i = 0; i < 4; i++) fa[i] = a[4 * lane + i], fd[i] = d[4 * lane + i];
    for (int i = 0; i < 2; i++) fb[i] = b[2 * lane + i];
    mma_m16n8k32_s8(fd, fa, fb);
    for (int i = 0; i < 4; i++) d[4 * lane + i] = fd[i];
}
KERNEL(ldmatrix)(u32* plain, u32* trans, const uint4* rows, int skew) {
    SHARED(uint4, s, 33);
    s[threadIdx.x] = rows[threadIdx.x];
    __syncthreads();
    u32 r[4];
    const char* at = (const char*)(s + threadIdx.x) + skew;
    ldmatrix_x4(r, at);
    for (int i = 0; i < 4; i++) plain[4 * threadIdx.x + i] = r[i];
    ldmatrix_x4_trans(r, at);
    for (int i = 0; i < 4; i++) trans[4 * threadIdx.x + i] = r[i];
}
KERNEL(numbers)(u16* half, u16* bf16, float* back, u32* packed, const float* in) {
    u32 i = threadIdx.x + blockIdx.x * blockDim.x;
    half[i] = float_to_half(in[i]);
    bf16[i] = float_to_bf16(in[i]);
    back[2 * i] = half_to_float((u16)i);
    back[2 * i + 1] = bf16_to_float((u16)i);
    packed[2 * i] = pack_half(in[i], 1.0f);
    packed[2 * i + 1] = pack_bf16(1.0f, in[i]);
}
KERNEL(copies)(u32* out, const uint4* in) {
    SHARED(uint4, s, 4 * 32);
    u32 lane = threadIdx.x;
    for (int i = 0; i < 3; i++) {
        cp_async_16(s + 32 * i + lane, in + 32 * i + lane, !(i == 1 && lane % 2));
        cp_async_commit();
    }
    u32* o = out + 16 * lane;
    o[0] = s[lane].y;
    cp_async_wait<2>();
    o[1] = s[lane].y, o[2] = s[32 + lane].y;
    cp_async_wait<1>();
    o[3] = s[32 + lane].y, o[4] = s[64 + lane].y;
    cp_async_16(s + 96 + lane, in + lane, true);
    cp_async_wait<0>();
    o[5] = s[64 + lane].y, o[6] = s[96 + lane].y;
    cp_async_commit();
    cp_async_wait<0>();
    o[7] = s[96 + lane].y;
    o[8] = load_stream_16(in + lane).w;
    o[9] = dp4a(0x80ff7f01, 0x80017f02, 5);
}
KERNEL(lonely)(u32* out) {
    float d[4];
    u32 a[4], b[2];
    if (threadIdx.x < 31) mma_m16n8k16_bf16(d, a, b);
    out[0] = 1;
}";

fn program_with(mma: &str, mode: Mode) -> Program {
    compile_with("ptx.cu", TEXT, &[("MMA", mma)], mode).unwrap_or_else(|error| panic!("{error}"))
}

fn program() -> Program {
    program_with("mma_m16n8k16_bf16", Mode::Fast)
}

/// Fragments of 16-bit matrices a [16][16], b [16][8] for each lane, from element to register half.
fn fragments_16(a: &[[u16; 16]; 16], b: &[[u16; 8]; 16]) -> (Vec<u32>, Vec<u32>) {
    let (mut fa, mut fb) = (vec![0_u32; 128], vec![0_u32; 64]);
    for lane in 0..32 {
        let group = lane >> 2;
        let thread = lane % 4;
        for i in 0..8 {
            let row = if (0..2).contains(&i) || (4..6).contains(&i) { group } else { group + 8 };
            let col = thread * 2 + (i & 1) + if i < 4 { 0 } else { 8 };
            fa[4 * lane + i / 2] |= u32::from(a[row][col]) << (16 * (i % 2));
        }
        for i in 0..4 {
            let row = thread * 2 + (i & 1) + if i < 2 { 0 } else { 8 };
            fb[2 * lane + i / 2] |= u32::from(b[row][group]) << (16 * (i % 2));
        }
    }
    (fa, fb)
}

/// Row and column of element `i` of the sums that a lane holds.
fn place(lane: usize, i: usize) -> (usize, usize) {
    ((lane >> 2) + if i < 2 { 0 } else { 8 }, (lane % 4) * 2 + (i & 1))
}

#[test]
fn products_of_16_bit_floats() {
    let mut random = Random(seed());
    // Small integers: exact in both formats, and their sums in f32.
    let mut draw = || (random.next() % 17) as f32 - 8.0;
    let bf16 = |value: f32| (value.to_bits() >> 16) as u16;
    // −8 … 8 as binary16: the exponent's bias is 15 instead of 127, the mantissa has 10 bits.
    let half = |value: f32| match value.to_bits() {
        0 => 0,
        bits => (bits >> 16 & 0x8000 | ((bits >> 23 & 255) - 112) << 10 | bits >> 13 & 0x3ff) as u16,
    };
    for (mma, encode) in [("mma_m16n8k16_bf16", &bf16 as &dyn Fn(f32) -> u16), ("mma_m16n8k16_f16", &half)] {
        let program = program_with(mma, Mode::Checked);
        let a: [[f32; 16]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
        let b: [[f32; 8]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
        let c: [[f32; 8]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
        let (fa, fb) = fragments_16(&a.map(|row| row.map(encode)), &b.map(|row| row.map(encode)));
        for order in ORDERS {
            let mut d: Vec<f32> = (0..128).map(|at| place(at / 4, at % 4)).map(|(row, col)| c[row][col]).collect();
            run(&program, "floats", 1, 32, 0, order, &[change(&mut d), read(&fa), read(&fb)]).unwrap();
            for at in 0..128 {
                let (row, col) = place(at / 4, at % 4);
                let wanted = c[row][col] + (0..16).map(|k| a[row][k] * b[k][col]).sum::<f32>();
                assert_eq!(d[at], wanted, "{mma} {order:?} row {row} col {col}");
            }
        }
    }
}

#[test]
fn products_of_bytes() {
    let mut random = Random(seed());
    let mut draw = || random.next() as i8;
    let a: [[i8; 32]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
    let b: [[i8; 8]; 32] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
    let (mut fa, mut fb) = (vec![0_u32; 128], vec![0_u32; 64]);
    for lane in 0..32 {
        let group = lane >> 2;
        let thread = lane % 4;
        for i in 0..16 {
            let row = if (0..4).contains(&i) || (8..12).contains(&i) { group } else { group + 8 };
            let col = thread * 4 + (i & 3) + if i < 8 { 0 } else { 16 };
            fa[4 * lane + i / 4] |= u32::from(a[row][col] as u8) << (8 * (i % 4));
        }
        for i in 0..8 {
            let row = thread * 4 + (i & 3) + if i < 4 { 0 } else { 16 };
            fb[2 * lane + i / 4] |= u32::from(b[row][group] as u8) << (8 * (i % 4));
        }
    }
    for order in ORDERS {
        let mut d: Vec<i32> = (0..128).map(|at| at * 1000).collect();
        run(&program(), "s8", 1, 32, 0, order, &[change(&mut d), read(&fa), read(&fb)]).unwrap();
        for at in 0..128 {
            let (row, col) = place(at / 4, at % 4);
            let sum: i32 = (0..32).map(|k| i32::from(a[row][k]) * i32::from(b[k][col])).sum();
            assert_eq!(d[at], at as i32 * 1000 + sum, "{order:?} row {row} col {col}");
        }
    }
}

#[test]
fn matrices_from_shared_memory() {
    // Row r of matrix m, at the address that lane 8m + r gives.
    let element = |matrix: usize, row: usize, col: usize| (matrix * 100 + row * 10 + col) as u16;
    let rows: Vec<u16> = (0..256).map(|at| element(at / 64, at / 8 % 8, at % 8)).collect();
    for order in ORDERS {
        let (mut plain, mut trans) = (vec![0_u32; 128], vec![0_u32; 128]);
        let args = |plain, trans| [write(plain), write(trans), read(&rows), value(&0)];
        run(&program(), "ldmatrix", 1, 32, 0, order, &args(&mut plain, &mut trans)).unwrap();
        for at in 0..128 {
            let lane = at / 4;
            let matrix = at % 4;
            let row = lane / 4;
            let col = 2 * (lane % 4);
            let pair = |a: u16, b: u16| u32::from(a) | u32::from(b) << 16;
            assert_eq!(plain[at], pair(element(matrix, row, col), element(matrix, row, col + 1)));
            assert_eq!(trans[at], pair(element(matrix, col, row), element(matrix, col + 1, row)));
        }
    }
    let (mut plain, mut trans) = (vec![0_u32; 128], vec![0_u32; 128]);
    let args = [write(&mut plain), write(&mut trans), read(&rows), value(&8)];
    let fault = fault(run(&program(), "ldmatrix", 1, 32, 0, Order::Ascending, &args));
    assert_eq!(
        (innermost(&fault), fault.message.as_str()),
        (line(TEXT, "    ldmatrix_x4(r"), "ldmatrix: a row is not aligned to 16 bytes")
    );
}

/// Rounds to a float format with this number of exponent and mantissa bits by looking for the nearest of its numbers:
/// no trick is shared with `include/ptx.cuh`.
fn nearest(value: f32, numbers: &[(f64, u16)]) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let wanted = f64::from(value.abs());
    let above = numbers.partition_point(|&(number, _)| number < wanted);
    let candidates = &numbers[above.saturating_sub(1)..(above + 1).min(numbers.len())];
    let distance = |number: f64| if number == wanted { 0.0 } else { (number - wanted).abs() };
    let best = candidates.iter().min_by(|a, b| {
        // A tie goes to the even one.
        distance(a.0).total_cmp(&distance(b.0)).then((a.1 & 1).cmp(&(b.1 & 1)))
    });
    sign | best.unwrap().1
}

/// All numbers of a format from 0 up; what would come after the largest stands for infinity.
fn numbers(mantissa: u32, bias: i32) -> Vec<(f64, u16)> {
    let infinity = (1_u32 << (15 - mantissa)) - 1 << mantissa;
    (0..=infinity)
        .map(|bits| {
            let exponent = (bits >> mantissa) as i32;
            let rest = f64::from(bits & ((1 << mantissa) - 1));
            let unit = f64::powi(2.0, exponent.max(1) - bias - mantissa as i32);
            let whole = if exponent == 0 { 0.0 } else { f64::from(1 << mantissa) };
            ((whole + rest) * unit, bits as u16)
        })
        .collect()
}

#[test]
fn sixteen_bit_floats() {
    let (halves, bfloats) = (numbers(10, 15), numbers(7, 127));
    let mut random = Random(seed());
    let mut input: Vec<f32> = (0..65_536)
        .map(|i| match i % 4 {
            0 => f32::from_bits((random.next() << 8) as u32 ^ random.next() as u32),
            // Halfway between two halves, and next to it.
            1 => ((halves[i % 31_743].0 + halves[i % 31_743 + 1].0) / 2.0) as f32,
            2 => -f32::from_bits((((halves[i % 31_743].0 + halves[i % 31_743 + 1].0) / 2.0) as f32).to_bits() + 1),
            _ => f32::from_bits(((i as u32) << 16) + 0x8000),
        })
        .collect();
    input[..8].copy_from_slice(&[0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 65_519.9, 65_520.0, f32::MAX]);
    let (mut half, mut bf16) = (vec![0_u16; 65_536], vec![0_u16; 65_536]);
    let (mut back, mut packed) = (vec![0_f32; 131_072], vec![0_u32; 131_072]);
    let args = [write(&mut half), write(&mut bf16), write(&mut back), write(&mut packed), read(&input)];
    run(&program(), "numbers", 256, 256, 0, Order::Ascending, &args).unwrap();
    for (i, &value) in input.iter().enumerate() {
        assert_eq!(half[i], nearest(value, &halves), "{value:e} as a half");
        assert_eq!(bf16[i], nearest(value, &bfloats), "{value:e} as bfloat16");
        assert_eq!(packed[2 * i], u32::from(half[i]) | 0x3c00_0000);
        assert_eq!(packed[2 * i + 1], 0x3f80 | u32::from(bf16[i]) << 16);
    }
    for bits in 0..65_536_usize {
        for (at, list) in [(0, &halves), (1, &bfloats)] {
            let value = back[2 * bits + at];
            let infinity = list.len() - 1;
            let magnitude = bits & 0x7fff;
            let wanted = match magnitude {
                _ if magnitude > infinity => f64::NAN,
                _ if magnitude == infinity => f64::INFINITY,
                _ => list[magnitude].0,
            };
            assert_eq!(value.is_nan(), wanted.is_nan());
            assert!(wanted.is_nan() || f64::from(value.abs()) == wanted && value.is_sign_negative() == (bits > 0x7fff));
        }
    }
}

#[test]
fn copies_happen_at_the_wait_that_covers_them() {
    let input: Vec<u32> = (0..3 * 128).map(|i| i + 1000).collect();
    for order in ORDERS {
        let mut out = vec![0_u32; 16 * 32];
        run(&program(), "copies", 1, 32, 0, order, &[write(&mut out), read(&input)]).unwrap();
        for lane in 0..32_usize {
            let y = |group: usize| input[(32 * group + lane) * 4 + 1];
            let poison = u32::MAX;
            let skipped = if lane % 2 == 1 { 0 } else { y(1) };
            let dot = 2 + 127 * 127 - 1 + 128 * 128 + 5;
            let wanted = [poison, y(0), poison, skipped, poison, y(2), poison, y(0), input[lane * 4 + 3], dot];
            assert_eq!(out[16 * lane..16 * lane + 10], wanted, "{order:?}, lane {lane}");
        }
    }
}

#[test]
fn a_matrix_product_needs_all_lanes() {
    let mut out = [0];
    let fault = fault(run(&program(), "lonely", 1, 32, 0, Order::Ascending, &[write(&mut out)]));
    assert_eq!(innermost(&fault), line(TEXT, "if (threadIdx.x < 31)"), "{fault}");
    assert!(fault.message.starts_with("mma needs all 32 lanes"), "{fault}");
}
