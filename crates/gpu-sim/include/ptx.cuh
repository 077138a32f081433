#line 2 "gpu-sim/ptx.cuh"
// The functions of gristmill's ptx.cuh in plain C++, written from the PTX ISA.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;

namespace gpu_sim {

typedef float Floats __attribute__((vector_size(32)));
typedef int Ints __attribute__((vector_size(32)));

// ---- 16-bit floats (IEEE binary16), rounded to nearest even.
#ifdef __F16C__
typedef float Four __attribute__((vector_size(16)));
typedef short Eight __attribute__((vector_size(16)));
static inline float from_half(u16 bits) {
    Eight in = {(short)bits};
    Four out = __builtin_ia32_vcvtph2ps(in);
    return out[0];
}
static inline u16 to_half(float value) {
    Four in = {value};
    Eight out = __builtin_ia32_vcvtps2ph(in, 0);
    return value != value ? (u16)0x7fff : (u16)out[0];
}
#else
// A half's exponent is 15 − 127 = −112 off; multiplying by 2¹¹² moves it, for subnormal numbers too.
static inline float from_half(u16 bits) {
    u32 sign = (u32)(bits & 0x8000) << 16, rest = (u32)(bits & 0x7fff) << 13;
    float value = __uint_as_float(rest) * 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00) value = __uint_as_float(rest | 0x7f800000);
    return __uint_as_float(__float_as_uint(value) | sign);
}
static inline u16 to_half(float value) {
    u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fff;
    if (magnitude >= 0x477ff000) return (u16)(sign | 0x7c00);
    // Below the least normal number the sum with 1/2 leaves the rounded mantissa in the lowest bits.
    if (magnitude < 0x38800000)
        return (u16)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f)));
    return (u16)(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
#endif

// ---- ldmatrix (PTX ISA, "Warp-level matrix load instruction: ldmatrix").
struct Ldmatrix {
    const u16* row;
    u32* result;
};
// Each lane reads its row, as far as the checks are concerned; all exchange them afterwards.
GPU_SIM_UNCHECKED void touch_row(const void* row, Site site) {
    GPU_SIM_CALLED(site);
    if ((u64)row & 15) engine->hooks->fail(engine, 1, "ldmatrix: a row is not aligned to 16 bytes", &site);
#ifdef GPU_SIM_CHECKED
    engine->hooks->touch(engine, row, 16, READ, site.code);
#endif
}
template <bool TRANS>
GPU_SIM_UNCHECKED void ldmatrix_all(Engine*, void* const* lanes, u32) {
    for (int lane = 0; lane < 32; lane++) {
        Ldmatrix& mine = *(Ldmatrix*)lanes[lane];
        for (int matrix = 0; matrix < 4; matrix++) {
            u32 pair[2];
            for (int i = 0; i < 2; i++) {
                int row = TRANS ? 2 * (lane % 4) + i : lane / 4, col = TRANS ? lane / 4 : 2 * (lane % 4) + i;
                pair[i] = ((const Ldmatrix*)lanes[matrix * 8 + row])->row[col];
            }
            mine.result[matrix] = pair[0] | pair[1] << 16;
        }
    }
}

// ---- mma (PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and "… for mma.m16n8k32"). For all
// three: with g = lane / 4 and t = lane % 4, register i of a holds row g + 8 (i % 2) and the k of group t in half i / 2;
// register i of b column g and the k of group t in half i; d[i] is row g + 8 (i / 2), column 2t + i % 2.
struct Mma {
    const u32 *a, *b;
    void* d;
};
static inline float of_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }
template <float (*VALUE)(u16)>
GPU_SIM_UNCHECKED void mma_16_all(Engine*, void* const* lanes, u32) {
    float a[16][16];
    Floats b[16], d[16];
    for (int lane = 0; lane < 32; lane++) {
        const Mma& mine = *(const Mma*)lanes[lane];
        int g = lane / 4, t = lane % 4;
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 2; i++) {
                int k = 8 * half + 2 * t + i;
                a[g][k] = VALUE((u16)(mine.a[2 * half] >> 16 * i));
                a[g + 8][k] = VALUE((u16)(mine.a[2 * half + 1] >> 16 * i));
                b[k][g] = VALUE((u16)(mine.b[half] >> 16 * i));
            }
        for (int i = 0; i < 4; i++) d[g + 8 * (i / 2)][2 * t + i % 2] = ((const float*)mine.d)[i];
    }
    for (int row = 0; row < 16; row++) {
        Floats sum = d[row];
        for (int k = 0; k < 16; k++) sum += a[row][k] * b[k];
        d[row] = sum;
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            ((float*)((const Mma*)lanes[lane])->d)[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}
GPU_SIM_UNCHECKED void mma_s8_all(Engine*, void* const* lanes, u32) {
    int a[16][32];
    Ints b[32], d[16];
    for (int lane = 0; lane < 32; lane++) {
        const Mma& mine = *(const Mma*)lanes[lane];
        int g = lane / 4, t = lane % 4;
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 4; i++) {
                int k = 16 * half + 4 * t + i;
                a[g][k] = (i8)(mine.a[2 * half] >> 8 * i);
                a[g + 8][k] = (i8)(mine.a[2 * half + 1] >> 8 * i);
                b[k][g] = (i8)(mine.b[half] >> 8 * i);
            }
        for (int i = 0; i < 4; i++) d[g + 8 * (i / 2)][2 * t + i % 2] = ((const int*)mine.d)[i];
    }
    for (int row = 0; row < 16; row++) {
        Ints sum = d[row];
        for (int k = 0; k < 32; k++) sum += a[row][k] * b[k];
        d[row] = sum;
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            ((int*)((const Mma*)lanes[lane])->d)[i] = d[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
}
static inline void mma(const Collective& collective, void* d, const u32* a, const u32* b, Site site) {
    Mma mine = {a, b, d};
    converge(collective, 0xffffffffu, &mine, site);
}

}  // namespace gpu_sim

static inline float half_to_float(u16 bits) { return gpu_sim::from_half(bits); }
static inline u16 float_to_half(float value) { return gpu_sim::to_half(value); }
static inline u32 pack_half(float lo, float hi) { return (u32)float_to_half(lo) | (u32)float_to_half(hi) << 16; }
static inline float bf16_to_float(u16 bits) { return gpu_sim::of_bf16(bits); }
static inline u16 float_to_bf16(float value) {
    u32 bits = __float_as_uint(value);
    return value != value ? (u16)0x7fff : (u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static inline u32 pack_bf16(float lo, float hi) { return (u32)float_to_bf16(lo) | (u32)float_to_bf16(hi) << 16; }

static inline float exp2_approx(float x) {
    float value = exp2f(x);
    return value < 0x1p-126f ? 0.0f : value;
}

static inline int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }

static inline uint4 load_stream_16(const void* from) { return gpu_sim::constant((const uint4*)from); }
static inline void touch(const void* line) { (void)*(const volatile u8*)line; }

static inline void ldmatrix_x4(u32 (&r)[4], const void* shared, GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::ldmatrix_all<false>, "ldmatrix", 1, 0};
    gpu_sim::touch_row(shared, site);
    gpu_sim::Ldmatrix mine = {(const u16*)shared, r};
    gpu_sim::converge(collective, 0xffffffffu, &mine, site);
}
static inline void ldmatrix_x4_trans(u32 (&r)[4], const void* shared, GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::ldmatrix_all<true>, "ldmatrix", 1, 0};
    gpu_sim::touch_row(shared, site);
    gpu_sim::Ldmatrix mine = {(const u16*)shared, r};
    gpu_sim::converge(collective, 0xffffffffu, &mine, site);
}

