// Products of f32 weights with rows of f32 activations: routers, whose logits must not be rounded. The order of each sum is that of
// the kernel, the weight's shape and the number of shares.
#include "device.h"

#include "GemmF32Params"

DEV float4 read_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
DEV void add_products(float& sum, float4 a, float4 b) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    sum = fmaf(a.w, b.w, sum);
}

// ---- Few rows. A thread has every 256th four columns to itself, and sums of FEW_ROWS × FEW_OUTPUTS of Y, so that it waits
// for memory once or twice; lanes and then warps add theirs.
#define FEW_ROWS 8
#define FEW_OUTPUTS 4
#define FEW_SUMS (FEW_ROWS * FEW_OUTPUTS)
#define FEW_THREADS 256

// Adds up over the lanes: lane i gets sum i. Halves of the sums are exchanged for halves of the lanes.
DEV void add_lanes(float (&sums)[FEW_SUMS]) {
#pragma unroll
    for (int half = FEW_SUMS / 2; half > 0; half /= 2) {
        int mask = half;
        bool upper = here.lane() & mask;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float keep = upper ? sums[i + half] : sums[i], give = upper ? sums[i] : sums[i + half];
            sums[i] = keep + shuffle_xor(give, mask);
        }
    }
}

KERNEL_BOUNDED(gemm_f32_few, FEW_THREADS, 2)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, bias, 2), OUT(float, y, 3), PARAMS(GemmF32Params, p, 4)) {
    SHARED(float, parts, FEW_THREADS / 32 * FEW_SUMS);
    dependency_launch();
    u32 row = here.block_x() * FEW_ROWS, output = here.block_y() * FEW_OUTPUTS;
    float sums[FEW_SUMS] = {};
    dependency_wait();
    for (u32 at = 4 * here.thread_x(); at < p.cols; at += 4 * FEW_THREADS) {
        float4 columns[FEW_ROWS];
        // Out-of-range rows are clamped to the last.
#pragma unroll
        for (u32 i = 0; i < FEW_ROWS; i++) columns[i] = read_four(x + u64(min(row + i, p.rows - 1)) * p.cols + at);
#pragma unroll
        for (u32 o = 0; o < FEW_OUTPUTS; o++) {
            const u8* of_output = weight + min(output + o, p.outputs - 1) * p.row_bytes;
            float4 w = read_four(reinterpret_cast<const float*>(of_output) + at);
#pragma unroll
            for (u32 i = 0; i < FEW_ROWS; i++) add_products(sums[i * FEW_OUTPUTS + o], w, columns[i]);
        }
    }
    add_lanes(sums);
    parts[here.thread_x()] = sums[0];
    barrier();
    u32 i = here.thread_x();
    if (i >= FEW_SUMS || row + i / FEW_OUTPUTS >= p.rows || output + i % FEW_OUTPUTS >= p.outputs) return;
    float sum = 0.0f;
    for (u32 warp = 0; warp < FEW_THREADS / 32; warp++) sum += parts[warp * FEW_SUMS + i];
    output += i % FEW_OUTPUTS;
    y[(row + i / FEW_OUTPUTS) * p.y_stride + output] = sum + (bias == nullptr ? 0.0f : bias[output]);
}

// ---- Many rows. A block computes ROWS × OUTPUTS of Y, a lane four rows of two outputs. Columns go through shared memory in
// steps, of which the next is on its way in registers. Blocks along the grid's z share the columns; Y has one place for each
// share, in which rows follow one another (`gemm_sum.cu` adds them).
#define ROWS 32
#define OUTPUTS 32
#define STEP 64
// From a row in shared memory to the next: four more keep quarters of a warp on different banks.
#define STRIDE (STEP + 4)
#define THREADS 128
#define LANE_ROWS 4
#define LANE_OUTPUTS 2
// Rows of both tiles, one after another, and how many of a step's fours a thread copies.
#define TILE_ROWS (ROWS + OUTPUTS)
#define COPIES (TILE_ROWS * (STEP / 4) / THREADS)

