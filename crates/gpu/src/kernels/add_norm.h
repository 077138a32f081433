// Sums with rows that are normalised: a block of threads to a row, which stays in registers.
#pragma once
#include "norm_act.h"

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
    x += here.block_x() * p.x_stride;
    y += here.block_x() * p.y_stride;
    u64 at[KEPT], left[KEPT];
    bool aligned[KEPT];
    Four v[KEPT], w[KEPT], sum[KEPT];
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
        v[k] = load_four(x + at[k], left[k], aligned[k]);
        sum[k] = load_four(y + at[k], left[k], aligned[k]);
        for (u32 i = 0; i < 4; i++) squares = fmaf(v[k].at[i], v[k].at[i], squares);
    }
    float factor = 1.0f / sqrtf(block_sum(here, squares, scratch) / (float)p.width + p.eps);
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) {
            float normed = v[k].at[i] * factor * w[k].at[i];
            sum[k].at[i] = fmaf(p.scale, normed, sum[k].at[i]) * p.factor;
        }
        store_four(y + at[k], sum[k], left[k], aligned[k]);
    }
}
