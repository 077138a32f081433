//! Metal's words do what Metal's specification says, in both modes and in any order of threads.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::metal::{compile, everywhere, launch};
use common::{Random, change, read, seed, value, write};
use gpu_sim::{Arg, Mode, Order};

#[test]
fn buffers_constants_and_positions() {
    let text = "
struct Args { uint n; float scale; };
constant float table[4] = {0.5, 1.0, 1.5, 2.0};
static constant constexpr const int offset = 2;

template <typename T> static inline T twice(device const T* x, uint i) { return x[i] * 2; }
static inline void add(thread float& sum, float x) { sum += x; }

// Buffers in another order than their numbers; one number is not used.
kernel void scale(constant Args& args [[buffer(3)]], device const float *x [[ buffer( 1 ) ]],
                  device float* y [[buffer(0)]],   uint i [[thread_position_in_grid]])
{
    if (i >= args.n) return;
    float sum = table[i % 4] + offset;
    add(sum, twice(x, i));
    y[i] = sum * args.scale;
}

// Without numbers: the smallest that are free, by their order. Attributes of parameters of other functions mean
// nothing.
static inline uint same(uint i [[thread_index_in_simdgroup]]) { return i; }
kernel void counted(device float* y, uint i [[thread_index_in_threadgroup]], const device float* z [[buffer(1)]],
                    constant float& x) {
    y[i] = x + z[same(i)];
}

kernel void places(device uint* out [[buffer(0)]],
                   uint3 group [[threadgroup_position_in_grid]], uint3 in [[thread_position_in_threadgroup]],
                   uint3 at [[thread_position_in_grid]], ushort3 per [[threads_per_threadgroup]],
                   uint3 groups [[threadgroups_per_grid]], uint3 all [[threads_per_grid]],
                   ushort linear [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]],
                   const uint width [[threads_per_simdgroup]])
{
    uint to = ((at.z * all.y + at.y) * all.x + at.x) * 8;
    out[to] = group.x * 100 + group.y * 10 + group.z;
    out[to + 1] = in.x * 100 + in.y * 10 + in.z;
    out[to + 2] = per.x * 100 + per.y * 10 + per.z;
    out[to + 3] = groups.x * 100 + groups.y * 10 + groups.z;
    out[to + 4] = linear;
    out[to + 5] = lane;
    out[to + 6] = simd * 10 + simds;
    out[to + 7] = width;
}";
    let mut random = Random(seed());
    let x: Vec<f32> = (0..100).map(|_| random.float()).collect();
    everywhere(text, |program, order| {
        let mut y = vec![f32::NAN; 100];
        let args = (100_u32, 0.5_f32);
        let args = [write(&mut y), read(&x), gpu_sim::Arg::Null, value(&args)];
        launch(program, "scale", [4, 1, 1], [32, 1, 1], 0, order, &args).unwrap();
        for (i, y) in y.iter().enumerate() {
            assert_eq!(*y, ([0.5, 1.0, 1.5, 2.0][i % 4] + 2.0 + x[i] * 2.0) * 0.5, "{i}");
        }
        let mut y = vec![f32::NAN; 32];
        launch(program, "counted", [1; 3], [32, 1, 1], 0, order, &[write(&mut y), read(&x), value(&0.5_f32)]).unwrap();
        assert!(y.iter().zip(&x).all(|(y, x)| *y == x + 0.5));
        let mut out = vec![0_u32; 2 * 3 * 2 * 6 * 3 * 4 * 8];
        launch(program, "places", [2, 3, 2], [6, 3, 4], 0, order, &[write(&mut out)]).unwrap();
        let mut to = 0;
        for [z, y, x] in (0..8).flat_map(|z| (0..9).flat_map(move |y| (0..12).map(move |x| [z, y, x]))) {
            let (linear, digits) = ((z % 4 * 3 + y % 3) * 6 + x % 6, |x: u32, y: u32, z: u32| x * 100 + y * 10 + z);
            let [group, within] = [digits(x / 6, y / 3, z / 4), digits(x % 6, y % 3, z % 4)];
            let wanted = [group, within, 634, 232, linear, linear % 32, linear / 32 * 10 + 3, 32];
            assert_eq!(out[to..to + 8], wanted, "{x} {y} {z}");
            to += 8;
        }
    });
}

