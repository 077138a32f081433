// Common parts of the attention kernels: parameters, positions that a token sees, and how these are cut into splits.
#pragma once
#include "quantise.h"

// Tokens of a block of the cache.
#define KV_BLOCK 16u
// The most splits of a token's keys, a multiple of 32, and the fewest blocks of the cache in one.
#ifndef MAX_SPLITS
#define MAX_SPLITS 32u
#endif
#define SPLIT_BLOCKS 8u
// Tokens that are neighbours in the batch and in their sequence are a run. `attention_tile` or `attention_wgmma`, where there
// is one, takes runs from this length on, `attention_split` and `attention_decode` the rest, so a token's result depends on its
// own sequence alone.
#define LONG_RUN 16u

// Whether logits may have a soft cap, windows chunks, queries a temperature, and norms whole rows. A step of one token waits for
// every instruction that is fetched, so `attention_decode` is also compiled without them.
#ifndef ALL_OPTIONS
#define ALL_OPTIONS 1
#endif

// Logits are kept times log2 e, so that their exponentials are powers of two.
#define LOG2_E 1.44269504089f

DEV float minus_infinity() { return __int_as_float(0xff800000); }

#include "AttentionParams"

// Outputs: as they are, and prepared as activations (act.rs) if not null; then a value's width is a multiple of 32.
struct Results {
    float* out;
    float* exact;
    Int8Block* int8;
    u32* bf16;
};

// Four neighbouring elements of a head's result for each lane of a warp, from column `base` on.
DEV void write_result(const AttentionParams& p, const Results& to, u32 token, u32 head, u32 base, Four v) {
    u32 d = base + here.lane() * 4, left = d < p.value_width ? p.value_width - d : 0;
    u64 column = u64(head) * p.value_width + d, at = token * (u64(p.kv_heads) * p.group * p.value_width) + column;
    bool aligned = p.aligned_out && left > 0;
    store_four(to.out + token * p.out_stride + column, v, left, aligned);
    if (to.exact) store_four(to.exact + at, v, left, aligned);
    if (to.int8) quantise_four(v, to.int8 + at / 32, to.bf16 + at / 32 * 16, here.lane() % 8, left > 0);
}

// A token's row of the block table, its position, and the positions that it sees.
struct Context {
    u32 slot, position, first, last;
};

DEV u32 first_seen(const AttentionParams& p, u32 position) {
    u32 least = min(p.first, position);
    if (p.window == 0 || position < p.window) return least;
    return max(least, ALL_OPTIONS && p.chunked ? position - position % p.window : position - p.window + 1);
}

// The factor of the queries of a position.
DEV float query_scale(const AttentionParams& p, u32 position) {
    if (!ALL_OPTIONS) return p.scale;
    u32 steps = p.temperature_length ? (position + p.temperature_offset) / p.temperature_length : 0;
    return steps ? p.scale * fmaf(p.temperature, logf(1.0f + (float)steps), 1.0f) : p.scale;
}

// The last position that a token sees: its own, or a later one in `ends`, if that is not null.
DEV u32 last_seen(const u32* positions, const u32* ends, u32 token) {
    u32 position = positions[token];
    return ends ? max(position, ends[token]) : position;
}

// False for padding and for ids out of range, whose output is zero.
DEV bool find_context(
    const AttentionParams& p, const u32* slots, const u32* positions, const u32* ends, u32 token, Context& context
) {
    u32 slot = slots[token], position = positions[token];
    context.slot = slot;
    context.position = position;
    context.first = first_seen(p, position);
    context.last = last_seen(positions, ends, token);
    return slot < p.table_rows && context.last / KV_BLOCK < p.context_columns;
}

// Zeros for these heads of a token without a context; unless it is padding, raises the flag. By the warps of a block.
DEV void write_zeros(
    const AttentionParams& p, const Context& context, u32 token, const Results& to, u32 head_first, u32 heads, u32* flag
) {
    if (context.slot != PADDING && here.thread_x() == 0) {
        if (context.slot >= p.table_rows) raise(flag, FLAG_SLOT, context.slot, token, p.table_rows);
        else raise(flag, FLAG_POSITION, context.last, token, p.context_columns * KV_BLOCK);
    }
    for (u32 head = head_first + here.warp(); head < head_first + heads; head += here.block_width() / 32) {
        for (u32 base = 0; base < p.value_width; base += 128) write_result(p, to, token, head, base, Four{});
    }
}

// Whether a token continues the sequence of the one before it in the batch.
DEV bool follows(u32 slot_before, u32 position_before, u32 slot, u32 position) {
    return slot == slot_before && position == position_before + 1 && position != 0;
}

