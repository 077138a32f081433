// A row of activations normalised, prepared, and multiplied by a weight in one launch: for steps of few tokens, where launches
// cost the time. Every lane group reads the whole row, so it sums the squares beside the products; the blocks of the first outputs
// write the norm's output.
#pragma once
#include "gemv.h"

#include "NormMatmulParams"
enum NormPart { NORM_NORMED = 1, NORM_ACT = 2, NORM_OTHER = 4 };

// A row of X times the norm's weight, and the sum of the squares of what was loaded.
struct Normed {
    MEMBER int TOKENS = 1;
    const GLOBAL float* row;
    const GLOBAL float* norm;
    u32 cols;
    bool aligned;
    float squares;
    DEV float4 load(int, u32 column) {
        u32 left = column < cols ? cols - column : 0;
        Four v = load_four(row + column, left, aligned && left > 0), w = load_four(norm + column, left, aligned && left > 0);
        float4 product;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            squares = fmaf(v.at[i], v.at[i], squares);
            product[i] = v.at[i] * w.at[i];
        }
        return product;
    }
};

// The grid's x counts groups of weight rows, y rows of X.
template <int ROWS>
DEV void norm_matmul_of(Here here, const Parts parts, const GLOBAL float* x, const GLOBAL float* norm,
                        const GLOBAL float* bias, GLOBAL float* y, GLOBAL float* normed, GLOBAL float* act,
                        GLOBAL float* other, const NormMatmulParams p) {
    LaneGroup group = lane_group_of(here, p.product.cut);
    u32 first = (here.block_x() * (BLOCK_THREADS >> p.product.cut) + group.number) * ROWS;
    u32 cols = p.product.blocks * Format::BLOCK;
    u64 at = here.block_y();
    Row w[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) w[r] = weight_row(p.product, parts, 0, first + r);
    Normed row = {x + at * p.x_stride, norm, cols, p.aligned != 0, 0.0f};
    float sums[ROWS][1] = {};
    multiply(w, group, row, sums);
    float factor = 1.0f / sqrt(lane_group_sum(row.squares, group) / float(cols) + p.eps);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u32 output = first + r;
        // Each is written by another lane.
        if (group.member == u32(r) && output < p.product.outputs)
            y[at * p.product.y_stride + output] = sums[r][0] * factor + bias_of(p.product, bias, 0, output);
    }
    if (here.block_x() > 0) return;
    for (u32 column = 4 * here.thread_x(); column < cols; column += 4 * BLOCK_THREADS) {
        u32 left = cols - column;
        Four v = load_four(row.row + column, left, p.aligned), weight = load_four(norm + column, left, p.aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * weight.at[i];
        if (p.parts & NORM_NORMED) store_four(normed + at * p.normed_stride + column, v, left, p.aligned);
        if (p.parts & NORM_ACT) store_four(act + at * cols + column, v, left, p.aligned);
        if (p.parts & NORM_OTHER) store_four(other + at * cols + column, v, left, p.aligned);
    }
}

#define NORM_MATMUL_ARGUMENTS                                                                                            \
    (IN(u8, weight, 0), IN(u8, second, 1), IN(u8, third, 2), IN(float, x, 3), IN(float, norm, 4), IN(float, bias, 5),    \
     OUT(float, y, 6), OUT(float, normed, 7), OUT(float, act, 8), OUT(float, other, 9), PARAMS(NormMatmulParams, p, 10))

KERNEL_BOUNDED(norm_matmul, BLOCK_THREADS, 1)
NORM_MATMUL_ARGUMENTS {
    HERE;
    norm_matmul_of<4>(here, {weight, second, third}, x, norm, bias, y, normed, act, other, p);
}

// For weights of few rows, which want many blocks.
KERNEL_BOUNDED(norm_matmul_small, BLOCK_THREADS, 1)
NORM_MATMUL_ARGUMENTS {
    HERE;
    norm_matmul_of<1>(here, {weight, second, third}, x, norm, bias, y, normed, act, other, p);
}
