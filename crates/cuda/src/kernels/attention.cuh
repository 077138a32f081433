// What the kernels of attention share: their parameters, where a token stands, and how its keys are cut into splits.
#pragma once
#include "quantise.h"

// Tokens of a block of the cache.
#define KV_BLOCK 16u
// What a token sees is cut into at most so many splits,
#define MAX_SPLITS 32u
// each of at least so many blocks of the cache.
#define SPLIT_BLOCKS 8u
// Tokens that stand side by side in the batch and in their sequence are a run. Runs of this length on are for
// `attention_tile`, where there is one; shorter ones for `attention_split` and `attention_decode`. So what a token gets
// depends on its own sequence, never on the others.
#define LONG_RUN 16u

// Logits are kept times log2 e, so that their exponentials are powers of two.
#define LOG2_E 1.44269504089f

DEV float minus_infinity() { return __int_as_float(0xff800000); }

// Twin of `AttentionParams` in attention.rs.
struct AttentionParams {
    u64 q_stride, out_stride;  // elements from token to token
    float scale, softcap;      // a softcap of 0 is none
    u32 tokens;                // of the batch
    u32 kv_heads, group;  // query heads are kv_heads · group
    u32 key_width, value_width;
    u32 key_stride, value_stride;  // elements from token to token in the cache
    u32 window;                    // 0 is none
    u32 table_rows, table_cols, blocks;
    u32 context_columns;      // columns of the table that positions may lie in
    u32 rows;       // the most query heads of a unit, a power of two
    u32 units;      // of a token
    u32 whole;      // so many blocks of the cache are not cut into splits
    u32 splits;     // the most that a token can have, by the context_columns
    u32 walkers;    // blocks of threads that share the splits of one unit; one also joins them
    u32 long_runs;  // whether `attention_tile` serves the long runs
    u32 aligned_q, aligned_out;  // rows allow 16-byte accesses
};

// Where results go. They may also be prepared as activations of the next product (see act.rs): as they are, as int8 and
// as bfloat16; what is null is not wanted. A value's width is a multiple of 32 then.
struct Results {
    float* out;
    float* exact;
    Int8Block* int8;
    u32* bf16;
};

// Four neighbouring elements of a head's result for each lane of a warp, the first of which has column `base`.
DEV void write_result(const AttentionParams& p, const Results& to, u32 token, u32 head, u32 base, Four v) {
    u32 d = base + here.lane() * 4, left = d < p.value_width ? p.value_width - d : 0;
    u64 column = u64(head) * p.value_width + d, at = token * (u64(p.kv_heads) * p.group * p.value_width) + column;
    bool aligned = p.aligned_out && left > 0;
    store_four(to.out + token * p.out_stride + column, v, left, aligned);
    if (to.exact) store_four(to.exact + at, v, left, aligned);
    if (to.int8) quantise_four(v, to.int8 + at / 32, to.bf16 + at / 32 * 16, here.lane() % 8, left > 0);
}

// A token's row of the block table and the positions that it sees, the last its own.
struct Standing {
    u32 slot, first, last;
};

DEV u32 first_seen(const AttentionParams& p, u32 position) {
    return p.window != 0 && position >= p.window ? position - p.window + 1 : 0;
}

// False for padding, and for ids out of range: the token's output is zero.
DEV bool stand(const AttentionParams& p, const u32* slots, const u32* positions, u32 token, Standing& standing) {
    u32 slot = slots[token], position = positions[token];
    standing.slot = slot;
    standing.first = first_seen(p, position);
    standing.last = position;
    return slot < p.table_rows && position / KV_BLOCK < p.context_columns;
}

// Zeros for these heads of a token that does not stand; unless it is padding, the flag is raised. The warps of a block share
// the work.
DEV void refuse(
    const AttentionParams& p, const Standing& standing, u32 token, const Results& to, u32 head_first, u32 heads, u32* flag
) {
    if (standing.slot != PADDING && here.thread_x() == 0) {
        if (standing.slot >= p.table_rows) raise(flag, FLAG_SLOT, standing.slot, token, p.table_rows);
        else raise(flag, FLAG_POSITION, standing.last, token, p.context_columns * KV_BLOCK);
    }
    for (u32 head = head_first + here.warp(); head < head_first + heads; head += here.block_width() / 32) {
        for (u32 base = 0; base < p.value_width; base += 128) write_result(p, to, token, head, base, Four{});
    }
}

// Whether token `i` comes right after the one before it, in the batch and in the sequence.
DEV bool follows(u32 slot_before, u32 position_before, u32 slot, u32 position) {
    return slot == slot_before && position == position_before + 1 && position != 0;
}

// Whether a token is part of a long run. All lanes of a warp ask for the same token.
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

// Whether a token is left to `attention_tile`: part of a long run, and its ids in order. By a whole warp.
DEV bool left_to_tiles(const AttentionParams& p, const u32* slots, const u32* positions, u32 token) {
    bool in_order = slots[token] < p.table_rows && positions[token] / KV_BLOCK < p.context_columns;
    return in_long_run(slots, positions, p.tokens, token) && in_order;
}

// The same of as many tokens of a block of threads as it has warps, as bits, and a bit behind them.
DEV u32 look_ahead(const AttentionParams& p, const u32* slots, const u32* positions, u32 token, u32* shared) {
    u32 own = token + here.grid_x() * here.warp(), warps = here.block_width() / 32, bits = 1u << warps;
    bool left = own < p.tokens && left_to_tiles(p, slots, positions, own);
    if (here.lane() == 0) shared[here.warp()] = left;
    barrier();
    for (u32 i = 0; i < warps; i++) bits |= shared[i] << i;
    barrier();
    return bits;
}

