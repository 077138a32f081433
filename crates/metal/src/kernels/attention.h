// Attention over the paged cache. What its kernels share: parameters, the context of a token, and the walk over keys and
// values.
//
// Up to ROWS queries that share a KV head walk over keys together, 64 at a time (a round), by products of simdgroup matrices
// of f32. Each warp makes the scores of one block of the cache, 16 keys; then the warps share the rows and make weights of
// scores, with the maximum and the sum of exponentials so far (online softmax); then the columns, and add weighted values.
// Keys and values pass through a patch of 16 × 16 floats of each warp, so one source serves a cache of any width and format,
// and what lies outside of the context is zero.
//
// Rounds begin at multiples of 64, and a row is independent of keys outside its context. So the result of a row does not
// depend on the rows beside it.
//
// ROW_GROUPS: eight rows each. PANELS: of 16 columns of the values, for each warp. CELLS_Q8_0: see `kv.h`.
#pragma once
#include "kv.h"
#include "reduce.h"

#define THREADS 128u
#define WARPS 4u
// Blocks of the cache in a round: one for each warp.
#define ROUND_BLOCKS WARPS
#define ROUND (ROUND_BLOCKS * KV_BLOCK)
// Columns of a patch.
#define PATCH 16u
// The most splits of a token's context; as in attention.rs.
#define MAX_SPLITS 32u
// Tokens that are neighbours in the batch and in their sequence are a run; `attention_tile` serves those of this length on.
#define LONG_RUN 16u
// Logits are kept times log2 e, so that their exponentials are powers of two.
#define LOG2_E 1.44269504089f
#define MINUS_INFINITY float_of(0xff800000u)
// The sum of a split that met a block id out of range: the output is zero then.
#define BAD_SUM -1.0f

// Optional buffers.
#define HAS_SINKS 1u
#define HAS_ENDS 2u

#include "AttentionParams"

// Words of the plan: the number of listed tokens, and of tiles; the tokens, at most as many as in the batch; then the first
// token and the number of tokens of each tile.
#define PLAN_TOKENS 2u

DEV u32 first_seen(constant AttentionParams& p, u32 position) {
    u32 least = min(p.first, position);
    if (p.window == 0 || position < p.window) return least;
    return max(least, p.chunked ? position - position % p.window : position - p.window + 1);
}

// The factor of the queries of a position.
DEV float query_scale(constant AttentionParams& p, u32 position) {
    u32 steps = p.temperature_length ? (position + p.temperature_offset) / p.temperature_length : 0;
    return steps ? p.scale * fmaf(p.temperature, log(1.0f + (float)steps), 1.0f) : p.scale;
}

// The last position that a token sees: its own, or a later one in `ends`.
DEV u32 last_seen(constant AttentionParams& p, const GLOBAL u32* ends, u32 token, u32 position) {
    return p.has & HAS_ENDS ? max(position, ends[token]) : position;
}

// Whether a token has a sequence, and a position an entry of the block table.
DEV bool stands(constant AttentionParams& p, u32 slot, u32 position) {
    return slot < p.table_rows && position / KV_BLOCK < p.context_columns;
}

// A KV head and some of the query heads that share it.
struct Unit {
    u32 kv_head, head_first, heads;
};
DEV Unit unit_of(constant AttentionParams& p, u32 index) {
    u32 kv_head = index % p.kv_heads, first = index / p.kv_heads * p.unit_heads;
    return {kv_head, kv_head * p.group + first, min(p.group - first, p.unit_heads)};
}

// The splits of a token's context, and the rounds of each. They depend on the context alone, so the result of a token does
// not depend on the batch or the grid.
struct Splits {
    u32 count, rounds;
};
DEV Splits splits_of(constant AttentionParams& p, u32 position, u32 last) {
    u32 all = last / ROUND - first_seen(p, position) / ROUND + 1;
    if (all <= p.whole) return {1, all};
    u32 rounds = (all + MAX_SPLITS - 1) / MAX_SPLITS;
    return {(all + rounds - 1) / rounds, rounds};
}

// A sink is a logit without a value; that of no sink has no exponential.
DEV float sink_of(constant AttentionParams& p, const GLOBAL float* sinks, u32 head) {
    return p.has & HAS_SINKS ? sinks[head] * LOG2_E : MINUS_INFINITY;
}

// Where results go: rows of the batch, and activations.
struct Results {
    GLOBAL float* out;
    GLOBAL float* exact;
};
// Four columns of a head, from `d` on.
DEV void write_result(constant AttentionParams& p, Results to, u32 token, u32 head, u32 d, Four four) {
    u64 column = u64(head) * p.value_width + d, row = u64(p.kv_heads) * p.group * p.value_width;
    store_four(to.out + token * p.out_stride + column, four, p.value_width - d, p.aligned_out);
    if (p.prepared) store_four(to.exact + token * row + column, four, p.value_width - d, p.aligned_out);
}

// ---- What the splits of a row leave: a vector of `value_columns`, the maximum of the logits, and the sum of exponentials
// relative to that: [token][head][split], or [block][head][split] if a block takes all splits of a token.
struct Partials {
    const GLOBAL float* vectors;
    const GLOBAL float2* stats;
};
DEV u64 partial_of(constant AttentionParams& p, u32 row, u32 head) {
    return (u64(row) * p.kv_heads * p.group + head) * p.splits;
}

// Joins the splits of a row, by one warp, in their order.
DEV void join(Here here, constant AttentionParams& p, Partials partials, u64 first, u32 splits, float sink, Results to,
              u32 token, u32 head) {
    bool live = here.lane() < splits;
    float2 stats = float2(MINUS_INFINITY, 0.0f);
    if (live) stats = partials.stats[first + here.lane()];
    bool bad = simd_any(stats.y == BAD_SUM);
    float top = fmaxf(simd_max(stats.x), sink);
    float weight = live ? exp2(stats.x - top) : 0.0f;
    float share = weight / (simd_sum(weight * stats.y) + exp2(sink - top));
    for (u32 base = 0; base < p.value_width; base += 128) {
        u32 d = base + here.lane() * 4;
        bool inside = d < p.value_width;
        Four total = {};
        for (u32 split = 0; split < splits; split++) {
            float factor = shuffle(share, split);
            if (!inside) continue;
            Four v = *(const GLOBAL Four*)(partials.vectors + (first + split) * p.value_columns + d);
            for (u32 i = 0; i < 4; i++) total.at[i] = fmaf(factor, v.at[i], total.at[i]);
        }
        if (bad) total = {};
        if (inside) write_result(p, to, token, head, d, total);
    }
}
