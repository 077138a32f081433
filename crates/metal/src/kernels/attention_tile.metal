// Attention of long runs: tokens that stand side by side share keys and values.
//
// A block of threads takes a tile of `attention_plan`, up to `tile_tokens` neighbours, and the query heads of a unit.
#include "attention_walk.h"

KERNEL_BOUNDED(attention_tile, THREADS, 1)
(IN(float, q, 0), IN(Cell, keys, 1), IN(u16, key_scales, 2), IN(Cell, values, 3), IN(u16, value_scales, 4),
 IN(u32, slots, 5), IN(u32, positions, 6), IN(u32, table, 7), IN(float, sinks, 8), IN(u32, plan, 9), OUT(float, out, 10),
 OUT(float, exact, 11), INOUT(u32, flag, 12), PARAMS(AttentionParams, p, 13)) {
    HERE;
    DYNAMIC_SHARED(float, query_rows);
    SHARED(float, scores, ROWS * ROUND);
    SHARED(float, factors, ROWS * 8);
    SHARED(float, patches, WARPS * KV_BLOCK * PATCH);
    if (here.block_x() >= plan[1]) return;
    Room scratch = {query_rows, scores, factors, patches + here.warp() * KV_BLOCK * PATCH};
    Side key_side = {keys, key_scales, p.key_width, p.key_stride};
    Side value_side = {values, value_scales, p.value_width, p.value_stride};
    Results results = {out, exact};
    Unit unit = unit_of(p, here.block_y());
    const GLOBAL u32* tile = plan + PLAN_TOKENS + p.tokens + here.block_x() * 2;
    u32 token = tile[0], tokens = tile[1], slot = slots[token], position = positions[token];
    Queries queries = {unit, token, tokens, slot, position};
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
    // Nobody still reads the last round's factors.
    barrier();
    for (u32 i = 0; i < WARP_ROWS; i++) {
        u32 row = here.warp() + i * WARPS;
        float sink = sink_of(p, sinks, unit.head_first + row % unit.heads);
        set_factor(here, scratch, i, row / unit.heads < tokens ? only_share(walk.max[i], walk.sum[i], sink) : 0.0f);
    }
    // No splits are to be joined: these go nowhere.
    write_rows(here, p, queries, scratch, walk, false, out, results);
}
