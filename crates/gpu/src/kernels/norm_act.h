// Rows normalised and prepared as activations: a block of threads to a row, which stays in registers.
#pragma once
#include "kept_row.h"
#include "quantise.h"

#include "NormActParams"

// `other` are exact activations beside fast ones.
KERNEL(norm_act)
(IN(float, x, 0), IN(float, weight, 1), OUT(float, normed, 2), OUT(float, exact, 3), OUT(Int8Block, int8, 4),
 OUT(u32, bf16, 5), OUT(float, other, 6), PARAMS(NormActParams, p, 7)) {
    HERE;
    SHARED(float, scratch, 32);
    u64 row = here.block_x();
    KeptGroups groups = kept_groups(here, (u32)p.width, p.aligned);
    // No kernel writes weights.
    Kept w = load_kept(weight, groups);
    dependency_launch();
    dependency_wait();
    Kept v = load_kept(x + row * p.x_stride, groups);
    float factor = 1.0f / sqrtf(block_sum(here, squares(v), scratch) / (float)p.width + p.eps);
    u64 blocks = (p.width + 31) / 32;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        Four four = normed_four(v.four[k], factor, w.four[k]);
        u32 at = groups.at[k], left = groups.left[k];
        bool aligned = groups.aligned[k];
        if (p.parts & PART_NORMED) store_four(normed + row * p.normed_stride + at, four, left, aligned);
        if (p.parts & PART_EXACT) store_four(exact + row * p.width + at, four, left, aligned);
        if (p.parts & PART_OTHER) store_four(other + row * p.width + at, four, left, aligned);
        u64 block = at / 32, index = row * blocks + block;
        u32 part = here.thread_x() % 8;
        quantise_parts(p.parts, four, int8 + index, bf16 + index * 16, part, block < blocks);
    }
}
