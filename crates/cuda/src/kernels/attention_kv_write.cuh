// Work of `attention_decode` on new queries, keys and values before it uses them.
//
// KEY_WIDTH: of a head, rounded up.
#pragma once
#include "attention.cuh"
#include "rope.h"

// Rotations of a lane.
#define ROTATIONS ((KEY_WIDTH / 2 + 31) / 32)

// `KvWriteParams::normed`: queries and keys are normalised head by head, or whole rows of them.
#define NORMED_BY_HEAD 1u
#define NORMED_BY_ROW 2u

#include "KvWriteParams"

// The mean square of a row, as `rms_segment` takes it in norm.h: by as many warps, here one after another. `parts`: shared memory
// for a float of each.
struct RowSquares {
    const float* row;
    u32 width;
    float* parts;

    DEV u32 warps() const { return width > 512 ? min(max((width + 255) / 256, 4u), 32u) : 1; }
    // By all threads; after it they meet.
    DEV void add_up(bool aligned) const {
        for (u32 warp = here.warp(); warp < warps(); warp += here.block_width() / 32) {
            float squares = 0.0f;
            for (u32 at = (warp * 32 + here.lane()) * 4; at < width; at += warps() * 128) {
                Four v = load_four(row + at, width - at, aligned);
                for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
            }
            squares = warp_sum(squares);
            if (here.lane() == 0) parts[warp] = squares;
        }
    }
    DEV float mean() const {
        float sum = parts[0];
        if (warps() > 1) sum = warp_sum(here.lane() < warps() ? parts[here.lane()] : 0.0f);
        return sum / (float)width;
    }
};

// Normalises and rotates heads, four elements for each lane, as `qkv_write` does; lanes meet once for all heads. `scratches`:
// 128 floats of shared memory for each. `means`: the mean squares of their rows.
template <u32 HEADS>
DEV void norm_and_rotate(
    Four (&v)[HEADS], const Four (&weights)[HEADS], const Rotation (&rotations)[ROTATIONS], const KvWriteParams& p, u32 width,
    const float (&means)[HEADS], float* const (&scratches)[HEADS]
) {
    if (p.normed) {
        float squares[HEADS] = {};
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            for (u32 i = 0; i < 4; i++) squares[h] = fmaf(v[h].at[i], v[h].at[i], squares[h]);
        }
#pragma unroll
        for (int mask = 16; mask > 0; mask /= 2) {
            for (u32 h = 0; h < HEADS; h++) squares[h] += shuffle_xor(squares[h], mask);
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            float mean = squares[h] / (float)width;
            if (ALL_OPTIONS && p.normed == NORMED_BY_ROW) mean = means[h];
            float factor = 1.0f / sqrtf(mean + p.eps);
            for (u32 i = 0; i < 4; i++) v[h].at[i] = v[h].at[i] * factor * weights[h].at[i];
        }
    }
    if (p.pairs == 0) return;
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) reinterpret_cast<Four*>(scratches[h])[here.lane()] = v[h];
    warp_barrier();
#pragma unroll
    for (u32 i = 0; i < ROTATIONS; i++) {
        u32 pair = i * 32 + here.lane();
        if (pair >= p.pairs) break;
        u32 a = p.interleaved ? 2 * pair : pair, b = p.interleaved ? a + 1 : pair + p.pairs;
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) rotate(rotations[i], scratches[h] + a, scratches[h] + b);
    }
    warp_barrier();
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) v[h] = reinterpret_cast<const Four*>(scratches[h])[here.lane()];
}

// Writes four elements of a new key or value for each lane to shared memory, and to `cell` of the cache unless null.
DEV void keep(Four v, u32 width, uint4* shared, u16* cell, u32 stride) {
    uint2 words = make_uint2(pack_half(v.at[0], v.at[1]), pack_half(v.at[2], v.at[3]));
    u32 d = here.lane() * 4;
    if (d < width) reinterpret_cast<uint2*>(shared)[here.lane()] = words;
    if (cell && d < stride) *reinterpret_cast<uint2*>(cell + d) = words;
}