#[test]
fn threadgroup_memory_barriers_and_simd() {
    let text = "
kernel void sums(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                 threadgroup float* dynamic [[threadgroup(0)]],
                 uint group [[threadgroup_position_in_grid]], ushort t [[thread_index_in_threadgroup]],
                 ushort lane [[thread_index_in_simdgroup]], ushort simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup float partial[2], unused;
    threadgroup float2 pairs[2][32];
    float x = in[group * 64 + t];
    dynamic[t] = x;
    pairs[simd][lane] = float2(x, 1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = simd_sum(dynamic[63 - t]);
    if (lane == 0) partial[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float2 other = pairs[1 - simd][lane].yx;
    out[group * 64 + t] = partial[0] + partial[1] + other.x + other.y;
}
kernel void simd(device uint* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]])
{
    device uint* to = out + lane * 16;
    to[0] = simd_max(lane * 7 % 32);
    to[1] = simd_min(lane + 5);
    to[2] = simd_xor(lane);
    to[3] = simd_prefix_inclusive_sum(lane);
    to[4] = simd_prefix_exclusive_sum(lane);
    to[5] = simd_shuffle(lane, ushort(31 - lane));
    to[6] = simd_shuffle_xor(lane, 5);
    to[7] = simd_shuffle_up(lane, 3);
    to[8] = simd_shuffle_down(lane, 3);
    to[9] = simd_shuffle_rotate_down(lane, 3);
    to[10] = simd_broadcast(lane, 17);
    to[11] = uint(ulong(simd_ballot(lane % 3 == 0)));
    to[12] = simd_any(lane == 9) + 2 * simd_all(lane < 32) + 4 * simd_all(lane < 31) + 8 * simd_any(lane > 31);
    to[13] = simd_is_first() ? 1 : simd_broadcast_first(lane + 2);
    to[14] = simd_or(1u << lane);
    to[15] = as_type<uint>(simd_sum(float2(lane, 1)).y);
}";
    let mut random = Random(seed());
    let x: Vec<f32> = (0..128).map(|_| (random.next() % 64) as f32).collect();
    everywhere(text, |program, order| {
        let mut out = vec![0_f32; 128];
        launch(program, "sums", [2, 1, 1], [64, 1, 1], 256, order, &[write(&mut out), read(&x)]).unwrap();
        for (i, out) in out.iter().enumerate() {
            let total: f32 = x[i / 64 * 64..i / 64 * 64 + 64].iter().sum();
            assert_eq!(*out, total + x[i ^ 32] + 1.0, "{i}");
        }
    });
    let program = compile(text, Mode::Checked);
    let mut out = vec![0_u32; 32 * 16];
    // The first lane does not come to the broadcast from the first lane.
    let fault = common::fault(launch(&program, "simd", [1; 3], [32, 1, 1], 0, Order::Ascending, &[write(&mut out)]));
    let line = common::line(text, "to[14]");
    assert_eq!((fault.kind, common::innermost(&fault)), (gpu_sim::Kind::Divergence, line));
    let text = text.replace("simd_is_first() ? 1 :", "simd_is_first() +");
    everywhere(&text, |program, order| {
        let mut out = vec![0_u32; 32 * 16];
        launch(program, "simd", [1; 3], [32, 1, 1], 0, order, &[write(&mut out)]).unwrap();
        for lane in 0..32_u32 {
            let votes = (0..32).filter(|lane| lane % 3 == 0).fold(0, |votes, lane| votes | 1 << lane);
            let wanted = [
                31,
                5,
                0,
                (0..=lane).sum(),
                (0..lane).sum(),
                31 - lane,
                lane ^ 5,
                if lane < 3 { lane } else { lane - 3 },
                if lane > 28 { lane } else { lane + 3 },
                (lane + 3) % 32,
                17,
                votes,
                3,
                u32::from(lane == 0) + 2,
                u32::MAX,
                32_f32.to_bits(),
            ];
            assert_eq!(out[lane as usize * 16..][..16], wanted, "{lane}");
        }
    });
}

