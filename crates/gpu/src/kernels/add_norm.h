// Sums with rows that are normalised: a block of threads to a row, which stays in registers.
#pragma once
#include "kept_row.h"
#include "quantise.h"

#include "AddNormParams"

// factor · (y + scale · v · norm · w).
DEV Kept summed(Kept y, Kept v, float norm, Kept w, float scale, float factor) {
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        Four normed = normed_four(v.four[k], norm, w.four[k]);
        for (u32 i = 0; i < 4; i++) y.four[k].at[i] = fmaf(scale, normed.at[i], y.four[k].at[i]) * factor;
    }
    return y;
}

// y = factor · (y + scale · norm(x)).
KERNEL_BOUNDED(add_norm, 1024, 1)
(IN(float, x, 0), IN(float, weight, 1), INOUT(float, y, 2), PARAMS(AddNormParams, p, 3)) {
    HERE;
    SHARED(float, scratch, 32);
    y += here.block_x() * p.y_stride;
    KeptGroups groups = kept_groups(here, (u32)p.width, p.aligned);
    // No kernel writes weights.
    Kept w = load_kept(weight, groups);
    dependency_launch();
    dependency_wait();
    Kept v = load_kept(x + here.block_x() * p.x_stride, groups), sum = load_kept(y, groups);
    float norm = 1.0f / sqrtf(block_sum(here, squares(v), scratch) / (float)p.width + p.eps);
    store_kept(y, summed(sum, v, norm, w, p.scale, p.factor), groups);
}

#include "AddNormActParams"

// The same, and the sum or norm(sum) as activations.
KERNEL_BOUNDED(add_norm_act, 1024, 1)
(IN(float, x, 0), IN(float, weight, 1), INOUT(float, y, 2), IN(float, sum_weight, 3), OUT(float, exact, 4),
 OUT(Int8Block, int8, 5), OUT(u32, bf16, 6), PARAMS(AddNormActParams, p, 7)) {
    HERE;
    SHARED(float, scratch, 32);
    SHARED(float, sum_scratch, 32);
    u64 row = here.block_x(), width = p.sum.width, blocks = (width + 31) / 32;
    y += row * p.sum.y_stride;
    KeptGroups groups = kept_groups(here, (u32)width, p.sum.aligned);
    // No kernel writes weights.
    Kept w = load_kept(weight, groups), sum_w = {};
    if (p.normed) sum_w = load_kept(sum_weight, groups);
    dependency_launch();
    dependency_wait();
    Kept v = load_kept(x + row * p.sum.x_stride, groups), sum = load_kept(y, groups);
    float norm = 1.0f / sqrtf(block_sum(here, squares(v), scratch) / (float)width + p.sum.eps);
    sum = summed(sum, v, norm, w, p.sum.scale, p.sum.factor);
    store_kept(y, sum, groups);
    if (p.normed) norm = 1.0f / sqrtf(block_sum(here, squares(sum), sum_scratch) / (float)width + p.eps);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        Four four = sum.four[k];
        if (p.normed) four = normed_four(four, norm, sum_w.four[k]);
        u32 at = groups.at[k], block = at / 32, part = here.thread_x() % 8;
        u64 index = row * blocks + block;
        if (p.parts & PART_EXACT) store_four(exact + row * width + at, four, groups.left[k], groups.aligned[k]);
        quantise_parts(p.parts, four, int8 + index, bf16 + index * 16, part, block < blocks);
    }
}

#include "AddNormsParams"

// y = factor · (y + scale · norm(norm(first) + norm(second))).
KERNEL_BOUNDED(add_norms, 1024, 1)
(IN(float, first, 0), IN(float, first_weight, 1), IN(float, second, 2), IN(float, second_weight, 3), IN(float, weight, 4),
 INOUT(float, y, 5), PARAMS(AddNormsParams, p, 6)) {
    HERE;
    SHARED(float, first_scratch, 32);
    SHARED(float, second_scratch, 32);
    SHARED(float, scratch, 32);
    y += here.block_x() * p.y_stride;
    KeptGroups groups = kept_groups(here, (u32)p.width, p.aligned);
    Kept first_w = load_kept(first_weight, groups), second_w = load_kept(second_weight, groups), w = load_kept(weight, groups);
    dependency_launch();
    dependency_wait();
    Kept v = load_kept(first + here.block_x() * p.first_stride, groups);
    Kept other = load_kept(second + here.block_x() * p.second_stride, groups), sum = load_kept(y, groups);
    float of_first = squares(v), of_second = squares(other), width = (float)p.width;
    // Weights first: fewer registers while the sums are made.
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) v.four[k].at[i] *= first_w.four[k].at[i], other.four[k].at[i] *= second_w.four[k].at[i];
    }
    float factor = 1.0f / sqrtf(block_sum(here, of_first, first_scratch) / width + p.first_eps);
    float other_factor = 1.0f / sqrtf(block_sum(here, of_second, second_scratch) / width + p.second_eps);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) v.four[k].at[i] = fmaf(other.four[k].at[i], other_factor, v.four[k].at[i] * factor);
    }
    factor = 1.0f / sqrtf(block_sum(here, squares(v), scratch) / width + p.eps);
    store_kept(y, summed(sum, v, factor, w, p.scale, p.factor), groups);
}
