// Attention of one token over parts of what it sees.
//
// A unit is a token, a KV head and up to eight of the query heads that share it. A block of threads takes splits of the keys
// of one unit. If a token has several, each leaves what `join` makes the result of: here if the block of threads walks
// through all of them, else in `attention_combine`.
//
// ROW_GROUPS: 1.
#include "attention_walk.h"

KERNEL_BOUNDED(attention_split, THREADS, 1)
(IN(float, q, 0), IN(Cell, keys, 1), IN(u16, key_scales, 2), IN(Cell, values, 3), IN(u16, value_scales, 4),
 IN(u32, slots, 5), IN(u32, positions, 6), IN(u32, table, 7), IN(float, sinks, 8), IN(u32, plan, 9), OUT(float, out, 10),
 OUT(float, exact, 11), INOUT(float, vectors, 12), INOUT(float2, stats, 13), INOUT(u32, flag, 14),
 PARAMS(AttentionParams, p, 15)) {
    HERE;
    DYNAMIC_SHARED(float, query_rows);
    SHARED(float, scores, ROWS * ROUND);
    SHARED(float, factors, ROWS * 8);
    SHARED(float, patches, WARPS * KV_BLOCK * PATCH);
    Room scratch = {query_rows, scores, factors, patches + here.warp() * KV_BLOCK * PATCH};
    Side key_side = {keys, key_scales, p.key_width, p.key_stride};
    Side value_side = {values, value_scales, p.value_width, p.value_stride};
    Partials partials = {vectors, stats};
    Results results = {out, exact};
    Unit unit = unit_of(p, here.block_y());

    u32 count = p.listed ? plan[0] : p.tokens;
    for (u32 turn = here.block_x(); turn < count; turn += here.grid_x()) {
        u32 token = p.listed ? plan[PLAN_TOKENS + turn] : turn, place = p.walkers == 1 ? here.block_x() : turn;
        u32 slot = slots[token], position = positions[token], walker = here.block_z();
        if (!stands(p, slot, position)) {
            if (walker > 0) continue;
            write_zeros(here, p, unit, token, results);
            if (slot != PADDING && here.thread_x() == 0) {
                if (slot >= p.table_rows) raise(flag, FLAG_SLOT, slot, token, p.table_rows);
                else raise(flag, FLAG_POSITION, position, token, p.context_columns * KV_BLOCK);
            }
            continue;
        }
        Splits splits = splits_of(p, position);
        const GLOBAL u32* blocks = table + u64(slot) * p.table_cols;
        Queries queries = {unit, token, 1, slot, position};
        u32 first = first_seen(p, position), all_end = position / ROUND + 1;
        u64 partial = partial_of(p, place, unit.head_first);

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            u32 begin_round = first / ROUND + split * splits.rounds, end = min(begin_round + splits.rounds, all_end);
            if (meets_bad_block(here, p, blocks, slot, first, position, begin_round, end, flag)) {
                if (splits.count == 1) write_zeros(here, p, unit, token, results);
                else if (here.thread_x() < unit.heads)
                    stats[partial + here.thread_x() * p.splits + split] = float2(0.0f, BAD_SUM);
                continue;
            }
            Walk walk;
            begin(walk);
            walk_over(here, p, q, key_side, value_side, queries, blocks, begin_round, end, scratch, walk);
            // Nobody still reads the last round's factors.
            barrier();
            for (u32 i = 0; i < WARP_ROWS; i++) {
                u32 row = here.warp() + i * WARPS;
                if (row >= unit.heads) {
                    set_factor(here, scratch, i, 0.0f);
                } else if (splits.count == 1) {
                    float sink = sink_of(p, sinks, unit.head_first + row);
                    set_factor(here, scratch, i, only_share(walk.max[i], walk.sum[i], sink));
                } else {
                    set_factor(here, scratch, i, 1.0f);
                    if (here.lane() == 0) stats[partial + row * p.splits + split] = float2(walk.max[i], walk.sum[i]);
                }
            }
            GLOBAL float* to = vectors + (partial + split) * p.value_columns;
            write_rows(here, p, queries, scratch, walk, splits.count > 1, to, results);
        }
        if (p.walkers == 1 && splits.count > 1) {
            barrier_global();
            for (u32 row = here.warp(); row < unit.heads; row += WARPS) {
                u32 head = unit.head_first + row;
                float sink = sink_of(p, sinks, head);
                join(here, p, partials, partial + row * p.splits, splits.count, sink, results, token, head);
            }
            // The next token's partials lie at the same place.
            barrier_global();
        }
    }
}
