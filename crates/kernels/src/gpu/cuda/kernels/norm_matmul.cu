// A row of activations normalised, prepared, and multiplied by a weight in one launch: for steps of few tokens, where
// launches and not bytes cost time. Every block normalises the row for itself while its weights come; the first one writes
// what others read.
//
// Compiled for a format (FORMAT), for int8 activations or exact ones (INT8), and for so many weight rows of a team
// (TEAM_ROWS).
#define TOKENS 1
#include "gemv.cuh"
#include "quantise.h"

// Twin of `NormMatmulParams` in `gpu/cuda/norm_matmul.rs`.
struct NormMatmulParams {
    // Elements from a row to the next, and bytes of a weight row.
    u64 x_stride, normed_stride, y_stride, row_bytes;
    // Outputs, blocks of the format in a row, and columns of X.
    u32 outputs, blocks, cols;
    // Threads of a team, as a power of two.
    u32 team_log2;
    // Rows can be read by four elements.
    u32 wide;
    float eps;
};

#if INT8
// Neighbours in shared memory lie in different banks.
struct Kept : Int8Block {
    u32 gap[4];
};
#define KEPT_IN(cols) (((cols) + 31) / 32)
#else
typedef float Kept;
#define KEPT_IN(cols) (cols)
#endif

// The one row that is multiplied.
struct Normed {
    const Kept* kept;
    u32 cols, count;
    DEV const Kept* row(int) const { return kept; }
};

// Where the prepared row goes: null pointers for what nobody reads.
struct Copies {
    float *normed, *exact, *other;
    Int8Block* int8;
    u32* bf16;
};

// x / sqrt(mean(x²) + eps) · weight to `kept`. All threads meet.
DEV void normalise(const float* x, const float* weight, const NormMatmulParams& p, Kept* kept, float* room, Copies to) {
    float squares = 0.0f;
#pragma unroll 4
    for (u32 at = 4 * thread_x(); at < p.cols; at += 4 * BLOCK_THREADS) {
        Four v = load_four(x + at, p.cols - at, p.wide);
        for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    float factor = 1.0f / sqrtf(block_sum(squares, room) / (float)p.cols + p.eps);
    // Whole warps: lanes of a block of 32 meet.
    u32 end = (p.cols + 127) & ~127u;
#pragma unroll 4
    for (u32 at = 4 * thread_x(); at < end; at += 4 * BLOCK_THREADS) {
        u64 left = at < p.cols ? p.cols - at : 0;
        bool wide = p.wide && left > 0;
        Four v = load_four(x + at, left, wide), w = load_four(weight + at, left, wide);
        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * w.at[i];
        if (to.normed) store_four(to.normed + at, v, left, wide);
        if (to.exact) store_four(to.exact + at, v, left, wide);
        if (to.other) store_four(to.other + at, v, left, wide);
        bool live = at / 32 < (p.cols + 31) / 32;
        if (INT8 || to.int8) {
            Quantised value = quantise(v);
#if INT8
            if (live) store_quantised(value, kept + at / 32, at / 4 % 8);
#endif
            if (live && to.int8) {
                store_quantised(value, to.int8 + at / 32, at / 4 % 8);
                to.bf16[at / 2] = pack_bf16(v.at[0], v.at[1]);
                to.bf16[at / 2 + 1] = pack_bf16(v.at[2], v.at[3]);
            }
        }
#if !INT8
        store_four(kept + at, v, left, false);
#endif
    }
    barrier();
}

// The grid's x counts groups of weight rows, y rows of X.
KERNEL_BOUNDED(norm_matmul, BLOCK_THREADS, LEAST_BLOCKS)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, norm, 2), IN(float, bias, 3), OUT(float, y, 4), OUT(float, normed, 5),
 OUT(float, exact, 6), OUT(Int8Block, int8, 7), OUT(u32, bf16, 8), OUT(float, other, 9), PARAMS(NormMatmulParams, p, 10)) {
    DYNAMIC_SHARED(Kept, kept);
    SHARED(float, parts, PARTS(TEAM_ROWS));
    SHARED(float, room, 32);
    dependency_launch();
    Team team = team_of(p.team_log2);
    u32 first = (block_x() * (BLOCK_THREADS >> p.team_log2) + (thread_x() >> p.team_log2)) * TEAM_ROWS;
    u64 row = block_y();
    Row w[TEAM_ROWS];
#pragma unroll
    for (int r = 0; r < TEAM_ROWS; r++) w[r] = {weight + min(first + r, p.outputs - 1) * p.row_bytes, p.blocks};
    // Nobody writes weights while the model runs.
    for (u32 at = 32 * thread_x(); at < p.cols; at += 32 * BLOCK_THREADS) touch(norm + at);
    float sums[TEAM_ROWS][TOKENS] = {};
    multiply<Format>(w, team, [&]() {
        dependency_wait();
        Copies to = {};
        if (block_x() == 0) {
            u64 blocks = (p.cols + 31) / 32;
            if (normed) to.normed = normed + row * p.normed_stride;
            if (exact) to.exact = exact + row * p.cols;
            if (other) to.other = other + row * p.cols;
            if (int8) to.int8 = int8 + row * blocks, to.bf16 = bf16 + row * blocks * 16;
        }
        normalise(x + row * p.x_stride, norm, p, kept, room, to);
        return Normed{kept, p.cols, 1};
    }, sums);
    Totals totals = gather(sums, team, parts);
    for (u32 i = team.member; i < TEAM_ROWS; i += team.size) {
        u32 output = first + i;
        if (output < p.outputs) y[row * p.y_stride + output] = totals.at(i) + (bias == nullptr ? 0.0f : bias[output]);
    }
}
