// Attention of neighbours in a sequence by splits: what `attention_decode` computes for each token, bit for bit, with keys and
// values that are read once for NEIGHBOURS tokens.
//
// A unit is so many tokens, a KV head and up to eight of its query heads. Where all of these tokens see the same blocks of the
// cache, in splits of a block for each warp, a warp keeps the keys and values of its block in registers and takes token after
// token; the last comes first, because each sees fewer values than the token after it. Otherwise tokens come one by one.
//
// KEY_WIDTH, VALUE_WIDTH: as for `attention_decode`. sm_80 or newer.
#include "attention_decode.cuh"

#define NEIGHBOURS 4u

#if __CUDA_ARCH__ >= 800
// A token's queries: the lane's four elements of a head as high and low parts, by a warp for each head.
DEV void bring_queries(const AttentionParams& p, const Unit& unit, const float* row, u32 position, const Scratch& scratch) {
    u32 d = here.lane() * 4, left = d < p.key_width ? p.key_width - d : 0, at = here.warp() * QUERY_ROW / 8;
    Four own = {};
    if (here.warp() < unit.live) {
        own = load_four(row + u64(unit.head_first + here.warp()) * p.key_width + d, left, p.aligned_q && left > 0);
    }
    float undo = split_query(own, query_scale(p, position), scratch.high + at, scratch.low + at);
    if (here.lane() == 0) scratch.undo[here.warp()] = undo;
}

// Up to NEIGHBOURS tokens of the batch, whose last one sees `context`.
struct Group {
    u32 first, count;
    Context context;
    Splits splits;

    DEV u32 position(u32 i) const { return context.last - (count - 1 - i); }
    // Whether they follow one another and see the same blocks, each by the splits of a block for each warp.
    DEV bool find(const AttentionParams& p, const u32* slots, const u32* positions) {
        if (!find_context(p, slots, positions, nullptr, first + count - 1, context)) return false;
        for (u32 i = 1; i < count; i++) {
            u32 token = first + i;
            if (!follows(slots[token - 1], positions[token - 1], slots[token], positions[token])) return false;
        }
        splits = splits_of(p, context);
        u32 begin = position(0);
        return begin / KV_BLOCK == context.last / KV_BLOCK && first_seen(p, begin) == context.first && splits.count > 1 &&
               splits.blocks <= WARPS;
    }
};

