//! Metal's numbers: layouts, vectors, what halves and bfloats round to, functions of integers.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::metal::{everywhere, launch};
use common::{Random, read, seed, write};

/// Bits of the float with `fraction` bits behind the point and exponents as of `least` on that is nearest to a number,
/// ties to even. No NaN.
fn round(x: f64, fraction: i32, least: i32, bias: i32) -> u16 {
    let sign = u16::from(x.is_sign_negative()) << 15;
    let x = x.abs();
    let infinity = ((2 * bias + 1) as u16) << fraction;
    if x == 0.0 {
        return sign;
    }
    let exponent = if x.is_infinite() { bias + 1 } else { (x.log2().floor() as i32).clamp(least, bias + 1) };
    // A logarithm may be wrong by a bit next to a power of two.
    let exponent = if x < 2_f64.powi(exponent) && exponent > least { exponent - 1 } else { exponent };
    let exponent = if x >= 2_f64.powi(exponent + 1) { exponent + 1 } else { exponent };
    if exponent > bias {
        return sign | infinity;
    }
    let units = (x / 2_f64.powi(exponent - fraction)).round_ties_even() as u16;
    // Numbers below the least exponent have no leading bit; one that was rounded up has the next exponent by itself.
    let bits = (((exponent - least) as u16) << fraction) + units;
    sign | bits.min(infinity)
}

fn half(x: f64) -> u16 {
    round(x, 10, -14, 15)
}

fn bfloat(x: f64) -> u16 {
    round(x, 7, -126, 127)
}

fn of_half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 31);
    let units = f64::from(bits & 0x3ff);
    let size = match exponent {
        0 => units * 2_f64.powi(-24),
        31 => f64::INFINITY,
        _ => (1024.0 + units) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 != 0 { -size } else { size }
}

