//! Planted bugs of memory are found, with their lines: out of bounds, misaligned, not written, not declared, in flight.
#![cfg(all(target_arch = "x86_64", unix))]

mod common;

use common::planted::{Planted, all_are_found, planted};
use gpu_sim::{Access, Kind};

#[test]
fn out_of_bounds() {
    all_are_found(&[
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    u32 i = threadIdx.x * 4 FIX(+ 0) BUG(+ 4);
    out[i] = 1.0f;  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "static inline float before(const float* p, int i) {
    return p[i FIX(+ 1)];  // !
}
KERNEL(k)(float* out, const float* in) {
    out[threadIdx.x] = before(in, (int)threadIdx.x - 1);
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    SHARED(float, t, 64);
    float* p = s;
    t[threadIdx.x] = 1.0f;
    p[threadIdx.x FIX(* 1) BUG(+ 1)] = 2.0f;  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(uint4, s);
    s[threadIdx.x BUG(+ 1)] = make_uint4(0, 1, 2, 3);  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    s[threadIdx.x * 2 FIX(/ 2)] = 2.0f;  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    float r[4] = {1, 2, 3, 4};
    out[threadIdx.x] = r[threadIdx.x % FIX(4) BUG(5)];  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    const float* p = FIX(in) BUG(nullptr);
    out[threadIdx.x] = p[1];  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    atomicAdd(out + 255 BUG(+ 1), 1.0f);  // !
}",
        ),
        planted(
            Kind::OutOfBounds,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(uint4, s);
    u32 row = threadIdx.x + 1;
    cp_async_16(s + threadIdx.x, (const uint4*)in + row, row < 64 BUG(+ 1));  // !
    cp_async_commit();
    cp_async_wait<0>();
}",
        ),
    ]);
}

#[test]
fn misaligned() {
    all_are_found(&[
        planted(
            Kind::Misaligned,
            "KERNEL(k)(float* out, const float* in) {
    const float* p = in FIX(+ 4) BUG(+ 6);
    uint4 v = *(const uint4*)p;  // !
    out[threadIdx.x] = (float)v.x;
}",
        ),
        planted(
            Kind::Misaligned,
            "KERNEL(k)(float* out, const float* in) {
    *(float2*)(out + threadIdx.x * 2 BUG(+ 1)) = make_float2(1, 2);  // !
}",
        ),
        planted(
            Kind::Misaligned,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(u16, s, 256);
    for (int i = 0; i < 4; i++) s[threadIdx.x * 4 + i] = i;
    __syncthreads();
    u16* p = s + (threadIdx.x & ~1u) BUG(+ 1);
    out[threadIdx.x] = (float)*(u32*)p;  // !
}",
        ),
        planted(
            Kind::Misaligned,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(u16, s);
    for (int i = 0; i < 8; i++) s[threadIdx.x * 8 + i] = i;
    __syncthreads();
    u32 r[4];
    ldmatrix_x4(r, s + threadIdx.x % 32 * 8 BUG(+ 4));  // !
    out[threadIdx.x] = (float)r[0];
}",
        ),
        planted(
            Kind::Misaligned,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(uint4, s);
    cp_async_16(s + threadIdx.x, in + 4 * (threadIdx.x % 32) BUG(+ 2), true);  // !
    cp_async_commit();
    cp_async_wait<0>();
}",
        ),
    ]);
}

#[test]
fn shared_memory_that_nobody_wrote() {
    all_are_found(&[
        planted(
            Kind::Uninitialised,
            "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    if (threadIdx.x < FIX(64) BUG(63)) s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];  // !
}",
        ),
        planted(
            Kind::Uninitialised,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    FIX(s[threadIdx.x] = 0.0f;)
    s[threadIdx.x] += 1.0f;  // !
}",
        ),
        Planted {
            grid: 3,
            ..planted(
                Kind::Uninitialised,
                "KERNEL(k)(float* out, const float* in) {
    SHARED(float, s, 64);
    BUG(if (blockIdx.x != 1)) s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 1];  // !
}",
            )
        },
        planted(
            Kind::Uninitialised,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(u16, s);
    for (int i = 0; i < 8 BUG(- 1); i++) s[threadIdx.x * 8 + i] = i;
    __syncthreads();
    u32 r[4];
    ldmatrix_x4_trans(r, s + threadIdx.x % 32 * 8);  // !
    out[threadIdx.x] = (float)r[0];
}",
        ),
    ]);
}

