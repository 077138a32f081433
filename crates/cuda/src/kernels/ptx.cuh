// All inline PTX. The simulator has the same functions in plain C++ (crates/gpu-sim/include/ptx.cuh).
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;

#define PTX static __device__ __forceinline__

// ---- 16-bit floats, rounded to nearest even; a NaN becomes 0x7fff.
PTX float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
PTX u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#if __CUDA_ARCH__ >= 800
// The first source of the instruction becomes the upper half.
PTX u32 pack_half(float lo, float hi) {
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(hi), "f"(lo));
    return bits;
}
#else
PTX u32 pack_half(float lo, float hi) { return (u32)float_to_half(lo) | (u32)float_to_half(hi) << 16; }
#endif

PTX float bf16_to_float(u16 bits) { return __uint_as_float((u32)bits << 16); }
#if __CUDA_ARCH__ >= 800
PTX u16 float_to_bf16(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
// The first source of the instruction becomes the upper half.
PTX u32 pack_bf16(float lo, float hi) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(hi), "f"(lo));
    return bits;
}
#else
PTX u16 float_to_bf16(float value) {
    u32 bits = __float_as_uint(value);
    return value != value ? (u16)0x7fff : (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
PTX u32 pack_bf16(float lo, float hi) { return (u32)float_to_bf16(lo) | (u32)float_to_bf16(hi) << 16; }
#endif

// ---- 2 to the x, to a relative error of 2⁻²²; results below 2⁻¹²⁶ are 0.
PTX float exp2_approx(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// ---- Integers.
// c + the dot product of four signed bytes.
PTX int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }

// ---- Loads.
// 16 bytes that are constant while the kernel runs, not kept in L1: weights, each read once. `volatile`, because NVRTC takes
// other assembly for arithmetic and moves it out of the condition that keeps it within the row.
PTX uint4 load_stream_16(const void* from) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
        : "l"(from));
    return value;
}

// Asks for the line of this address, so that a later load finds it in L1. Nothing waits for it.
PTX void touch(const void* line) {
    u32 unused;
    asm volatile("ld.global.ca.u8 %0, [%1];" : "=r"(unused) : "l"(line) : "memory");
}

PTX u32 shared_address(const void* shared) { return (u32)__cvta_generic_to_shared(shared); }

// Four 8 × 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned), and
// gets of each matrix the elements 2(l % 4) and 2(l % 4) + 1 of row l / 4.
#define LDMATRIX(name, layout)                                                                            \
    PTX void name(u32 (&r)[4], const void* shared) {                                                      \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" layout ".shared.b16 {%0, %1, %2, %3}, [%4];"         \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                     \
                     : "r"(shared_address(shared))                                                        \
                     : "memory");                                                                         \
    }
LDMATRIX(ldmatrix_x4, "")
// The same of the matrices transposed.
LDMATRIX(ldmatrix_x4_trans, ".trans")
#undef LDMATRIX

#if __CUDA_ARCH__ >= 800
// ---- Two bfloat16 at once: a · b + c, rounded once to nearest even.
PTX u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    u32 result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
// A number that the compiler does not know: it stays in a register where an instruction takes no second constant.
PTX u32 in_register(u32 value) {
    u32 kept;
    asm("mov.b32 %0, %1;" : "=r"(kept) : "r"(value));
    return kept;
}

// ---- Copies from global to shared memory that go on while the thread computes. 16 bytes, both aligned; zeros if not
// `valid`, and then `global` is not read.
PTX void cp_async_16(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
// The same of 8 and of 4 bytes.
PTX void cp_async_8(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 8 : 0)
                 : "memory");
}
PTX void cp_async_4(void* shared, const void* global, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
}
// Makes one group of the copies since the last.
PTX void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for this thread's groups but the last N. What other threads copied is there after a barrier.
template <int N>
PTX void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- Tensor cores: d += a · b, by a whole warp. With g = lane / 4 and t = lane % 4, a[0] holds row g, a[1] row g + 8,
// a[2] and a[3] the same of the columns' second half; b[0] and b[1] hold column g; d[0..2] row g, d[2..4] row g + 8 of
// columns 2t and 2t + 1.
#define MMA(name, T, c, shape, types)                                                                                     \
    PTX void name(T(&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {                                                       \
        asm volatile("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+" c(d[0]), "+" c(d[1]), "+" c(d[2]), "+" c(d[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                 \
    }
// 16-bit elements: a register holds columns 2t and 2t + 1 (b: rows), + 8 in the second half.
MMA(mma_m16n8k16_bf16, float, "f", "m16n8k16", "f32.bf16.bf16.f32")
MMA(mma_m16n8k16_f16, float, "f", "m16n8k16", "f32.f16.f16.f32")
// Bytes: a register holds columns 4t to 4t + 3 (b: rows), + 16 in the second half.
MMA(mma_m16n8k32_s8, int, "r", "m16n8k32", "s32.s8.s8.s32")
#undef MMA
// The same as d = c + a · b with one number c, which takes no instruction.
PTX void mma_m16n8k32_s8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2], int c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c));
}
// With 16 columns: the first half of a and b.
PTX void mma_m16n8k16_s8(int (&d)[4], const u32 (&a)[2], u32 b, int c) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c));
}
#endif

// ---- Programmatic dependent launch: a kernel may start before the one before it has ended.
// Waits until the kernels before have ended and what they wrote is seen.
PTX void dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start once all blocks have said so or ended.
PTX void dependency_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#undef PTX
