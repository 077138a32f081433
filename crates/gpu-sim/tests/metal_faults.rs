//! Planted bugs in kernels of Metal are found, with their lines: those of memory, of order, and what a simdgroup must
//! do together.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::metal::{Planted, all_are_found, planted};
use gpu_sim::{Access, Kind};

#[test]
fn races_in_a_simdgroup() {
    all_are_found(
        Kind::RaceInWarp,
        &[
            planted(
                "KERNEL {
    ZERO
    s[t] = in[t];  // !
    FIX(simdgroup_barrier(mem_flags::mem_threadgroup);)
    out[t] = s[t ^ 1];  // !
}",
            ),
            planted(
                "KERNEL {
    float sum = simd_sum(in[t]);
    FIX(if (lane == 0))
        out[simd] = sum;  // !
}",
            ),
            // A shuffle orders nothing.
            planted(
                "KERNEL {
    ZERO
    s[t] = in[t];  // !
    float v = simd_shuffle_xor(in[t], 3);
    FIX(simdgroup_barrier(mem_flags::mem_threadgroup);)
    out[t] = v + s[t ^ 3];  // !
}",
            ),
            // The barrier is there, and orders other memory.
            planted(
                "KERNEL {
    ZERO
    s[t] = in[t];  // !
    simdgroup_barrier(FIX(mem_flags::mem_threadgroup) BUG(mem_flags::mem_device));
    out[t] = s[t ^ 1];  // !
}",
            ),
            // Each lane writes just the elements that it takes part in loading.
            planted(
                "KERNEL {
    threadgroup half tile[2][64];
    tile[simd][lane] = tile[simd][lane + 32] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ushort row = lane / 16 * 4 + lane / 2 % 4, column = lane / 8 % 2 * 4 + lane % 2 * 2;
    tile[simd][row * 8 + column] = half(in[t]);  // !
    tile[simd][row * 8 + column + 1] = half(in[t]);  // !
    FIX(simdgroup_barrier(mem_flags::mem_threadgroup);)
    simdgroup_half8x8 m;
    simdgroup_load(m, tile[simd], 8);  // !
    out[t] = m.thread_elements()[0];
}",
            ),
        ],
    );
}

#[test]
fn races_in_a_threadgroup() {
    all_are_found(
        Kind::RaceInBlock,
        &[
            // The sum of two simdgroups.
            planted(
                "KERNEL {
    threadgroup float partial[2];
    if (t < 2) partial[t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = simd_sum(in[t]);
    if (lane == 0) partial[simd] = sum;  // !
    FIX(threadgroup_barrier(mem_flags::mem_threadgroup);)
    if (lane == 0) out[simd] = partial[0] + partial[1];  // !
}",
            ),
            // The next tile overwrites what the other simdgroup still reads.
            planted(
                "KERNEL {
    ZERO
    float sum = 0;
    for (uint tile = 0; tile < 4; ++tile) {
        s[t] = in[tile * 64 + t];  // !
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum += s[63 - t];  // !
        FIX(threadgroup_barrier(mem_flags::mem_threadgroup);)
    }
    out[t] = sum;
}",
            ),
            planted(
                "KERNEL {
    ZERO
    s[t] = in[t];  // !
    threadgroup_barrier(FIX(mem_flags::mem_threadgroup) BUG(mem_flags::mem_none));
    out[t] = s[63 - t];  // !
}",
            ),
            // Memory of the device needs its own flag.
            planted(
                "KERNEL {
    out[t] = in[t];  // !
    threadgroup_barrier(mem_flags::mem_threadgroup FIX(| mem_flags::mem_device));
    float v = out[63 - t];  // !
    threadgroup_barrier(mem_flags::mem_device);
    out[t] = v;
}",
            ),
            planted(
                "KERNEL {
    threadgroup float tile[2][64];
    tile[0][t] = tile[1][t] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(float(simd));
    simdgroup_store(m, tile[simd], 8);  // !
    FIX(threadgroup_barrier(mem_flags::mem_threadgroup);)
    out[t] = tile[1 - simd][t];  // !
}",
            ),
            // A value that an atomic operation changed is read without a barrier.
            planted(
                "KERNEL {
    threadgroup atomic_uint count;
    if (t == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd == 0) atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed);  // !
    FIX(threadgroup_barrier(mem_flags::mem_threadgroup);)
    if (simd == 1) out[t] = *(threadgroup uint*)&count;  // !
}",
            ),
        ],
    );
}

#[test]
fn races_in_the_grid() {
    let groups = |text| Planted { grid: 4, ..planted(text) };
    all_are_found(
        Kind::RaceInGrid,
        &[
            groups(
                "KERNEL {
    if (t == 0) {
        FIX(atomic_fetch_add_explicit((device atomic_float*)out, 1.0f, memory_order_relaxed);)
        BUG(out[0] += 1.0f;)  // !
    }
}",
            ),
            // A row too many.
            groups(
                "KERNEL {
    for (uint i = t; i < 48 BUG(+ 1); i += 64)
        out[group * 48 + i] = in[i];  // !
}",
            ),
            // Memory that other threadgroups write is read.
            groups(
                "KERNEL {
    uint i = group * 64 + t;
    out[i] = in[i];  // !
    threadgroup_barrier(mem_flags::mem_device);
    float v = out[i FIX(/ 64 * 64) BUG(% 64)];  // !
    threadgroup_barrier(mem_flags::mem_device);
    out[i] = v;  // !
}",
            ),
        ],
    );
}