KERNEL_BOUNDED(attention_neighbours, THREADS, 1)(
    IN(float, q, 0), INOUT(u16, keys, 1), INOUT(u16, values, 2), IN(u32, slots, 3), IN(u32, positions, 4), IN(u32, table, 5),
    IN(float, sinks, 6), OUT(float, out, 7), OUT(float, exact, 8), OUT(Int8Block, int8, 9), OUT(u32, bf16, 10),
    INOUT(float, vectors, 11), INOUT(float2, stats, 12), INOUT(u32, flag, 13), PARAMS(AttentionParams, p, 14)
) {
    // Results of a token are joined while those of the next are stored.
    DYNAMIC_SHARED(float, rows);
    SHARED(uint4, high, NEIGHBOURS * ROWS * QUERY_ROW / 8);
    SHARED(uint4, low, NEIGHBOURS * ROWS * QUERY_ROW / 8);
    SHARED(float, undo, NEIGHBOURS * ROWS);
    SHARED(float2, found, 2 * WARPS * ROWS);
    dependency_launch();
    dependency_wait();

    const Unit unit = unit_of(p, here.block_y());
    const Partials partials = {vectors, stats};
    const Results results = {out, exact, int8, bf16};
    const bool live = here.warp() < unit.live;
    const float sink[ROUNDS] = {live ? sink_of(sinks, unit.head_first + here.warp()) : minus_infinity()};
    // Scratch of token `i` of a group, in one of two places for results.
    auto scratch_of = [&](u32 i, u32 turn) {
        u32 query = i * ROWS * QUERY_ROW / 8;
        return Scratch{rows + turn * result_at(WARPS, 0, 0), high + query, low + query, undo + i * ROWS,
                       found + turn * WARPS * ROWS, nullptr, nullptr};
    };
    auto unit_index = [&](u32 i) { return (here.block_x() * p.units + here.block_y()) * NEIGHBOURS + i; };

    for (u32 first = here.block_x() * NEIGHBOURS; first < p.tokens; first += here.grid_x() * NEIGHBOURS) {
        Group group = {first, min(p.tokens - first, NEIGHBOURS), {}, {}};
        // No barrier here: the last reads of the previous group in shared memory precede one.
        const bool together = group.find(p, slots, positions);
#pragma unroll 1
        for (u32 i = 0; i < group.count && !together; i++) {
            u32 token = first + i;
            Context context;
            if (!find_context(p, slots, positions, nullptr, token, context)) {
                write_zeros(p, context, token, results, unit.head_first, unit.live, flag);
                continue;
            }
            Scratch scratch = scratch_of(i, 0);
            Splits splits = splits_of(p, context);
            Walk walk = {table + u64(context.slot) * p.table_cols, context.first / KV_BLOCK, context.last / KV_BLOCK + 1, splits, 1};
            walk.begin(0);
            Cache cache = {p, keys, values, unit.kv_head, context.first, context.last + 1};
            KeysAndValues block;
            block.load_keys(cache, walk);
            block.load_values(cache, walk);
            bring_queries(p, unit, q + token * p.q_stride, context.last, scratch);
            barrier();
            TokenSplits own = {p,     unit,    context,  token,   unit_index(i), 0, splits.count,
                               cache, scratch, partials, results, sink,          flag};
            own.take(walk, block, [](u32) {}, [] {});
        }
        if (!together) continue;

        const Splits splits = group.splits;
        const Context& last = group.context;
        Walk walk = {table + u64(last.slot) * p.table_cols, last.first / KV_BLOCK, last.last / KV_BLOCK + 1, splits, 1};
        walk.begin(0);
        const Cache cache = {p, keys, values, unit.kv_head, last.first, last.last + 1};
        KeysAndValues block;
        block.load_keys(cache, walk);
        block.load_values(cache, walk);
#pragma unroll 1
        for (u32 i = 0; i < group.count; i++)
            bring_queries(p, unit, q + (first + i) * p.q_stride, group.position(i), scratch_of(i, 0));
        barrier();
        u32 turn = 0;
        for (u32 split = 0; split < splits.count; split++) {
            const bool mine = walk.now.split == split;
            const u32 begin = walk.now.block * KV_BLOCK;
            const bool bad = mine && walk.id >= p.blocks;
            if (bad) raise(flag, FLAG_BLOCK, walk.id, last.slot * p.table_cols + walk.now.block, p.blocks);
#pragma unroll 1
            for (u32 i = group.count; i-- > 0;) {
                const Scratch scratch = scratch_of(i, turn);
                const Context context = {last.slot, group.position(i), last.first, group.position(i)};
                PartSums sums = {minus_infinity(), 0.0f, {}};
                if (mine) {
                    // Of a value that a token does not see, infinities are not 0 times their weight either.
                    if (context.last - begin + 1 < KV_BLOCK) block.forget_values(context.last - begin + 1);
                    Scores scores = {};
                    scores.multiply(block, scratch);
                    if (i == 0) {
                        walk.step();
                        block.load_keys(cache, walk);
                        walk.look_ahead();
                    }
                    float logits[4];
                    float top = scores.make_logits(p, context, begin, scratch.undo[here.lane() / 4], logits);
                    u32 weights[4];
                    float factor = sums.add_logits(logits, top, weights);
                    sums.add_values(block, weights, factor);
                    if (i == 0) block.load_values(cache, walk);
                }
                sums.store(scratch, here.warp(), bad);
                // Then the other place may be written: its results were joined before.
                barrier();
                if (live) {
                    SplitRow row;
                    row.join(scratch, here.warp());
                    row.write_partial(partials, partial_of(p, unit_index(i), here.warp(), split), p.value_stride);
                }
                turn ^= 1;
            }
        }
        barrier();
#pragma unroll 1
        for (u32 i = 0; i < group.count && live; i++)
            combine(p, partials, unit_index(i), here.warp(), splits.count, sink[0], results, first + i, unit.head_first + here.warp());
    }
}
#endif
