// A row of activations normalised, prepared and multiplied by a weight in one launch, for steps of few tokens, whose time goes
// to launches. Every block normalises the row while its weights come; the first one writes what other kernels read.
//
// Compiled for a format (FORMAT), for int8 activations or exact ones (INT8), and for so many weight rows of a thread group
// (GROUP_ROWS).
#define TOKENS 1
#define BLOCK_THREADS 256
#include "gemv.cuh"
#include "shared_act.cuh"

#include "NormMatmulParams"

// Where the prepared row goes, as far as it is read: else null.
struct Copies {
    float *normed, *exact, *other;
    Int8Block* int8;
    u32* bf16;
};

// x · weight to `kept`; what it must still be divided by, √(mean(x²) + eps), is for the products, which so need not wait for
// the sum. Returns this thread's part of the squares. By all threads.
DEV float keep_product(const float* x, const float* weight, const NormMatmulParams& p, SharedAct* kept) {
    float squares = 0.0f;
    // Whole warps: `keep_four` is a collective.
    u32 end = (p.cols + 127) & ~127u;
#pragma unroll 4
    for (u32 at = 4 * here.thread_x(); at < end; at += 4 * BLOCK_THREADS) {
        u64 left = at < p.cols ? p.cols - at : 0;
        bool aligned = p.aligned && left > 0;
        Four v = load_four(x + at, left, aligned), w = load_four(weight + at, left, aligned);
        for (u32 i = 0; i < 4; i++) {
            squares = fmaf(v.at[i], v.at[i], squares);
            v.at[i] *= w.at[i];
        }
        keep_four(v, at, p.cols, kept);
    }
    return squares;
}

// The normalised row for others.
DEV void copy(const float* x, const float* weight, float factor, const NormMatmulParams& p, Copies to) {
    u32 end = (p.cols + 127) & ~127u, blocks = (p.cols + 31) / 32;
    for (u32 at = 4 * here.thread_x(); at < end; at += 4 * BLOCK_THREADS) {
        u64 left = at < p.cols ? p.cols - at : 0;
        bool aligned = p.aligned && left > 0;
        Four v = load_four(x + at, left, aligned), w = load_four(weight + at, left, aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * w.at[i];
        store_four(to.normed + at, v, left, aligned);
        if (to.exact) store_four(to.exact + at, v, left, aligned);
        if (to.other) store_four(to.other + at, v, left, aligned);
        u32 block = at / 32;
        if (to.int8) quantise_four(v, to.int8 + block, to.bf16 + 16 * block, at / 4 % 8, block < blocks);
    }
}

// The grid's x counts groups of weight rows, y rows of X.
KERNEL_BOUNDED(norm_matmul, BLOCK_THREADS, LEAST_SMALL_BLOCKS)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, norm, 2), IN(float, bias, 3), OUT(float, y, 4), OUT(float, normed, 5),
 OUT(float, exact, 6), OUT(Int8Block, int8, 7), OUT(u32, bf16, 8), OUT(float, other, 9), PARAMS(NormMatmulParams, p, 10)) {
    DYNAMIC_SHARED(SharedAct, kept);
    SHARED(float, parts, PARTS(GROUP_ROWS));
    SHARED(float, scratch, 32);
    dependency_launch();
    ThreadGroup threads = thread_group(p.threads_log2);
    u32 first = (here.block_x() * (BLOCK_THREADS >> p.threads_log2) + (here.thread_x() >> p.threads_log2)) * GROUP_ROWS;
    u64 row = here.block_y();
    Row w[GROUP_ROWS];
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++) w[r] = {weight + min(first + r, p.outputs - 1) * p.row_bytes, p.blocks};
    // No kernel writes weights.
    for (u32 at = 32 * here.thread_x(); at < p.cols; at += 32 * BLOCK_THREADS) touch(norm + at);
    float sums[GROUP_ROWS][TOKENS] = {};
    multiply<Format>(w, threads, [&]() {
        dependency_wait();
        float squares = warp_sum(keep_product(x + row * p.x_stride, norm, p, kept));
        if (here.lane() == 0) scratch[here.warp()] = squares;
        barrier();
        return SharedActRow{kept, p.cols, 1};
    }, sums);
    Totals totals = gather(sums, threads, parts);
    float squares = 0.0f;
    for (u32 i = 0; i < BLOCK_THREADS / 32; i++) squares += scratch[i];
    float factor = 1.0f / sqrtf(squares / (float)p.cols + p.eps);
    for (u32 i = threads.member; i < GROUP_ROWS; i += threads.size) {
        u32 output = first + i;
        if (output < p.outputs)
            y[row * p.y_stride + output] = totals.at(i) * factor + (bias == nullptr ? 0.0f : bias[output]);
    }
    if (here.block_x() == 0 && normed) {
        u64 blocks = (p.cols + 31) / 32;
        Copies to = {normed + row * p.normed_stride, nullptr, nullptr, nullptr, nullptr};
        if (exact) to.exact = exact + row * p.cols;
        if (other) to.other = other + row * p.cols;
        if (int8) to.int8 = int8 + row * blocks, to.bf16 = bf16 + row * blocks * 16;
        copy(x + row * p.x_stride, norm, factor, p, to);
    }
}