#if __CUDA_ARCH__ >= 800
static inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
    // The product is exact in f64, and so is the sum but for a rounding far below that of bfloat16.
    auto one = [](u16 a, u16 b, u16 c) {
        return (float)((double)gpu_sim::of_bf16(a) * gpu_sim::of_bf16(b) + gpu_sim::of_bf16(c));
    };
    return pack_bf16(one((u16)a, (u16)b, (u16)c), one((u16)(a >> 16), (u16)(b >> 16), (u16)(c >> 16)));
}
static inline u32 in_register(u32 value) { return value; }
// The bytes are copied at the wait that covers them, so a missing wait shows the old bytes.
static inline void cp_async_16(void* shared, const void* global, bool valid, GPU_SIM_HERE) {
    gpu_sim::copy(shared, global, 16, valid ? 16 : 0, site);
}
static inline void cp_async_8(void* shared, const void* global, bool valid, GPU_SIM_HERE) {
    gpu_sim::copy(shared, global, 8, valid ? 8 : 0, site);
}
static inline void cp_async_4(void* shared, const void* global, bool valid, GPU_SIM_HERE) {
    gpu_sim::copy(shared, global, 4, valid ? 4 : 0, site);
}
static inline void cp_async_commit() { gpu_sim::commit(); }
template <int N>
static inline void cp_async_wait(GPU_SIM_HERE) {
    gpu_sim::wait(N, site);
}

static inline void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::mma_16_all<gpu_sim::of_bf16>, "mma", 1, 0};
    gpu_sim::mma(collective, d, a, b, site);
}
static inline void mma_m16n8k16_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::mma_16_all<gpu_sim::from_half>, "mma", 1, 0};
    gpu_sim::mma(collective, d, a, b, site);
}
static inline void mma_m16n8k32_s8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2], GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::mma_s8_all, "mma", 1, 0};
    gpu_sim::mma(collective, d, a, b, site);
}
static inline void mma_m16n8k32_s8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2], int c, GPU_SIM_HERE) {
    d[0] = d[1] = d[2] = d[3] = c;
    static const gpu_sim::Collective collective = {gpu_sim::mma_s8_all, "mma", 1, 0};
    gpu_sim::mma(collective, d, a, b, site);
}
static inline void mma_m16n8k16_s8(int (&d)[4], const u32 (&a)[2], u32 b, int c, GPU_SIM_HERE) {
    d[0] = d[1] = d[2] = d[3] = c;
    const u32 all[4] = {a[0], a[1], 0, 0}, both[2] = {b, 0};
    static const gpu_sim::Collective collective = {gpu_sim::mma_s8_all, "mma", 1, 0};
    gpu_sim::mma(collective, d, all, both, site);
}
#endif

// Kernels run one after another; in checked mode a thread has to wait nevertheless, where its launch may overlap.
static inline void dependency_wait(GPU_SIM_HERE) { gpu_sim::depend(site); }
static inline void dependency_launch() {}
