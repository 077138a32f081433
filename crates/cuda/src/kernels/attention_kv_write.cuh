// Work of `attention_decode` on new queries, keys and values before it uses them.
//
// KEY_WIDTH: of a head, rounded up.
#pragma once
#include "attention.cuh"
#include "rope.h"

// Rotations of a lane.
#define ROTATIONS ((KEY_WIDTH / 2 + 31) / 32)

// Mirrors `KvWriteParams` in `attention.rs`: how queries and keys change before use, and whether this launch writes the cache.
struct KvWriteParams {
    u32 placed, normed, pairs, interleaved;
    float eps, magnitude;
};

// Normalises and rotates heads, four elements for each lane, as `qkv_write` does; lanes meet once for all heads. `scratches`:
// 128 floats of the warp's shared memory for each.
template <u32 HEADS>
DEV void norm_and_rotate(
    Four (&v)[HEADS], const Four (&weights)[HEADS], const Rotation (&rotations)[ROTATIONS], const KvWriteParams& p, u32 width,
    float* const (&scratches)[HEADS]
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
            float factor = 1.0f / sqrtf(squares[h] / (float)width + p.eps);
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