#[test]
fn what_arguments_were_not_declared_for() {
    all_are_found(&[
        planted(
            Kind::Undeclared,
            "KERNEL(k)(float* out, const float* in) {
    float* to = FIX(out) BUG((float*)in);
    to[threadIdx.x] = 1.0f;  // !
}",
        ),
        planted(
            Kind::Undeclared,
            "KERNEL(k)(float* out, const float* in) {
    atomicMax(FIX((u32*)out) BUG((u32*)in), threadIdx.x);  // !
}",
        ),
        planted(
            Kind::Undeclared,
            "KERNEL(k)(float* out, const float* in) {
    struct Row { float v[8]; };
    Row row = {};
    Row* to = FIX((Row*)out) BUG((Row*)in);
    if (threadIdx.x < 32) to[threadIdx.x] = row;  // !
}",
        ),
        Planted {
            access: Access::Write,
            ..planted(
                Kind::Undeclared,
                "KERNEL(k)(float* out, const float* in) {
    FIX(out[threadIdx.x] = 0;)
    out[threadIdx.x] += in[threadIdx.x];  // !
}",
            )
        },
        Planted {
            access: Access::Write,
            ..planted(
                Kind::Undeclared,
                "KERNEL(k)(float* out, const float* in) {
    if (threadIdx.x < 32) out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x < 31 BUG(+ 2)) out[threadIdx.x + 64] = out[threadIdx.x];  // !
}",
            )
        },
        Planted {
            access: Access::Write,
            ..planted(
                Kind::Undeclared,
                "KERNEL(k)(float* out, const float* in) {
    FIX(if (threadIdx.x == 0) out[7] = 0;)
    __syncthreads();
    atomicAdd(out + 7, 1.0f);  // !
}",
            )
        },
    ]);
}

#[test]
fn copies_that_nobody_waited_for() {
    all_are_found(&[
        planted(
            Kind::InFlight,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    cp_async_16(s + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
    cp_async_commit();
    FIX(cp_async_wait<0>();)
    out[threadIdx.x] = s[4 * threadIdx.x + 2];  // !
}",
        ),
        planted(
            Kind::InFlight,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x < 32) cp_async_16(s + 128 * i + 4 * threadIdx.x, in + 128 * i + 4 * threadIdx.x, true);
        cp_async_commit();
    }
    cp_async_wait<FIX(0) BUG(1)>();
    __syncthreads();
    out[threadIdx.x] = s[192 + threadIdx.x];  // !
}",
        ),
        planted(
            Kind::InFlight,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    cp_async_16(s + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
    cp_async_commit();
    FIX(cp_async_wait<0>();)
    s[4 * threadIdx.x] = 1.0f;  // !
}",
        ),
        planted(
            Kind::InFlight,
            "KERNEL(k)(float* out, const float* in) {
    DYNAMIC_SHARED(float, s);
    cp_async_16(s + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
    FIX(cp_async_commit();)
    cp_async_wait<0>();
    __syncthreads();
    u32 r[4];
    ldmatrix_x4(r, s + 4 * (threadIdx.x % 32));  // !
    out[threadIdx.x] = (float)r[3];
}",
        ),
    ]);
}

#[test]
fn arithmetic_without_a_result() {
    all_are_found(&[
        planted(
            Kind::Undefined,
            "KERNEL(k)(float* out, const float* in) {
    out[threadIdx.x] = (float)(1000 / (int)(threadIdx.x FIX(+ 1)));  // !
}",
        ),
        planted(
            Kind::Undefined,
            "KERNEL(k)(float* out, const float* in) {
    out[threadIdx.x] = (float)(1u << (threadIdx.x FIX(% 32)));  // !
}",
        ),
        planted(
            Kind::Undefined,
            "KERNEL(k)(float* out, const float* in) {
    u64 n = blockDim.x - 64 FIX(+ 3);
    out[threadIdx.x] = (float)(threadIdx.x % n);  // !
}",
        ),
    ]);
}
