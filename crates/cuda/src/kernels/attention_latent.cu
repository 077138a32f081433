// Attention of long runs over caches whose values are in their keys, on tensor cores: a thread block takes a tile of the batch,
// neighbouring tokens and the query heads of one KV head, ROWS in all.
//
// Tiles of keys start at multiples of KEYS, so the result of a row does not depend on the other rows.
//
// The macros of `attention_latent.cuh`, and ROUNDED (1: results are activations in bfloat16).
#include "attention_latent.cuh"
#include "attention_result.cuh"
#include "attention_runs.cuh"

#if __CUDA_ARCH__ >= 800
// Writes the thread's rows and columns.
DEV void write_rows(const AttentionParams& p, const Run& run, const Rows& rows, const Sums& sums, Result* out) {
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        const u32 row = own_row(i);
        const bool live = run.live(row);
        const float share = 1.0f / rows.sum[i];
        const u64 token = run.tile.first + run.token_of(row), head = run.tile.head_first + row % run.tile.heads;
        Result* const result = out + token * p.out_stride + head * p.value_width;
#pragma unroll
        for (u32 n = 0; n < OWN_VALUES / 8; n += 2) {
            const u32 column = column_group() * OWN_VALUES + 8 * n;
            float own[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) own[e] = sums[i / 2][n + e / 2][i % 2 * 2 + e % 2] * share;
#if ROUNDED
            write_columns(result + column, live && column < p.value_width, own);
#else
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                const u32 d = column + e / 2 * 8 + here.lane() % 4 * 2 + e % 2;
                if (live && d < p.value_width) result[d] = own[e];
            }
#endif
        }
    }
}

KERNEL_BOUNDED(attention_latent, THREADS, 1)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(u32, table, 4), IN(float, sinks, 5),
    OUT(Result, out, 6), INOUT(u32, flag, 7), IN(u32, ends, 8), PARAMS(AttentionParams, p, 9)
) {
    DYNAMIC_SHARED(u16, shared);
    SHARED(u32, near_slots, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_positions, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_lasts, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(float, units, ROWS);
    SHARED(float, of_groups, ROWS * COLUMN_GROUPS);
    dependency_launch();
    dependency_wait();

    const Memory memory = {shared, of_groups};
    const Tile tile = tile_of(p);
    const Neighbours near = {near_slots, near_positions, near_lasts};
    near.load(p, tile, slots, positions, ends);
    u32 end;
    for (u32 begin = LONG_RUN; begin < LONG_RUN + tile.present; begin = end) {
        end = near.run_end(begin, LONG_RUN + tile.present);
        if (!near.serves(p, begin, end)) continue;
        const Run run = near.run(p, tile, begin, end, ends != nullptr);
        const u32 slot = near_slots[begin], first = first_seen(p, run.first_position);
        const u32* blocks = table + u64(slot) * p.table_cols;
        const bool bad = meets_bad_block(p, table, slot, first / KV_BLOCK, run.last / KV_BLOCK + 1, flag);
        if (__syncthreads_or(bad)) {
            run.write_zeros(p, out, THREADS);
            continue;
        }
        // A row that is not live has another's query.
        auto at = [&](u32 row) {
            const u64 token = tile.first + (run.live(row) ? run.token_of(row) : begin - LONG_RUN);
            return token * p.q_stride + u64(tile.head_first + row % tile.heads) * p.key_width;
        };
        auto scale = [&](u32 row) { return run.live(row) ? query_scale(p, run.position(row)) : 0.0f; };
        store_queries(p, q, at, scale, memory, units);
        barrier();
        Rows rows;
#pragma unroll
        for (u32 i = 0; i < OWN_ROWS; i++) {
            const u32 row = own_row(i);
            const bool live = run.live(row);
            const u32 seen_first = live ? first_seen(p, run.position(row)) : 1, seen_last = live ? run.last_of(row) : 0;
            const float sink = live ? sink_of(sinks, tile.head_first + row % tile.heads) : minus_infinity();
            rows.start(i, seen_first, seen_last, units[row], sink);
        }
        Sums sums = {};
        attend(p, {p, keys, blocks, tile.kv_head, first, run.last}, first / KEYS * KEYS, memory, rows, sums);
        write_rows(p, run, rows, sums, out);
    }
}
#endif