// Whether an entry of the block table, among `begin..end` of a slot, is no block. The threads of a block share the work.
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

// How many splits a token's keys have, and how many blocks of the cache each has. It depends on what the token sees and
// on nothing else, so the result of a token does not depend on the batch or the grid.
struct Splits {
    u32 count, blocks;
};

DEV Splits splits_of(const AttentionParams& p, const Standing& standing) {
    u32 all = standing.last / KV_BLOCK - standing.first / KV_BLOCK + 1;
    if (all <= p.whole) return {1, all};
    u32 blocks = (all + MAX_SPLITS - 1) / MAX_SPLITS;
    if (blocks < SPLIT_BLOCKS) blocks = SPLIT_BLOCKS;
    return {(all + blocks - 1) / blocks, blocks};
}

// Work is cut into units: a token, a KV head and up to `p.rows` of the query heads that share it. In a grid y is KV head
// and rows, z the walker; x goes over the tokens, several for each block of threads if there is one walker.
struct Unit {
    u32 kv_head, head_first, live;  // live: query heads from `head_first` on
};

DEV Unit unit_of(const AttentionParams& p, u32 index) {
    // Few models have so many query heads to a KV head that these two are needed: divisions take long.
    u32 chunk = index < p.kv_heads ? 0 : index / p.kv_heads, kv_head = index - chunk * p.kv_heads;
    u32 row_first = chunk * p.rows, left = p.group - row_first;
    return {kv_head, kv_head * p.group + row_first, left < p.rows ? left : p.rows};
}

// What is left of each split of a row: its vector, as long as a value in the cache, the maximum of its logits, and the
// sum of their exponentials relative to that. A sum of BAD_SUM says that a block id was out of range: the output is zero
// then. Lies as [place][row][split],
// where a place is a unit: (token, y), or (x, y) if there is one walker.
struct Partials {
    float* vectors;
    float2* stats;
};
#define BAD_SUM -1.0f

DEV u64 partial_of(const AttentionParams& p, u32 place, u32 row, u32 split) {
    return (u64(place) * p.rows + row) * p.splits + split;
}

// A sink is a logit without a value; that of no sink has no exponential.
DEV float sink_of(const float* sinks, u32 head) { return sinks ? sinks[head] * LOG2_E : minus_infinity(); }

// How the splits of a row are joined: the share of split `lane` in the result, and whether there is none.
struct Shares {
    float own;
    bool bad;
};

// The largest of a warp's numbers, none of which is NaN: integers in the same order are compared at once.
DEV float warp_top(float x) {
    u32 bits = __float_as_uint(x), order = bits >> 31 ? ~bits : bits | 0x80000000u, top = warp_largest(order);
    return __uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top);
}

DEV Shares shares_of(float2 stats, u32 splits, float sink) {
    if (here.lane() >= splits) stats = make_float2(minus_infinity(), 0.0f);
    bool bad = __any_sync(0xffffffffu, stats.y == BAD_SUM);
    float top = fmaxf(warp_top(stats.x), sink);
    float weight = here.lane() < splits ? exp2_approx(stats.x - top) : 0.0f;
    float sum = warp_sum(weight * stats.y) + exp2_approx(sink - top);
    return {weight / sum, bad};
}

// The same of one split.
DEV float only_share(float max, float sum, float sink) {
    float top = fmaxf(max, sink), weight = exp2_approx(max - top);
    return weight / (weight * sum + exp2_approx(sink - top));
}

// Splits whose sum is taken by itself; then these are added in order.
#define CHUNK 8u

// Four columns from d on of the vectors of a chunk of splits. Behind a vector's end lie zeros up to its stride.
DEV void load_chunk(const float* vectors, u32 stride, u32 chunk, u32 splits, u32 d, Four (&values)[CHUNK]) {
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
        u32 split = chunk * CHUNK + i;
        bool inside = d < stride && split < splits;
        values[i] = inside ? *reinterpret_cast<const Four*>(vectors + u64(split) * stride + d) : Four{};
    }
}

// Their sum, weighted; `own` is the calling lane's share. Values of no split are not looked at.
DEV Four chunk_sum(const Four (&values)[CHUNK], float own, u32 chunk, u32 splits) {
    Four total = {};
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
    const AttentionParams& p, Partials partials, u32 place, u32 row, u32 splits, float sink, const Results& to,
    u32 token, u32 head
) {
    u64 first = partial_of(p, place, row, 0);
    float2 stats = here.lane() < splits ? partials.stats[first + here.lane()] : make_float2(0.0f, 0.0f);
    Shares shares = shares_of(stats, splits, sink);
    const float* vectors = partials.vectors + first * p.value_stride;
    for (u32 base = 0; base < p.value_width; base += 128) {
        Four total = {}, values[CHUNK];
        for (u32 chunk = 0; chunk * CHUNK < splits; chunk++) {
            load_chunk(vectors, p.value_stride, chunk, splits, base + here.lane() * 4, values);
            Four of_chunk = chunk_sum(values, shares.own, chunk, splits);
            for (u32 e = 0; e < 4; e++) total.at[e] = chunk == 0 ? of_chunk.at[e] : total.at[e] + of_chunk.at[e];
        }
        write_result(p, to, token, head, base, shares.bad ? Four{} : total);
    }
}

// Which row of keys or values holds a token of a block for one head.
DEV u64 cache_row(const AttentionParams& p, u32 block, u32 head, u32 at) {
    return (u64(block) * p.kv_heads + head) * KV_BLOCK + at;
}