// Whether a token is part of a long run. By a warp, for one token.
DEV bool in_long_run(const u32* slots, const u32* positions, u32 tokens, u32 token) {
    // Lane i looks at the step to token − 15 + i; bits 0..=15 are the steps up to the token, bits 16..=30 those after.
    u32 i = token + here.lane();
    bool step = false;
    if (here.lane() < 2 * LONG_RUN - 1 && i >= LONG_RUN && i - (LONG_RUN - 1) < tokens) {
        i -= LONG_RUN - 1;
        step = follows(slots[i - 1], positions[i - 1], slots[i], positions[i]);
    }
    u32 steps = __ballot_sync(0xffffffffu, step);
    u32 before = __clz(~(steps << (32 - LONG_RUN))), after = __ffs(~(steps >> LONG_RUN)) - 1;
    return 1 + before + after >= LONG_RUN;
}

// Whether a kernel of long runs takes a token: part of a long run, with ids in range. By a warp.
DEV bool left_to_tiles(const AttentionParams& p, const u32* slots, const u32* positions, const u32* ends, u32 token) {
    bool in_order = slots[token] < p.table_rows && last_seen(positions, ends, token) / KV_BLOCK < p.context_columns;
    return in_long_run(slots, positions, p.tokens, token) && in_order;
}

// The tokens of a thread block that a kernel of long runs takes, in a prompt nearly all: each warp looks at one. Bit 0 is the next
// token; the last bit marks the end.
struct LongRuns {
    u32* shared;  // of each warp
    const u32* ends;
    u32 ahead;

    DEV u32 look_ahead(const AttentionParams& p, const u32* slots, const u32* positions, u32 token) const {
        u32 own = token + here.grid_x() * here.warp(), warps = here.block_width() / 32, bits = 1u << warps;
        bool left = own < p.tokens && left_to_tiles(p, slots, positions, ends, own);
        if (here.lane() == 0) shared[here.warp()] = left;
        barrier();
        for (u32 i = 0; i < warps; i++) bits |= shared[i] << i;
        barrier();
        return bits;
    }
    DEV bool have(const AttentionParams& p, const u32* slots, const u32* positions, u32 token) {
        if (ahead == 1) ahead = look_ahead(p, slots, positions, token);
        bool left = ahead & 1;
        ahead >>= 1;
        return left;
    }
};

// Whether an entry `begin..end` of a slot's row of the block table is out of range. By the threads of a block.
DEV bool meets_bad_block(const AttentionParams& p, const u32* table, u32 slot, u32 begin, u32 end, u32* flag) {
    const u32* blocks = table + u64(slot) * p.table_cols;
    bool bad = false;
    for (u32 i = begin + here.thread_x(); i < end; i += here.block_width()) {
        if (blocks[i] < p.blocks) continue;
        raise(flag, FLAG_BLOCK, blocks[i], slot * p.table_cols + i, p.blocks);
        bad = true;
    }
    return bad;
}

// The splits of a token's keys, and blocks of the cache in each. They depend on the context alone, so the result of a token does
// not depend on the batch or the grid.
struct Splits {
    u32 count, blocks;
};

DEV Splits splits_of(const AttentionParams& p, const Context& context) {
    u32 all = context.last / KV_BLOCK - context.first / KV_BLOCK + 1;
    if (all <= p.whole) return {1, all};
    u32 blocks = (all + MAX_SPLITS - 1) / MAX_SPLITS;
    if (blocks < SPLIT_BLOCKS) blocks = SPLIT_BLOCKS;
    return {(all + blocks - 1) / blocks, blocks};
}

// A unit is a token, a KV head and up to `p.rows` of its query heads. The grid's y is KV head and rows, z the walker, x the
// tokens, several for each thread block if there is one walker.
struct Unit {
    u32 kv_head, head_first, live;  // live: query heads from `head_first` on
};

DEV Unit unit_of(const AttentionParams& p, u32 index) {
    // Divisions take long, and few models have so many query heads to a KV head.
    u32 chunk = index < p.kv_heads ? 0 : index / p.kv_heads, kv_head = index - chunk * p.kv_heads;
    u32 row_first = chunk * p.rows, left = p.group - row_first;
    return {kv_head, kv_head * p.group + row_first, left < p.rows ? left : p.rows};
}

// Partial results [unit][row][split], where a unit is (token, y), or (x, y) if there is one walker: the weighted sum of values, as
// long as a value in the cache; the maximum of the logits and the sum of their exponentials relative to it. The sum is BAD_SUM
// and the output zero if a block id is out of range.
struct Partials {
    float* vectors;
    float2* stats;
};
#define BAD_SUM -1.0f

DEV u64 partial_of(const AttentionParams& p, u32 unit_index, u32 row, u32 split) {
    return (u64(unit_index) * p.rows + row) * p.splits + split;
}

// A sink is a logit without a value.
DEV float sink_of(const float* sinks, u32 head) { return sinks ? sinks[head] * LOG2_E : minus_infinity(); }