#[test]
fn threads_that_diverge() {
    all_are_found(
        Kind::Divergence,
        &[
            planted(
                "KERNEL {
    if (t < FIX(64) BUG(32))
        threadgroup_barrier(mem_flags::mem_threadgroup);  // !
    else
        threadgroup_barrier(mem_flags::mem_threadgroup);  // !
}",
            ),
            planted(
                "KERNEL {
    if (t >= 50 FIX(+ 14)) return;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // !
    out[t] = 1;
}",
            ),
            planted(
                "KERNEL {
    for (uint i = 0; i < 3 BUG(+ t / 60); i++)
        threadgroup_barrier(mem_flags::mem_threadgroup);  // !
}",
            ),
            // The same sum in both branches is two sums of some lanes.
            planted(
                "KERNEL {
    float sum;
    if (in[t] * float(lane % 2) BUG(+ 1) > FIX(2) BUG(1))
        sum = simd_sum(in[t]);  // !
    else
        sum = simd_sum(in[t]);  // !
    out[t] = sum;
}",
            ),
            planted(
                "KERNEL {
    float v = in[t], largest;
    if (lane FIX(* 0) == 0)
        largest = simd_max(v);  // !
    else
        largest = float(uint(ulong(simd_ballot(v > 0))));  // !
    out[t] = largest;
}",
            ),
        ],
    );
}

#[test]
fn threads_that_wait_for_ever() {
    all_are_found(
        Kind::Deadlock,
        &[
            planted(
                "KERNEL {
    float v = in[t];
    if (lane < 16 FIX(+ 16))
        v = simd_sum(v);  // !
    threadgroup_barrier(mem_flags::mem_threadgroup);  // !
    out[t] = v;
}",
            ),
            planted(
                "KERNEL {
    if (t FIX(* 0) != 37)
        BUG(simdgroup_barrier(mem_flags::mem_threadgroup);)  // !
    threadgroup_barrier(mem_flags::mem_threadgroup);  // !
    out[t] = 1;
}",
            ),
            // A lane goes through the loop once more.
            planted(
                "KERNEL {
    float v = 0;
    for (uint i = lane; i < 256 BUG(- 7); i += 32)
        v += simd_shuffle(in[i], 0);  // !
    threadgroup_barrier(mem_flags::mem_threadgroup);  // !
    out[t] = v;
}",
            ),
        ],
    );
}

#[test]
fn operations_to_which_not_all_lanes_come() {
    all_are_found(
        Kind::Collective,
        &[
            planted(
                "KERNEL {
    if (lane == 31 FIX(+ 1)) return;
    out[t] = simd_sum(in[t]);  // !
}",
            ),
            // Rows that are not there: their lanes have gone.
            planted(
                "KERNEL {
    if (t >= 40 FIX(+ 24)) return;
    float v = in[t];
    v = simd_shuffle_down(v, 1);  // !
    out[t] = v;
}",
            ),
            planted(
                "KERNEL {
    float v = in[t];
    if (lane FIX(* 0) < 16)
        v = simd_sum(v);  // !
    out[t] = v;
}",
            ),
            Planted {
                block: 48,
                ..planted(
                    "KERNEL {
    simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8>(1.0f);
    FIX(if (t < 32))
        simdgroup_multiply_accumulate(a, a, a, a);  // !
    out[t] = a.thread_elements()[1];
}",
                )
            },
            Planted {
                block: 48,
                ..planted(
                    "KERNEL {
    simdgroup_float8x8 a;
    FIX(if (t >= 32) return;)
    simdgroup_load(a, in, 8);  // !
    out[t] = a.thread_elements()[1];
}",
                )
            },
            planted(
                "KERNEL {
    out[t] = simd_shuffle(in[t], lane FIX(% 32) BUG(+ 1));  // !
}",
            ),
        ],
    );
}

#[test]
fn out_of_bounds() {
    all_are_found(
        Kind::OutOfBounds,
        &[
            planted(
                "KERNEL {
    uint i = t * 4 BUG(+ 4);
    out[i] = in[t];  // !
}",
            ),
            planted(
                "static inline float before(const device float* p, int i) {
    return p[i FIX(+ 1)];  // !
}
KERNEL { out[t] = before(in, int(t) - 1); }",
            ),
            planted(
                "KERNEL {
    threadgroup float a[64];
    threadgroup float b[64];
    threadgroup float* p = a;
    b[t] = 1;
    p[t FIX(* 1) BUG(+ 1)] = 2;  // !
}",
            ),
            planted(
                "KERNEL {
    threadgroup float4* v = (threadgroup float4*)s;
    v[t BUG(+ 1)] = float4(0, 1, 2, 3);  // !
}",
            ),
            planted(
                "KERNEL {
    float r[4] = {1, 2, 3, 4};
    out[t] = r[t % FIX(4) BUG(5)];  // !
}",
            ),
            planted(
                "KERNEL {
    const device float4* v = (const device float4*)in;
    out[t] = dot(v[t BUG(+ 1)], float4(1));  // !
}",
            ),
            planted(
                "KERNEL {
    simdgroup_float8x8 m;
    simdgroup_load(m, in, FIX(32) BUG(36), ulong2(24, 0));  // !
    out[t] = m.thread_elements()[0];
}",
            ),
            planted(
                "KERNEL {
    atomic_fetch_add_explicit((device atomic_float*)out + 255 BUG(+ 1), 1.0f, memory_order_relaxed);  // !
}",
            ),
        ],
    );
}

