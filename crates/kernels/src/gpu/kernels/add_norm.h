// The residual stream with a block's answer added, normalised, and prepared as activations: a block of threads to a row,
// which stays in registers.
#pragma once
#include "team.h"
#include "act.h"

// Groups of four elements of a thread.
#define KEPT 2

struct AddNormParams {
    // Elements of a row, and from one row to the next.
    u64 width, delta_stride, residual_stride, normed_stride;
    float scale, eps;
    u32 wide, padding;
};

// 32 neighbouring elements as int8 and as bfloat16, by 8 lanes with four each, of which this is number `part`; as
// `quantise.cu` does it. The whole warp meets here; those whose block is not there have `live` false.
DEV void quantise_four(Four v, GLOBAL Int8Block* block, GLOBAL u32* bf16, u32 part, bool live) {
    float wild = 0.0f, largest = 0.0f;
    for (u32 i = 0; i < 4; i++) {
        wild = v.at[i] * 0.0f == 0.0f ? wild : 1.0f;
        largest = fmaxf(largest, fabsf(v.at[i]));
    }
    for (int mask = 4; mask > 0; mask /= 2) {
        wild = fmaxf(wild, shuffle_xor(wild, mask));
        largest = fmaxf(largest, shuffle_xor(largest, mask));
    }
    // A block that is not finite gets a NaN as its scale: it must show in the output, not vanish.
    bool finite = wild == 0.0f;
    float scale = finite ? largest / 127.0f : __uint_as_float(0x7fc00000u);
    // A block of denormals has no inverse in f32; it quantises to zeros.
    float inverse = finite && largest > 1e-36f ? 127.0f / largest : 0.0f;
    u32 word = 0;
    i32 sum = 0;
    for (u32 i = 0; i < 4; i++) {
        i32 q = finite ? __float2int_rn(__fmul_rn(v.at[i], inverse)) : 0;
        word |= ((u32)q & 0xff) << 8 * i;
        sum += q;
    }
    for (int mask = 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    i32 other = shuffle_xor(sum, 4);
    if (!live) return;
    bf16[2 * part] = pack_bf16(v.at[0], v.at[1]);
    bf16[2 * part + 1] = pack_bf16(v.at[2], v.at[3]);
    block->q[part] = word;
    if (part % 4 == 0) {
        block->half_sums[part / 4] = sum;
        block->scaled_half_sums[part / 4] = __fmul_rn(scale, (float)sum);
        block->padding[part / 4] = 0;
    }
    if (part == 0) {
        block->scale = scale;
        block->sum = __fmul_rn(scale, (float)(sum + other));
    }
}

// delta may be null: nothing is added. So may the activations: `exact` with int8 and bf16 beside it, and `other`, exact.
KERNEL(add_norm)
(IN(float, delta, 0), INOUT(float, residual, 1), IN(float, weight, 2), OUT(float, normed, 3), OUT(float, exact, 4),
 OUT(Int8Block, int8, 5), OUT(u32, bf16, 6), OUT(float, other, 7), PARAMS(AddNormParams, p, 8)) {
    SHARED(float, room, 32);
    u64 row = block_x(), at[KEPT], left[KEPT];
    bool wide[KEPT];
    Four v[KEPT], w[KEPT];
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        at[k] = (k * block_width() + thread_x()) * 4;
        left[k] = at[k] < p.width ? p.width - at[k] : 0;
        wide[k] = p.wide && left[k] > 0;
        // Nobody writes weights while the model runs.
        w[k] = load_four(weight + at[k], left[k], wide[k]);
    }
    dependency_launch();
    dependency_wait();
    float squares = 0.0f;
    GLOBAL float* stream = residual + row * p.residual_stride;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        v[k] = load_four(stream + at[k], left[k], wide[k]);
        if (delta) {
            Four d = load_four(delta + row * p.delta_stride + at[k], left[k], wide[k]);
            for (u32 i = 0; i < 4; i++) v[k].at[i] += p.scale * d.at[i];
            store_four(stream + at[k], v[k], left[k], wide[k]);
        }
        for (u32 i = 0; i < 4; i++) squares += v[k].at[i] * v[k].at[i];
    }
    float factor = 1.0f / sqrtf(block_sum(squares, room) / (float)p.width + p.eps);
    u64 blocks = (p.width + 31) / 32;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) v[k].at[i] = v[k].at[i] * factor * w[k].at[i];
        store_four(normed + row * p.normed_stride + at[k], v[k], left[k], wide[k]);
        if (exact) store_four(exact + row * p.width + at[k], v[k], left[k], wide[k]);
        if (other) store_four(other + row * p.width + at[k], v[k], left[k], wide[k]);
        if (int8) {
            u64 block = at[k] / 32, index = row * blocks + block;
            quantise_four(v[k], int8 + index, bf16 + index * 16, thread_x() % 8, block < blocks);
        }
    }
}