// Splits of a lane: `lane`, `lane` + 32 and so on.
#define LANE_SPLITS (MAX_SPLITS / 32u)

// The shares of a lane's splits in a row's result, and whether the result is zero.
struct Shares {
    float own[LANE_SPLITS];
    bool bad;

    // Those of the splits from 32 · group on.
    DEV float of_group(u32 group) const {
        float share = own[0];
#pragma unroll
        for (u32 i = 1; i < LANE_SPLITS; i++) share = group == i ? own[i] : share;
        return share;
    }
};

// The largest of a warp's numbers, none of which is NaN, by integers of the same order.
DEV float warp_top(float x) {
    u32 bits = __float_as_uint(x), order = bits >> 31 ? ~bits : bits | 0x80000000u, top = warp_largest(order);
    return __uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top);
}

// The statistics of a lane's splits.
DEV void load_stats(const float2* stats, u32 splits, float2 (&own)[LANE_SPLITS]) {
#pragma unroll
    for (u32 i = 0; i < LANE_SPLITS; i++) {
        const u32 split = i * 32 + here.lane();
        own[i] = split < splits ? stats[split] : make_float2(minus_infinity(), 0.0f);
    }
}

DEV Shares shares_of(const float2 (&stats)[LANE_SPLITS], u32 splits, float sink) {
    Shares shares;
    bool bad = false;
    float top = minus_infinity();
#pragma unroll
    for (u32 i = 0; i < LANE_SPLITS; i++) bad |= stats[i].y == BAD_SUM, top = fmaxf(top, stats[i].x);
    shares.bad = __any_sync(0xffffffffu, bad);
    top = fmaxf(warp_top(top), sink);
    float sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < LANE_SPLITS; i++) {
        shares.own[i] = i * 32 + here.lane() < splits ? exp2_approx(stats[i].x - top) : 0.0f;
        // Written out, so that every kernel that joins splits rounds alike.
        sum += rounded_product(shares.own[i], stats[i].y);
    }
    sum = warp_sum(sum) + exp2_approx(sink - top);
#pragma unroll
    for (u32 i = 0; i < LANE_SPLITS; i++) shares.own[i] /= sum;
    return shares;
}

// The same of one split.
DEV float only_share(float max, float sum, float sink) {
    float top = fmaxf(max, sink), weight = exp2_approx(max - top);
    return weight / (weight * sum + exp2_approx(sink - top));
}

// Splits whose sum is taken first; then these sums are added in order.
#define CHUNK 8u

// Four columns from d on of the vectors of a chunk of splits, which are zero behind their width.
DEV void load_chunk(const float* vectors, u32 stride, u32 chunk, u32 splits, u32 d, Four (&values)[CHUNK]) {
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
        u32 split = chunk * CHUNK + i;
        bool inside = d < stride && split < splits;
        values[i] = inside ? *reinterpret_cast<const Four*>(vectors + u64(split) * stride + d) : Four{};
    }
}

// Their sum, weighted.
DEV Four chunk_sum(const Four (&values)[CHUNK], const Shares& shares, u32 chunk, u32 splits) {
    Four total = {};
    float own = shares.of_group(chunk * CHUNK / 32);
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
        u32 split = chunk * CHUNK + i;
        float share = __shfl_sync(0xffffffffu, own, int(split % 32));
        if (split >= splits) continue;
        for (u32 e = 0; e < 4; e++) total.at[e] = fmaf(share, values[i].at[e], total.at[e]);
    }
    return total;
}

// Joins the splits of a row, by one warp.
DEV void combine(
    const AttentionParams& p, Partials partials, u32 unit_index, u32 row, u32 splits, float sink, const Results& to,
    u32 token, u32 head
) {
    u64 first = partial_of(p, unit_index, row, 0);
    float2 stats[LANE_SPLITS];
    load_stats(partials.stats + first, splits, stats);
    Shares shares = shares_of(stats, splits, sink);
    const float* vectors = partials.vectors + first * p.value_stride;
    for (u32 base = 0; base < p.value_width; base += 128) {
        Four total = {}, values[CHUNK];
        for (u32 chunk = 0; chunk * CHUNK < splits; chunk++) {
            load_chunk(vectors, p.value_stride, chunk, splits, base + here.lane() * 4, values);
            Four of_chunk = chunk_sum(values, shares, chunk, splits);
            for (u32 e = 0; e < 4; e++) total.at[e] = chunk == 0 ? of_chunk.at[e] : total.at[e] + of_chunk.at[e];
        }
        write_result(p, to, token, head, base, shares.bad ? Four{} : total);
    }
}

// The row of keys or values of a block's token for one head.
DEV u64 cache_row(const AttentionParams& p, u32 block, u32 head, u32 at) {
    return (u64(block) * p.kv_heads + head) * KV_BLOCK + at;
}
