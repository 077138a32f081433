// The most that a device can do: bytes read from memory, and bf16 products by tensor cores.
#include "device.h"

#include "ReadParams"

// Reads all of x, eight loads in flight for each thread. The sum is written so that nothing is left out.
KERNEL_BOUNDED(read_all, 256, 8)(IN(uint4, x, 0), OUT(u32, sums, 1), PARAMS(ReadParams, p, 2)) {
    const u64 step = (u64)here.grid_x() * here.block_width();
    u64 i = (u64)here.block_x() * here.block_width() + here.thread_x();
    u32 sum = 0;
    for (; i + 7 * step < p.count; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = load_stream_16(x + i + k * step);
#pragma unroll
        for (int k = 0; k < 8; k++) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < p.count; i += step) sum ^= load_stream_16(x + i).x;
    sums[(u64)here.block_x() * here.block_width() + here.thread_x()] = sum;
}

#include "MultiplyParams"

// Each warp multiplies 16 × 8 × 16 tiles from registers into eight independent sums.
KERNEL_BOUNDED(multiply, 256, 2)(OUT(float, sums, 0), PARAMS(MultiplyParams, p, 1)) {
    float sum[8][4] = {};
#if __CUDA_ARCH__ >= 800
    u32 a[4], b[2];
    for (int k = 0; k < 4; k++) a[k] = 0x3f803f80u + here.thread_x();
    for (int k = 0; k < 2; k++) b[k] = 0x3f803f80u + here.thread_x();
    for (u32 round = 0; round < p.rounds; round++) {
#pragma unroll
        for (int k = 0; k < 8; k++) mma_m16n8k16_bf16(sum[k], a, b);
    }
#endif
    float all = 0;
    for (int k = 0; k < 8; k++) all += sum[k][0] + sum[k][1] + sum[k][2] + sum[k][3];
    sums[(u64)here.block_x() * here.block_width() + here.thread_x()] = all;
}