#[test]
fn matrices_of_simdgroups() {
    // c = a · bᵀ, of 16 × 24 by 24 × 8, in tiles of 8 by 8.
    let text = "
kernel void multiply(device float* c [[buffer(0)]], device const half* a [[buffer(1)]],
                     device const half* b [[buffer(2)]], ushort simd [[simdgroup_index_in_threadgroup]],
                     ushort lane [[thread_index_in_simdgroup]])
{
    threadgroup half staged[8 * 24];
    for (uint i = simd * 32 + lane; i < 8 * 24; i += 64) staged[i] = b[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8>(0.5f);
    simdgroup_half8x8 rows, columns;
    for (ushort k = 0; k < 24; k += 8) {
        simdgroup_load(rows, a, 24, ulong2(k, simd * 8));
        simdgroup_load(columns, staged + k, 24, 0, true);
        simdgroup_multiply_accumulate(sum, rows, columns, sum);
    }
    sum.thread_elements()[0] *= 2;
    sum.thread_elements()[1] *= 2;
    simdgroup_store(sum, c + simd * 64, 8);
    simdgroup_bfloat8x8 diagonal(2.0bf);
    simdgroup_float8x8 product;
    simdgroup_multiply(product, diagonal, diagonal);
    simdgroup_store(product, c + 128 + simd * 64, 8, 0, true);
}";
    let mut random = Random(seed());
    // Multiples of 1/8, whose sums are exact in any order.
    let mut values = |n: usize| -> Vec<f32> { (0..n).map(|_| (random.next() % 17) as f32 / 8.0 - 1.0).collect() };
    let (a, b) = (values(16 * 24), values(8 * 24));
    let halves = |values: &[f32]| -> Vec<u16> { values.iter().map(|&x| common::metal::half(x)).collect() };
    let (a_bits, b_bits) = (halves(&a), halves(&b));
    everywhere(text, |program, order| {
        let mut c = vec![f32::NAN; 256];
        let args = [write(&mut c), read(&a_bits), read(&b_bits)];
        launch(program, "multiply", [1; 3], [64, 1, 1], 0, order, &args).unwrap();
        for (i, c) in c.iter().enumerate() {
            let row = i % 128 / 8;
            let column = i % 8;
            let product: f32 = (0..24).map(|k| a[row * 24 + k] * b[column * 24 + k]).sum();
            let diagonal = if row % 8 == column { 4.0 } else { 0.0 };
            assert_eq!(*c, if i < 128 { 2.0 * (product + 0.5) } else { diagonal }, "{i}");
        }
    });
}

#[test]
fn atomics() {
    let text = "
kernel void count(device atomic_uint* counts [[buffer(0)]], device atomic_float& sum [[buffer(1)]],
                  device atomic_int* extremes [[buffer(2)]], uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint local;
    if (t == 0) atomic_store_explicit(&local, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint before = atomic_fetch_add_explicit(&local, 1u, memory_order_relaxed);
    if (before == 63) atomic_fetch_add_explicit(&counts[1], 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[0], i % 2, memory_order_relaxed);
    atomic_fetch_add_explicit(&sum, 0.5f, memory_order_relaxed);
    atomic_fetch_min_explicit(&extremes[0], -int(i), memory_order_relaxed);
    atomic_fetch_max_explicit(&extremes[1], int(i), memory_order_relaxed);
    atomic_fetch_or_explicit(&counts[2], 1u << (i % 32), memory_order_relaxed);
    uint seen = atomic_load_explicit(&counts[3], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&counts[3], &seen, seen + 2, memory_order_relaxed, memory_order_relaxed)) {}
}";
    everywhere(text, |program, order| {
        let mut counts = [0_u32; 4];
        let mut sum = [0_f32];
        let mut extremes = [0_i32; 2];
        let args = [change(&mut counts), change(&mut sum), change(&mut extremes)];
        launch(program, "count", [4, 1, 1], [64, 1, 1], 0, order, &args).unwrap();
        assert_eq!((counts, sum, extremes), ([128, 4, u32::MAX, 512], [128.0], [-255, 255]));
    });
}

#[test]
fn templates_host_names_and_function_constants() {
    let text = "
constant uint add [[function_constant(FIRST + 2)]];
constant bool odd [[function_constant(1)]];
constant float other [[function_constant(9)]];
constant float value = is_function_constant_defined(other) ? other : 0.25f;

struct elsewhere;
template <class T> struct also_elsewhere;
template <int N> inline int down() { if constexpr (N > 0) return 1 + down<N - 1>(); else return 0; }

template <typename T, int N, bool Negative = false>
[[max_total_threads_per_threadgroup(N * 16 + 16)]] kernel void fill(device T* out [[buffer(0)]], constant T& from [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    T scale = Negative ? T(-N) : T(N);
    out[i] = from * scale + T(add) + T(odd ? value : 0.0) + T(down<3>() - 3);
}
typedef decltype(fill<float, 1>) fill_t;
template [[host_name(\"fill_f32\")]] kernel fill_t fill<float, 3>;
template [[host_name(\"fill_f16\")]] [[kernel]] void fill<half, 2, true>(device half*, constant half&, uint);
template [[host_name(\"fill_\" \"i32\")]] kernel void fill<int, (4 > 3 ? 5 : 1)>(device int*, constant int&, uint);
[[host_name(\"renamed\")]] [[max_total_threads_per_threadgroup(32)]]
kernel void plain(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { if (i == 0) out[0] = add; }
";
    use gpu_sim::Constant;
    let constants = [(1, Constant::Bool(true)), (7, Constant::Uint(10))];
    for mode in common::MODES {
        let program = common::metal::compile_with("t.metal", text, &[("FIRST", "5")], &constants, mode).unwrap();
        let mut names: Vec<&str> = program.kernels().collect();
        names.sort();
        assert_eq!(names, ["fill_f16", "fill_f32", "fill_i32", "renamed"]);
        let (mut floats, mut halves, mut ints) = ([0_f32; 32], [0_u16; 32], [0_i32; 32]);
        let go = |kernel, args: &[gpu_sim::Arg]| {
            launch(&program, kernel, [1; 3], [32, 1, 1], 0, Order::Ascending, args).unwrap();
        };
        go("fill_f32", &[write(&mut floats), value(&1.5_f32)]);
        go("fill_f16", &[write(&mut halves), value(&common::metal::half(1.5))]);
        go("fill_i32", &[write(&mut ints), value(&7_i32)]);
        assert_eq!((floats[31], halves[31], ints[31]), (14.75, common::metal::half(7.25), 45));
        let mut out = [0_u32];
        let more = launch(&program, "renamed", [1; 3], [64, 1, 1], 0, Order::Ascending, &[write(&mut out)]);
        assert!(matches!(more, Err(gpu_sim::Error::Limit { most: 32, given: 64, .. })), "{more:?}");
        let more =
            launch(&program, "fill_f16", [1; 3], [49, 1, 1], 0, Order::Ascending, &[write(&mut out), read(&out)]);
        assert!(matches!(more, Err(gpu_sim::Error::Limit { most: 48, given: 49, .. })), "{more:?}");
        go("renamed", &[write(&mut out)]);
        assert_eq!(out, [10]);
    }
}

#[test]
fn launches_that_no_device_takes() {
    let text = "
struct Args { uint n; float scale; };
kernel void k(constant Args& args [[buffer(0)]], device float* out [[buffer(3)]], constant float* table [[buffer(2)]],
              threadgroup float* s [[threadgroup(0)]], uint3 i [[thread_position_in_grid]]) {
    if (i.x + i.y + i.z == 0) out[0] = args.scale * table[args.n];
}";
    let program = compile(text, Mode::Checked);
    let (mut out, few) = ([0_f32; 4], [0_u8; 4]);
    let table: Vec<f32> = (0..2_000).map(|i| i as f32).collect();
    let args = (2_u32, 0.5_f32);
    let [own, out, few, table] = [value(&args), write(&mut out), read(&few), read(&table)];
    let bytes = [0_u8; 4_097];
    let go = |args: &[Arg], block, shared| {
        launch(&program, "k", [1; 3], block, shared, Order::Ascending, args).map_err(|error| error.to_string())
    };
    let one = [1, 1, 1];
    for (args, block, shared, says) in [
        (vec![own, Arg::Null, table, out], one, 24, "24 bytes of threadgroup memory, which must be a multiple of 16"),
        (vec![own, Arg::Null, table, out], one, 32_784, "dynamic shared memory is 32784"),
        (vec![own, Arg::Null, table, out], [32, 33, 1], 0, "threads is 1056"),
        (vec![own, Arg::Null, table, out], [1, 0, 1], 0, "the block's y is 0"),
        (vec![own, Arg::Null, table], one, 0, "takes 4 arguments, not 3"),
        (vec![own, few, table, out], one, 0, "argument 1: takes nothing"),
        (vec![Arg::Null, Arg::Null, table, out], one, 0, "argument 0: takes a buffer or bytes"),
        (vec![few, Arg::Null, table, out], one, 0, "struct has 8 bytes, the given one 4"),
        (vec![Arg::Bytes(&bytes[..12]), Arg::Null, table, out], one, 0, "struct has 8 bytes, the given one 12"),
        (vec![own, Arg::Null, Arg::Bytes(&bytes), out], one, 0, "bytes of an argument is 4097"),
        // In checked mode what is read is looked at, also in bytes.
        (vec![own, Arg::Null, Arg::Bytes(&bytes[..8]), out], one, 0, "reads 4 bytes at byte 8 of argument 2"),
        (vec![own, Arg::Null, Arg::Null, out], one, 0, "at a null pointer"),
    ] {
        let said = go(&args, block, shared).expect_err(says);
        assert!(said.contains(says), "{says:?} is not said: {said}");
    }
    for (args, block, shared) in [
        ([own, Arg::Null, table, out], [1, 1, 1_024], 32_768),
        ([table, Arg::Null, table, out], [32, 32, 1], 16),
        ([own, Arg::Null, Arg::Bytes(&bytes[..12]), out], one, 0),
    ] {
        go(&args, block, shared).unwrap();
    }
}