#[test]
fn misaligned() {
    all_are_found(
        Kind::Misaligned,
        &[
            planted(
                "KERNEL {
    const device float* p = in FIX(+ 4) BUG(+ 6);
    float4 v = *(const device float4*)p;  // !
    out[t] = v.x;
}",
            ),
            planted(
                "KERNEL {
    device float* p = out + t * 2 BUG(+ 1);
    *(device float2*)p = float2(1, 2);  // !
}",
            ),
            planted(
                "KERNEL {
    threadgroup ushort* words = (threadgroup ushort*)s;
    words[t] = ushort(t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup ushort* p = words + (t & 62) BUG(+ 1) FIX(* 1);
    out[t] = *(threadgroup uint*)p;  // !
}",
            ),
        ],
    );
}

#[test]
fn threadgroup_memory_that_nobody_wrote() {
    all_are_found(
        Kind::Uninitialised,
        &[
            planted(
                "KERNEL {
    threadgroup float staged[64];
    if (t < FIX(64) BUG(63)) staged[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = staged[63 - t];  // !
}",
            ),
            planted(
                "KERNEL {
    FIX(s[t] = 0;)
    s[t] += in[t];  // !
}",
            ),
            Planted {
                grid: 3,
                ..planted(
                    "KERNEL {
    BUG(if (group != 1)) s[t] = in[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[group * 64 + t] = s[t ^ 1];  // !
}",
                )
            },
            planted(
                "KERNEL {
    threadgroup atomic_uint count;
    FIX(if (t == 0) atomic_store_explicit(&count, 0u, memory_order_relaxed);)
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&count, 1u, memory_order_relaxed);  // !
}",
            ),
            // The last row of a tile.
            planted(
                "KERNEL {
    threadgroup half tile[64];
    if (t < 64 BUG(- 8)) tile[t] = half(in[t]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_half8x8 m;
    simdgroup_load(m, tile, 8);  // !
    out[t] = m.thread_elements()[0];
}",
            ),
        ],
    );
}

#[test]
fn what_arguments_were_not_declared_for() {
    let written = |text| Planted { access: Access::Write, ..planted(text) };
    all_are_found(
        Kind::Undeclared,
        &[
            planted(
                "KERNEL {
    device float* to = FIX(out) BUG((device float*)in);
    to[t] = 1;  // !
}",
            ),
            planted(
                "KERNEL {
    device atomic_uint* to = FIX((device atomic_uint*)out) BUG((device atomic_uint*)in);
    atomic_fetch_max_explicit(to, t, memory_order_relaxed);  // !
}",
            ),
            written(
                "KERNEL {
    FIX(out[t] = 0;)
    out[t] += in[t];  // !
}",
            ),
            written(
                "KERNEL {
    if (t < 32) out[t] = 1;
    threadgroup_barrier(mem_flags::mem_device);
    if (t < 31 BUG(+ 2)) out[t + 64] = out[t];  // !
}",
            ),
        ],
    );
}

#[test]
fn arithmetic_without_a_result() {
    all_are_found(
        Kind::Undefined,
        &[
            planted(
                "KERNEL {
    out[t] = float(1000 / int(t FIX(+ 1)));  // !
}",
            ),
            planted(
                "KERNEL {
    out[t] = float(1u << (t FIX(% 32)));  // !
}",
            ),
            planted(
                "KERNEL {
    ulong n = ulong(in[0]) - 1 FIX(+ 3);
    out[t] = float(t % n);  // !
}",
            ),
        ],
    );
}

#[test]
fn more_threadgroup_memory_than_there_is() {
    all_are_found(
        Kind::Limit,
        &[
            planted(
                "KERNEL {
    threadgroup float tile[7936 BUG(+ 1)];  // !
    tile[t] = in[t];
}",
            ),
            planted(
                "KERNEL {
    threadgroup half a[64 * 64], b[64 * FIX(48) BUG(64)];
    threadgroup float c[64 * 32 + 64 * FIX(16) BUG(32)];  // !
    a[t] = b[t] = 0;
    c[t] = 1;
}",
            ),
            Planted {
                shared: 32 << 10,
                ..planted(
                    "KERNEL {
    BUG(threadgroup float one; one = 1;)  // !
    s[t] = in[t];
}",
                )
            },
        ],
    );
}