fn of_bfloat(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

/// a · b + c, of which a product of 16-bit numbers is exact. What the sum loses is kept in its last bit: without it a
/// tie, which a number that is too small here would break, would go to the even side.
fn fused(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = a * b + c;
    let back = sum - product;
    let lost = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    match lost {
        _ if !sum.is_finite() || lost == 0.0 || bits & 1 == 1 => sum,
        _ if (lost > 0.0) == (sum > 0.0) => f64::from_bits(bits + 1),
        _ => f64::from_bits(bits - 1),
    }
}

type ToBits = fn(f64) -> u16;
type OfBits = fn(u16) -> f64;

#[test]
fn sixteen_bits_round_in_each_operation() {
    let text = "
template <typename T> static inline void all(device ushort* out, ushort x, ushort y, ushort z) {
    T a = as_type<T>(x), b = as_type<T>(y), c = as_type<T>(z);
    out[0] = as_type<ushort>(a + b);
    out[1] = as_type<ushort>(a - b);
    out[2] = as_type<ushort>(a * b);
    out[3] = as_type<ushort>(a / b);
    // Two roundings, and one.
    out[4] = as_type<ushort>(a * b + c);
    out[5] = as_type<ushort>(fma(a, b, c));
    T sum = c;
    sum += a;
    sum *= b;
    out[6] = as_type<ushort>(sum);
    out[7] = as_type<ushort>(T(float(a) * 1.0009765625f + float(b)));
}
kernel void halves(device ushort* out [[buffer(0)]], const device ushort* in [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    all<half>(out + i * 8, in[i * 3], in[i * 3 + 1], in[i * 3 + 2]);
}
kernel void bfloats(device ushort* out [[buffer(0)]], const device ushort* in [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    all<bfloat>(out + i * 8, in[i * 3], in[i * 3 + 1], in[i * 3 + 2]);
}
kernel void vectors(device half4* out [[buffer(0)]], const device half4* in [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = in[2 * i] * in[2 * i + 1] + 0.5h;
}";
    let mut random = Random(seed());
    // Numbers of about one size, so that sums round; some subnormal, some that overflow.
    let mut values = |bits: fn(f64) -> u16, spread: i32| -> Vec<u16> {
        (0..3 * 256)
            .map(|i| {
                bits(
                    f64::from(random.float())
                        * 2_f64.powi((random.next() % 5) as i32 - 2 + if i % 7 == 0 { spread } else { 0 }),
                )
            })
            .collect()
    };
    let mut inputs = [values(half, 14), values(half, -14), values(bfloat, 60), values(bfloat, -60)];
    // A tie of bfloat, broken by what is too small for a double.
    for (at, small, broken) in [(0, -1e-20, 0xd995), (3, 1e-20, 0xd994)] {
        let tie = [0.042_968_75, -121_597_189_939_003_400.0, small];
        inputs[2][at..at + 3].copy_from_slice(&tie.map(bfloat));
        assert_eq!(bfloat(fused(tie[0], tie[1], tie[2])), broken);
    }
    everywhere(text, |program, order| {
        for (n, input) in inputs.iter().enumerate() {
            let (kernel, bits, of): (_, ToBits, OfBits) =
                if n < 2 { ("halves", half, of_half) } else { ("bfloats", bfloat, of_bfloat) };
            let mut out = vec![0_u16; 256 * 8];
            launch(program, kernel, [8, 1, 1], [32, 1, 1], 0, order, &[write(&mut out), read(input)]).unwrap();
            for (out, input) in out.chunks(8).zip(input.chunks(3)) {
                let [a, b, c] = [of(input[0]), of(input[1]), of(input[2])];
                let product = of(bits(a * b));
                let sum = of(bits(c + a));
                let float = f64::from((a as f32 * 1.000_976_6_f32) + b as f32);
                let wanted = [a + b, a - b, a * b, a / b, product + c, fused(a, b, c), sum * b, float].map(bits);
                for (i, (&out, wanted)) in out.iter().zip(wanted).enumerate() {
                    let nan = |bits: u16| of(bits).is_nan() || n < 2 && bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
                    let both_nan = nan(out)
                        && [a + b, a - b, a * b, a / b, product + c, fused(a, b, c), sum * b, float][i].is_nan();
                    assert!(out == wanted || both_nan, "{kernel} {i}: {a} {b} {c}: {out:#x} {wanted:#x}");
                }
            }
        }
        let mut out = vec![0_u16; 4 * 32];
        launch(program, "vectors", [1; 3], [32, 1, 1], 0, order, &[write(&mut out), read(&inputs[1])]).unwrap();
        for (i, out) in out.iter().enumerate() {
            let at = |j: usize| of_half(inputs[1][i / 4 * 8 + j * 4 + i % 4]);
            assert_eq!(*out, half(of_half(half(at(0) * at(1))) + 0.5), "{i}");
        }
    });
}

#[test]
fn layouts_and_vectors() {
    let text = "
static_assert(sizeof(float3) == 16 && alignof(float3) == 16 && sizeof(packed_float3) == 12 && alignof(packed_float3) == 4, \"\");
static_assert(sizeof(half3) == 8 && sizeof(half2) == 4 && sizeof(packed_half4) == 8 && alignof(packed_half4) == 2, \"\");
static_assert(sizeof(uchar3) == 4 && sizeof(ulong2) == 16 && alignof(ulong2) == 16 && sizeof(bool4) == 4, \"\");
static_assert(sizeof(long) == 8 && sizeof(half) == 2 && sizeof(bfloat) == 2 && sizeof(float3x3) == 48 && sizeof(half2x4) == 16, \"\");
struct Mixed { uchar tag; packed_float3 at; half scale; float4 row; };
static_assert(sizeof(Mixed) == 48, \"\");
static_assert(is_same_v<decltype(half(1) * 2), half> && is_same_v<decltype(1.0 * half(1)), float> && is_same_v<decltype(2.0h), half>, \"\");

kernel void k(device float* out [[buffer(0)]], const device Mixed* in [[buffer(1)]]) {
    float4 v = in->row;                      // 1 2 3 4
    v.xz = v.zx;                             // 3 2 1 4
    v.w += 1;                                // 3 2 1 5
    v.yw *= float2(10, 2);                   // 3 20 1 10
    float3 p = in->at;                       // 7 8 9
    int4 n = int4(v) % 4;                    // 3 0 1 2
    bool4 large = v > 2.5f;
    float2x3 m = float2x3(float3(1, 2, 3), p);
    float4 chosen = select(float4(-1), v, large);
    int i = 0;
    for (int c = 0; c < 4; ++c) out[i++] = v[c];
    for (int c = 0; c < 4; ++c) out[i++] = n[c];
    for (int c = 0; c < 4; ++c) out[i++] = chosen[c];
    for (int c = 0; c < 3; ++c) out[i++] = (m * float2(2, 1))[c];
    out[i++] = dot(v, float4(p, 1)) + any(large) + 2 * all(large);
    out[i++] = as_type<float>(as_type<uint>(v.yx).x);
    out[i++] = float4(p.zyx, in->scale).w + float3(v.xyz).y + uchar4(257, 2, 3, 4).x;
    out[i++] = max(min(v, 5.0f), float4(4)).y + clamp(v, 0.0f, 2.0f).x + fma(v, v, v).z + abs(-v).x;
    out[i++] = (v.x == 3 ? float2(v.zw) : v.xy).y + length(float2(3, 4)) + (v.rgb + 1).b;
}".replace("as_type<float>(as_type<uint>(v.yx).x)", "as_type<float>(as_type<uint2>(v.yx).x)");
    #[repr(C, align(16))]
    #[derive(Clone, Copy)]
    struct Mixed {
        tag: u8,
        at: [f32; 3],
        scale: u16,
        pad: [u16; 7],
        row: [f32; 4],
        end: [f32; 0],
    }
    let input =
        [Mixed { tag: 1, at: [7.0, 8.0, 9.0], scale: half(0.5), pad: [0; 7], row: [1.0, 2.0, 3.0, 4.0], end: [] }];
    everywhere(&text, |program, order| {
        let mut out = [0_f32; 20];
        launch(program, "k", [1; 3], [1; 3], 0, order, &[write(&mut out), read(&input)]).unwrap();
        let wanted = [
            3.0, 20.0, 1.0, 10.0, 3.0, 0.0, 1.0, 2.0, 3.0, 20.0, -1.0, 10.0, 9.0, 12.0, 15.0, 201.0, 20.0, 21.5, 12.0,
            17.0,
        ];
        assert_eq!(out, wanted);
    });
}

#[test]
fn functions_of_integers() {
    let text = "
kernel void k(device uint* out [[buffer(0)]], const device uint* in [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    uint x = in[2 * i], y = in[2 * i + 1];
    int a = int(x), b = int(y);
    uchar c = uchar(x), d = uchar(y);
    device uint* to = out + i * 24;
    to[0] = popcount(x);
    to[1] = clz(x);
    to[2] = ctz(x);
    to[3] = reverse_bits(x);
    to[4] = rotate(x, y);
    to[5] = mulhi(x, y);
    to[6] = uint(mulhi(a, b));
    to[7] = addsat(x, y);
    to[8] = uint(addsat(a, b));
    to[9] = subsat(x, y);
    to[10] = uint(subsat(a, b));
    to[11] = hadd(x, y);
    to[12] = rhadd(x, y);
    to[13] = absdiff(a, b);
    to[14] = extract_bits(x, y % 20, 1 + y % 12);
    to[15] = uint(extract_bits(a, y % 20, 1 + y % 12));
    to[16] = insert_bits(x, y, 5, 9);
    to[17] = addsat(c, d);
    to[18] = clz(c);
    to[19] = uint(mad24(a, b, 3));
    to[20] = min3(x, y, 77u) ^ max3(x, y, 77u) ^ median3(x, y, 77u);
    to[21] = uint(abs(a)) + uint(clamp(a, -5, 5));
    to[22] = uint(as_type<int>(uchar4(uchar2(x, y), c, d)));
    to[23] = uint(rotate(ushort(x), ushort(y))) + uint(popcount(ulong(x) << 32 | y));
}";
    let mut random = Random(seed());
    let mut input: Vec<u32> = (0..2 * 64).map(|_| random.next() as u32 ^ (random.next() as u32) << 9).collect();
    input[..12].copy_from_slice(&[0, 0, u32::MAX, 1, 1, u32::MAX, 1 << 31, 1 << 31, i32::MAX as u32, 1, 1 << 31, 1]);
    everywhere(text, |program, order| {
        let mut out = vec![0_u32; 64 * 24];
        launch(program, "k", [2, 1, 1], [32, 1, 1], 0, order, &[write(&mut out), read(&input)]).unwrap();
        for (out, input) in out.chunks(24).zip(input.chunks(2)) {
            let (x, y) = (input[0], input[1]);
            let (a, b) = (x as i32, y as i32);
            let (c, d) = (x as u8, y as u8);
            let offset = y % 20;
            let bits = 1 + y % 12;
            let mask = ((1_u64 << bits) - 1) as u32;
            let mut sorted = [x, y, 77];
            sorted.sort();
            let wanted = [
                x.count_ones(),
                x.leading_zeros(),
                x.trailing_zeros(),
                x.reverse_bits(),
                x.rotate_left(y % 32),
                ((u64::from(x) * u64::from(y)) >> 32) as u32,
                ((i64::from(a) * i64::from(b)) >> 32) as u32,
                x.saturating_add(y),
                a.saturating_add(b) as u32,
                x.saturating_sub(y),
                a.saturating_sub(b) as u32,
                ((u64::from(x) + u64::from(y)) >> 1) as u32,
                ((u64::from(x) + u64::from(y) + 1) >> 1) as u32,
                a.abs_diff(b),
                x >> offset & mask,
                ((a as u32) << (32 - bits - offset)) as i32 as u32,
                x & !(511 << 5) | (y & 511) << 5,
                c.saturating_add(d).into(),
                c.leading_zeros(),
                ((a << 8 >> 8).wrapping_mul(b << 8 >> 8)).wrapping_add(3) as u32,
                sorted[0] ^ sorted[1] ^ sorted[2],
                (a.wrapping_abs() as u32).wrapping_add(a.clamp(-5, 5) as u32),
                u32::from_le_bytes([c, d, c, d]),
                u32::from((x as u16).rotate_left(y % 16)) + x.count_ones() + y.count_ones(),
            ];
            for (i, (&out, mut wanted)) in out.iter().zip(wanted).enumerate() {
                if i == 15 {
                    wanted = ((wanted as i32) >> (32 - bits)) as u32;
                }
                assert_eq!(out, wanted, "{i}: {x:#x} {y:#x}");
            }
        }
    });
}
