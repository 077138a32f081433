// One product of each shape: 64 rows by 8 to 256, of each type, with a from shared memory or from registers, b by rows or by
// columns, and matrices in each layout that `wgmma_matrix` knows.
#include "hopper.cuh"

#ifndef GPU_SIM
#define KERNEL(name) extern "C" __global__ void name
#define DYNAMIC_SHARED(T, name)               \
    extern __shared__ uint4 dynamic_shared[]; \
    T* name = (T*)dynamic_shared
#endif

// Where 16 bytes of a row lie: `width` bytes of the swizzle, or 0. A row has 32 bytes.
static __device__ u32 place(u32 row, u32 half, u32 width, u32 rows) {
    if (width == 0) return half * rows * 16 + row * 16;
    u32 at = row * width + half * 16;
    return at ^ (at >> 7 & (width / 16 - 1)) << 4;
}
static __device__ void stage(u8* to, const u8* from, u32 width, u32 rows) {
    for (u32 i = threadIdx.x; i < 2 * rows; i += 128)
        *(uint4*)(to + place(i / 2, i % 2, width, rows)) = *(const uint4*)(from + 16 * i);
}
static __device__ u64 describe(const u8* at, u32 width, u32 rows) {
    Swizzle swizzle = width == 128 ? SWIZZLE_128 : width == 64 ? SWIZZLE_64 : width == 32 ? SWIZZLE_32 : SWIZZLE_NONE;
    return wgmma_matrix(at, rows * 16, width == 0 ? 128 : 8 * width, swizzle);
}

// The same of b by columns, `width` bytes of 16 rows at a time: place and descriptor.
static __device__ u32 place_by_columns(u32 row, u32 unit, u32 width) {
    if (width == 0) return unit * 128 + row / 8 * 4096 + row % 8 * 16;
    u32 units = width / 16, at = unit / units * 16 * width + row * width + unit % units * 16;
    return at ^ (at >> 7 & (units - 1)) << 4;
}
static __device__ u64 describe_by_columns(const u8* at, u32 width) {
    Swizzle swizzle = width == 128 ? SWIZZLE_128 : width == 64 ? SWIZZLE_64 : width == 32 ? SWIZZLE_32 : SWIZZLE_NONE;
    return wgmma_matrix(at, width == 0 ? 4096 : 16 * width, width == 0 ? 128 : 8 * width, swizzle);
}

// Twice a · bᵀ: one product that begins and one that adds. 128 threads; the matrices begin at multiples of 1,024.
#define SHAPE(name, T, multiply, columns)                                                            \
    KERNEL(name)(const u8* a, const u8* b, T* c, u32 width, u32 from_registers) {                    \
        DYNAMIC_SHARED(u8, memory);                                                                  \
        u8* left = memory + (1024 - shared_address(memory) % 1024) % 1024;                           \
        u8* right = left + 64 * 128;                                                                 \
        stage(left, a, width, 64);                                                                   \
        stage(right, b, width, columns);                                                             \
        u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, registers[4];           \
        for (u32 i = 0; i < 4; i++)                                                                  \
            registers[i] = *(const u32*)(a + (row + 8 * (i % 2)) * 32 + 16 * (i / 2) + 4 * (lane % 4)); \
        fence_async();                                                                               \
        __syncthreads();                                                                             \
        T d[columns / 2];                                                                            \
        wgmma_fence();                                                                               \
        for (u32 i = 0; i < 2; i++)                                                                  \
            if (from_registers)                                                                      \
                multiply(d, registers, describe(right, width, columns), i > 0);                      \
            else                                                                                     \
                multiply(d, describe(left, width, 64), describe(right, width, columns), i > 0);      \
        wgmma_commit();                                                                              \
        wgmma_wait<0>();                                                                             \
        for (u32 i = 0; i < columns / 2; i++)                                                        \
            c[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + 2 * (lane % 4) + i % 2] = d[i];          \
    }
// Twice a · b, of b's 16 rows, a from registers.
#define SHAPE_BY_COLUMNS(name, columns)                                                              \
    KERNEL(name)(const u8* a, const u8* b, float* c, u32 width, u32) {                               \
        DYNAMIC_SHARED(u8, memory);                                                                  \
        u8* right = memory + (1024 - shared_address(memory) % 1024) % 1024;                          \
        u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, registers[1][4];        \
        for (u32 i = threadIdx.x; i < 2 * columns; i += 128)                                         \
            *(uint4*)(right + place_by_columns(i / (columns / 8), i % (columns / 8), width)) =       \
                *(const uint4*)(b + 16 * i);                                                         \
        for (u32 i = 0; i < 4; i++)                                                                  \
            registers[0][i] = *(const u32*)(a + (row + 8 * (i % 2)) * 32 + 16 * (i / 2) + 4 * (lane % 4)); \
        fence_async();                                                                               \
        __syncthreads();                                                                             \
        float d[columns / 2];                                                                        \
        pin_registers(registers);                                                                    \
        wgmma_fence();                                                                               \
        for (u32 i = 0; i < 2; i++)                                                                  \
            wgmma_f16_by_columns(d, registers[0], describe_by_columns(right, width), i > 0);         \
        wgmma_commit();                                                                              \
        wgmma_wait<0>();                                                                             \
        pin_registers(d);                                                                            \
        for (u32 i = 0; i < columns / 2; i++)                                                        \
            c[(row + i / 2 % 2 * 8) * columns + i / 4 * 8 + 2 * (lane % 4) + i % 2] = d[i];          \
    }
#define SHAPES(columns)                                    \
    SHAPE_BY_COLUMNS(f16_by_columns_##columns, columns)    \
    SHAPE(bf16_##columns, float, wgmma_bf16, columns)      \
    SHAPE(f16_##columns, float, wgmma_f16, columns)        \
    SHAPE(s8_##columns, int, wgmma_s8, columns)
SHAPES(8)
SHAPES(16)
SHAPES(32)
SHAPES(64)
SHAPES(128)
SHAPES(256)
