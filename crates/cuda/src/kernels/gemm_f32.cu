// Products of f32 weights with many rows of f32 activations: routers, whose logits must not be rounded.
//
// A block computes ROWS × OUTPUTS of Y; a thread has one output and ROWS / 4 rows. Columns go through shared memory in steps;
// each sum is taken in the order of the columns, whatever the other rows.
#include "device.h"

#define ROWS 16
#define OUTPUTS 32
// Long steps: each waits for memory once.
#define STEP 128
// From a row in shared memory to the next: four more keep quarters of a warp on different banks.
#define STRIDE (STEP + 4)
#define THREADS 128
#define PER_THREAD (ROWS * OUTPUTS / THREADS)

// Mirrors `GemmF32Params` in `gemm_f32.rs`.
struct GemmF32Params {
    u64 row_bytes, y_stride;
    u32 rows, outputs, cols, padding;
};

// Copies a tile into shared memory, zeros past the last row and column. Rows are `stride` floats apart.
DEV void copy_tile(const float* from, u64 stride, u32 rows, u32 first, u32 cols, float* to, u32 count) {
    for (u32 i = here.thread_x(); i < count * (STEP / 4); i += THREADS) {
        u32 row = i / (STEP / 4), column = first + i % (STEP / 4) * 4;
        float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
        if (row < rows && column < cols) four = *reinterpret_cast<const float4*>(from + row * stride + column);
        *reinterpret_cast<float4*>(to + row * STRIDE + i % (STEP / 4) * 4) = four;
    }
}

KERNEL_BOUNDED(gemm_f32, THREADS, 4)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, bias, 2), OUT(float, y, 3), PARAMS(GemmF32Params, p, 4)) {
    SHARED(float, xs, ROWS * STRIDE);
    SHARED(float, ws, OUTPUTS * STRIDE);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() * ROWS, output = here.block_y() * OUTPUTS;
    u32 rows = min(p.rows - row, u32(ROWS)), outputs = min(p.outputs - output, u32(OUTPUTS));
    const float* w = reinterpret_cast<const float*>(weight + output * p.row_bytes);
    float sums[PER_THREAD] = {};
    for (u32 first = 0; first < p.cols; first += STEP) {
        copy_tile(x + u64(row) * p.cols, p.cols, rows, first, p.cols, xs, ROWS);
        copy_tile(w, p.row_bytes / sizeof(float), outputs, first, p.cols, ws, OUTPUTS);
        barrier();
#pragma unroll
        for (int k = 0; k < STEP; k += 4) {
            float4 a = *reinterpret_cast<const float4*>(ws + here.lane() * STRIDE + k);
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++) {
                float4 b = *reinterpret_cast<const float4*>(xs + (here.warp() * PER_THREAD + i) * STRIDE + k);
                sums[i] = fmaf(a.x, b.x, sums[i]);
                sums[i] = fmaf(a.y, b.y, sums[i]);
                sums[i] = fmaf(a.z, b.z, sums[i]);
                sums[i] = fmaf(a.w, b.w, sums[i]);
            }
        }
        barrier();
    }
    if (here.lane() >= outputs) return;
    float add = bias == nullptr ? 0.0f : bias[output + here.lane()];
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        u32 at = here.warp() * PER_THREAD + i;
        if (at < rows) y[(row + at) * p.y_stride + output + here.lane()] = sums[i] + add;
    }
}
