// Sums with rows that are normalised: a block of threads to a row, which stays in registers.
#pragma once
#include "kept_row.h"

struct AddNormParams {
    // Elements of a row, and from one row to the next.
    u64 width, x_stride, y_stride;
    float eps, scale, factor;
    u32 aligned;
};

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
    float factor = 1.0f / sqrtf(block_sum(here, squares(v), scratch) / (float)p.width + p.eps);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        Four normed = normed_four(v.four[k], factor, w.four[k]);
        for (u32 i = 0; i < 4; i++) sum.four[k].at[i] = fmaf(p.scale, normed.at[i], sum.four[k].at[i]) * p.factor;
    }
    store_kept(y, sum, groups);
}

struct AddNormsParams {
    // Elements of a row, and from one row to the next.
    u64 width, first_stride, second_stride, y_stride;
    float first_eps, second_eps, eps, scale, factor;
    u32 aligned;
};

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
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        Four normed = normed_four(v.four[k], factor, w.four[k]);
        for (u32 i = 0; i < 4; i++) sum.four[k].at[i] = fmaf(p.scale, normed.at[i], sum.four[k].at[i]) * p.factor;
    }
    store_kept(y, sum, groups);
}