// What a thread copies: some rows of X and some of the weight, the same four columns of all.
struct Copier {
    const float *x, *w;
    u64 w_stride;
    u32 cols, end, rows, outputs, line, column;

    // Zeros past the last row and the share's last column.
    DEV void load(u32 first, float4 (&fours)[COPIES]) const {
#pragma unroll
        for (u32 i = 0; i < COPIES; i++) {
            u32 row = line + i * (TILE_ROWS / COPIES), of_w = row - ROWS;
            bool is_x = row < ROWS, there = first + column < end && (is_x ? row < rows : of_w < outputs);
            const float* from = is_x ? x + u64(row) * cols : w + of_w * w_stride;
            fours[i] = there ? read_four(from + first + column) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
    DEV void store(const float4 (&fours)[COPIES], float* tile) const {
#pragma unroll
        for (u32 i = 0; i < COPIES; i++)
            *reinterpret_cast<float4*>(tile + (line + i * (TILE_ROWS / COPIES)) * STRIDE + column) = fours[i];
    }
};

KERNEL_BOUNDED(gemm_f32, THREADS, 4)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, bias, 2), OUT(float, y, 3), PARAMS(GemmF32Params, p, 4)) {
    SHARED(float4, tiles, 2 * TILE_ROWS * STRIDE / 4);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() * ROWS, output = here.block_y() * OUTPUTS;
    const float* w = reinterpret_cast<const float*>(weight + output * p.row_bytes);
    u32 rows = min(p.rows - row, u32(ROWS)), outputs = min(p.outputs - output, u32(OUTPUTS));
    const u32 share = here.block_z(), shares = here.grid_z(), steps = (p.cols + STEP - 1) / STEP;
    const u32 begin = steps * share / shares * STEP, end = min(steps * (share + 1) / shares * STEP, p.cols);
    y += u64(share) * p.rows * p.y_stride;
    Copier copier = {x + u64(row) * p.cols, w, p.row_bytes / sizeof(float), p.cols, end, rows, outputs,
                     here.thread_x() / (STEP / 4), here.thread_x() % (STEP / 4) * 4};
    u32 own_row = here.warp() * 2 * LANE_ROWS + here.lane() / 16 * LANE_ROWS, own_output = here.lane() % 16;
    float sums[LANE_ROWS][LANE_OUTPUTS] = {};
    float4 next[COPIES];
    copier.load(begin, next);
    for (u32 first = begin; first < end; first += STEP) {
        float* tile = reinterpret_cast<float*>(tiles) + first / STEP % 2 * (TILE_ROWS * STRIDE);
        // The step before last, whose place this takes, has been used by all who have passed the last barrier.
        copier.store(next, tile);
        barrier();
        copier.load(first + STEP, next);
        const float *of_x = tile + own_row * STRIDE, *of_w = tile + (ROWS + own_output) * STRIDE;
#pragma unroll 4
        for (int k = 0; k < STEP; k += 4) {
            float4 b[LANE_OUTPUTS];
#pragma unroll
            for (int o = 0; o < LANE_OUTPUTS; o++) b[o] = read_four(of_w + o * 16 * STRIDE + k);
#pragma unroll
            for (int i = 0; i < LANE_ROWS; i++) {
                float4 a = read_four(of_x + i * STRIDE + k);
#pragma unroll
                for (int o = 0; o < LANE_OUTPUTS; o++) add_products(sums[i][o], a, b[o]);
            }
        }
    }
#pragma unroll
    for (int o = 0; o < LANE_OUTPUTS; o++) {
        u32 at = own_output + 16 * o;
        if (at >= outputs) continue;
        float add = bias == nullptr ? 0.0f : bias[output + at];
#pragma unroll
        for (int i = 0; i < LANE_ROWS; i++)
            if (own_row + i < rows) y[(row + own_row + i) * p.y_stride + output + at] = sums[i][o] + add;
    }
}
