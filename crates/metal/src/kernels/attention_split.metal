// Attention of one token over splits of its context.
//
// A unit is a token, a KV head and up to eight of the query heads that share it. A block takes splits of the keys of one
// unit. If a token has several, `join` makes the result of what each leaves: here if the block takes all of them, else in
// `attention_combine`.
//
// ROW_GROUPS: 1.
#include "attention_walk.h"

KERNEL_BOUNDED(attention_split, THREADS, 1)
(WALK_ARGUMENTS, INOUT(float, vectors, 12), INOUT(float2, stats, 13), INOUT(u32, flag, 14),
 IN(u32, ends, 15), PARAMS(AttentionParams, p, 16)) {
    WALK_OPERANDS;
    Partials partials = {vectors, stats};
    u32 count = p.listed ? plan[0] : p.tokens;
    for (u32 index = here.block_x(); index < count; index += here.grid_x()) {
        u32 token = p.listed ? plan[PLAN_TOKENS + index] : index, at = p.walkers == 1 ? here.block_x() : index;
        u32 slot = slots[token], position = positions[token], walker = here.block_z();
        u32 last = last_seen(p, ends, token, position);
        if (!stands(p, slot, last)) {
            if (walker > 0) continue;
            write_zeros(here, p, unit, token, results);
            if (slot != PADDING && here.thread_x() == 0) {
                if (slot >= p.table_rows) raise(flag, FLAG_SLOT, slot, token, p.table_rows);
                else raise(flag, FLAG_POSITION, last, token, p.context_columns * KV_BLOCK);
            }
            continue;
        }
        Splits splits = splits_of(p, position, last);
        const GLOBAL u32* blocks = table + u64(slot) * p.table_cols;
        Queries queries = {unit, token, 1, slot, position, last - position};
        u32 first = first_seen(p, position), all_end = last / ROUND + 1;
        u64 partial = partial_of(p, at, unit.head_first);

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            u32 begin_round = first / ROUND + split * splits.rounds, end = min(begin_round + splits.rounds, all_end);
            if (meets_bad_block(here, p, blocks, slot, first, last, begin_round, end, flag)) {
                if (splits.count == 1) write_zeros(here, p, unit, token, results);
                else if (here.thread_x() < unit.heads)
                    stats[partial + here.thread_x() * p.splits + split] = float2(0.0f, BAD_SUM);
                continue;
            }
            Walk walk;
            begin(walk);
            walk_over(here, p, q, key_side, value_side, queries, blocks, begin_round, end, scratch, walk);
            // All threads have read the last round's factors.
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
            // The next token's partials overwrite these.
            barrier_global();
        }
    }
}
