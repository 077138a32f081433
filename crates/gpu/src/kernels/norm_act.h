// Rows normalised and prepared as activations: a block of threads to a row, which stays in registers.
#pragma once
#include "quantise.h"

// Groups of four elements of a thread.
#define KEPT 2

struct NormActParams {
    // Elements of a row, and from one row to the next.
    u64 width, x_stride, normed_stride;
    float eps;
    u32 aligned;
    // What is written, of ActPart; the other pointers say nothing.
    u32 parts, padding;
};

// `other` are exact activations beside fast ones.
KERNEL(norm_act)
(IN(float, x, 0), IN(float, weight, 1), OUT(float, normed, 2), OUT(float, exact, 3), OUT(Int8Block, int8, 4),
 OUT(u32, bf16, 5), OUT(float, other, 6), PARAMS(NormActParams, p, 7)) {
    HERE;
    SHARED(float, scratch, 32);
    u64 row = here.block_x(), at[KEPT], left[KEPT];
    bool aligned[KEPT];
    Four v[KEPT], w[KEPT];
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        at[k] = (k * here.block_width() + here.thread_x()) * 4;
        left[k] = at[k] < p.width ? p.width - at[k] : 0;
        aligned[k] = p.aligned && left[k] > 0;
        // No kernel writes weights.
        w[k] = load_four(weight + at[k], left[k], aligned[k]);
    }
    dependency_launch();
    dependency_wait();
    float squares = 0.0f;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        v[k] = load_four(x + row * p.x_stride + at[k], left[k], aligned[k]);
        for (u32 i = 0; i < 4; i++) squares = fmaf(v[k].at[i], v[k].at[i], squares);
    }
    float factor = 1.0f / sqrtf(block_sum(here, squares, scratch) / (float)p.width + p.eps);
    u64 blocks = (p.width + 31) / 32;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) v[k].at[i] = v[k].at[i] * factor * w[k].at[i];
        if (p.parts & PART_NORMED) store_four(normed + row * p.normed_stride + at[k], v[k], left[k], aligned[k]);
        if (p.parts & PART_EXACT) store_four(exact + row * p.width + at[k], v[k], left[k], aligned[k]);
        if (p.parts & PART_OTHER) store_four(other + row * p.width + at[k], v[k], left[k], aligned[k]);
        u64 block = at[k] / 32, index = row * blocks + block;
        u32 part = here.thread_x() % 8;
        quantise_parts(p.parts, v[k], int8 + index, bf16 + index * 16, part, block < blocks);
    }
}
