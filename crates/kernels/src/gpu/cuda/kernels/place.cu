// Queries and keys normalised and turned in place, keys and values written to the cache: a warp for each head of a token.
#include "kv.h"
#include "rope.h"

// Twin of `PlaceParams` in place.rs.
struct PlaceParams {
    WriteParams write;
    u64 stride;  // elements from token to token
    u32 heads, pairs, interleaved;
    u32 room;  // floats of shared memory of a warp
    u32 normed, wide;
    float eps, magnitude;
};

// A head to shared memory, normalised if there is a weight.
DEV void load_head(const float* x, const float* weight, float* to, u32 width, const PlaceParams& p) {
    float factor = 1.0f;
    if (p.normed) {
        float squares = 0.0f;
        for (u32 at = here.lane() * 4; at < width; at += 128) {
            Four v = load_four(x + at, width - at, p.wide);
            for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
        }
        factor = 1.0f / sqrtf(warp_sum(squares) / (float)width + p.eps);
    }
    for (u32 at = here.lane() * 4; at < width; at += 128) {
        u32 left = width - at;
        Four v = load_four(x + at, left, p.wide);
        if (p.normed) {
            Four w = load_four(weight + at, left, p.wide);
            for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * w.at[i];
        }
        for (u32 i = 0; i < 4; i++) to[at + i] = v.at[i];
    }
    warp_barrier();
}

KERNEL(place_qkv)(
    INOUT(float, qkv, 0), IN(float, q_norm, 1), IN(float, k_norm, 2), IN(float, frequencies, 3), IN(u32, slots, 4),
    IN(u32, positions, 5), IN(u32, table, 6), OUT(Cell, keys, 7), OUT(u16, key_scales, 8), OUT(Cell, values, 9),
    OUT(u16, value_scales, 10), INOUT(u32, flag, 11), PARAMS(PlaceParams, p, 12)
) {
    DYNAMIC_SHARED(float, room);
    dependency_launch();
    dependency_wait();
    u32 token = here.block_x(), head = here.block_y() * (here.block_width() / 32) + here.warp(), kv_heads = p.write.heads;
    u32 turned = p.heads + kv_heads, key_width = p.write.key_width;
    if (head >= turned + kv_heads) return;
    bool key = head < turned;
    u32 width = key ? key_width : p.write.value_width, position = positions[token];
    float* x = qkv + token * p.stride + u64(min(head, turned)) * key_width;
    if (key) {
        float* mine = room + here.warp() * p.room;
        load_head(x, head < p.heads ? q_norm : k_norm, mine, width, p);
        for (u32 pair = here.lane(); pair < p.pairs; pair += 32) {
            Rotation r = rotation_at(position, frequencies[pair], p.magnitude);
            u32 a = p.interleaved ? 2 * pair : pair, b = p.interleaved ? a + 1 : pair + p.pairs;
            turn(r, mine + a, mine + b);
        }
        warp_barrier();
        for (u32 d = here.lane(); d < width; d += 32) x[d] = mine[d];
    } else {
        x += u64(head - turned) * width;
    }
    u32 block;
    if (head < p.heads || !block_of(p.write, slots, positions, table, token, flag, block)) return;

    u64 row = (u64(block) * kv_heads + (key ? head - p.heads : head - turned)) * KV_BLOCK + position % KV_BLOCK;
    for (u32 group = 0; group * GROUP_SIZE < width; group++) {
        // What this lane has just written, if it is a key.
        u32 d = group * GROUP_SIZE + here.lane();
        float value = d < width ? x[d] : 0.0f;
        if (key) put(here, keys, key_scales, row, width, p.write.key_stride, group, value);
        else put(here, values, value_scales, row, width, p.write.value_stride, group, value);
    }
}
