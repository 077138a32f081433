// Attention of long runs: neighbours share keys and values. A block takes a tile of `attention_plan`, up to `tile_tokens`
// neighbours, and the query heads of a unit.
#include "attention_walk.h"

KERNEL_BOUNDED(attention_tile, THREADS, 1)
(WALK_ARGUMENTS, INOUT(u32, flag, 12), PARAMS(AttentionParams, p, 13)) {
    WALK_OPERANDS;
    if (here.block_x() >= plan[1]) return;
    const GLOBAL u32* tile = plan + PLAN_TOKENS + p.tokens + here.block_x() * 2;
    u32 token = tile[0], tokens = tile[1], slot = slots[token], position = positions[token];
    Queries queries = {unit, token, tokens, slot, position, 0};
    const GLOBAL u32* blocks = table + u64(slot) * p.table_cols;
    u32 first = first_seen(p, position), last = position + tokens - 1;
    u32 first_round = first / ROUND, end = last / ROUND + 1;

    if (meets_bad_block(here, p, blocks, slot, first, last, first_round, end, flag)) {
        for (u32 i = 0; i < tokens; i++) write_zeros(here, p, unit, token + i, results);
        return;
    }
    Walk walk;
    begin(walk);
    walk_over(here, p, q, key_side, value_side, queries, blocks, first_round, end, scratch, walk);
    // All threads have read the last round's factors.
    barrier();
    for (u32 i = 0; i < WARP_ROWS; i++) {
        u32 row = here.warp() + i * WARPS;
        float sink = sink_of(p, sinks, unit.head_first + row % unit.heads);
        set_factor(here, scratch, i, row / unit.heads < tokens ? only_share(walk.max[i], walk.sum[i], sink) : 0.0f);
    }
    // There are no splits to join, so the vectors are unused.
    write_rows(here, p, queries, scratch, walk, false, out, results);
}
