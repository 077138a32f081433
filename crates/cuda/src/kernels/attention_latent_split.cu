// Attention of single tokens over caches whose values are in their keys, on tensor cores. Splits, units and partial results are
// those of `attention_split`.
//
// The macros of `attention_latent.cuh`.
#include "attention_latent.cuh"

#if __CUDA_ARCH__ >= 800
// Leaves a split's sums, and what scales them.
DEV void write_partials(const AttentionParams& p, const Partials& to, const Unit& unit, u32 unit_index, u32 split,
                        const Rows& rows, const Sums& sums) {
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        const u32 row = own_row(i);
        if (row >= unit.live) continue;
        const u64 partial = partial_of(p, unit_index, row, split);
        if (column_group() == 0 && here.lane() % 4 == 0) to.stats[partial] = make_float2(rows.max[i] - ONE_EXPONENT, rows.sum[i]);
#pragma unroll
        for (u32 n = 0; n < OWN_VALUES / 8; n++) {
            const u32 column = column_group() * OWN_VALUES + n * 8 + here.lane() % 4 * 2;
            const float* own = &sums[i / 2][n][i % 2 * 2];
            // Rows of the cache are whole 16-byte words.
            if (column < p.value_stride) {
                *reinterpret_cast<float2*>(to.vectors + partial * p.value_stride + column) = make_float2(own[0], own[1]);
            }
        }
    }
}

// Zeros for a token's heads.
DEV void write_rows_of_zeros(const AttentionParams& p, const Results& to, const Unit& unit, u32 token) {
    for (u32 row = here.warp(); row < unit.live; row += WARPS) {
        for (u32 base = 0; base < p.value_width; base += 128) write_result(p, to, token, unit.head_first + row, base, Four{});
    }
}

// Rows of results in shared memory: lanes of a quad, and quads, in different banks.
#define RESULT_ROW (VALUE_WIDTH + 8)
static_assert(ROWS * RESULT_ROW * sizeof(float) <= STAGES * TILE * sizeof(u16), "results fit the place of keys");

// Writes the results of a token that has one split, by way of the shared memory of its keys.
DEV void write_results(const AttentionParams& p, const Results& to, const Unit& unit, u32 token, const float* sinks,
                       const Rows& rows, const Sums& sums, float* shared) {
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        const u32 row = own_row(i);
        const float sink = row < unit.live ? sink_of(sinks, unit.head_first + row) : minus_infinity();
        const float share = only_share(rows.max[i] - ONE_EXPONENT, rows.sum[i], sink);
#pragma unroll
        for (u32 n = 0; n < OWN_VALUES / 8; n++) {
            const float* own = &sums[i / 2][n][i % 2 * 2];
            float* const of_thread = shared + row * RESULT_ROW + column_group() * OWN_VALUES + n * 8 + here.lane() % 4 * 2;
            *reinterpret_cast<float2*>(of_thread) = make_float2(share * own[0], share * own[1]);
        }
    }
    barrier();
    for (u32 row = here.warp(); row < unit.live; row += WARPS) {
#pragma unroll 1
        for (u32 base = 0; base < p.value_width; base += 128) {
            const Four four = *reinterpret_cast<const Four*>(shared + row * RESULT_ROW + base + here.lane() * 4);
            write_result(p, to, token, unit.head_first + row, base, four);
        }
    }
}

KERNEL_BOUNDED(attention_latent_split, THREADS, 1)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u32, slots, 2), IN(u32, positions, 3), IN(u32, table, 4), IN(float, sinks, 5),
    OUT(float, out, 6), OUT(float, exact, 7), OUT(Int8Block, int8, 8), OUT(u32, bf16, 9), INOUT(float, vectors, 10),
    INOUT(float2, stats, 11), INOUT(u32, flag, 12), PARAMS(AttentionParams, p, 13)
) {
    DYNAMIC_SHARED(u16, shared);
    SHARED(float, units, ROWS);
    SHARED(float, of_groups, ROWS * COLUMN_GROUPS);
    SHARED(u32, left_out, WARPS);
    dependency_launch();
    dependency_wait();

    const Memory memory = {shared, of_groups};
    const Partials partials = {vectors, stats};
    const Results results = {out, exact, int8, bf16};
    const Unit unit = unit_of(p, here.block_y());
    const u32 walker = here.block_z(), unit_index = here.block_x() * p.units + here.block_y();
    LongRuns long_runs = {left_out, nullptr, 1};
    for (u32 token = here.block_x(); token < p.tokens; token += here.grid_x()) {
        if (p.long_runs && long_runs.have(p, slots, positions, token)) continue;
        Context context;
        if (!find_context(p, slots, positions, nullptr, token, context)) {
            if (walker == 0) write_zeros(p, context, token, results, unit.head_first, unit.live, flag);
            continue;
        }
        const Splits splits = splits_of(p, context);
        const u32* blocks = table + u64(context.slot) * p.table_cols;
        auto at = [&](u32 row) {
            return token * p.q_stride + u64(unit.head_first + (row < unit.live ? row : 0)) * p.key_width;
        };
        const float of_token = query_scale(p, context.last);
        auto scale = [&](u32 row) { return row < unit.live ? of_token : 0.0f; };
        if (walker < splits.count) store_queries(p, q, at, scale, memory, units);
        for (u32 split = walker; split < splits.count; split += p.walkers) {
            const u32 begin = context.first / KV_BLOCK + split * splits.blocks;
            const u32 end = min(begin + splits.blocks, context.last / KV_BLOCK + 1);
            // Also the barrier between the queries' writers and readers.
            if (__syncthreads_or(meets_bad_block(p, table, context.slot, begin, end, flag))) {
                if (here.thread_x() < unit.live) stats[partial_of(p, unit_index, here.thread_x(), split)] = make_float2(0.0f, BAD_SUM);
                if (splits.count == 1) write_rows_of_zeros(p, results, unit, token);
                continue;
            }
            const u32 first = max(context.first, begin * KV_BLOCK), last = min(context.last, end * KV_BLOCK - 1);
            Rows rows;
#pragma unroll
            for (u32 i = 0; i < OWN_ROWS; i++) {
                const u32 row = own_row(i);
                const bool live = row < unit.live;
                rows.start(i, live ? first : 1, live ? last : 0, units[row], minus_infinity());
            }
            Sums sums = {};
            attend(p, {p, keys, blocks, unit.kv_head, first, last}, begin * KV_BLOCK, memory, rows, sums);
            if (splits.count > 1) write_partials(p, partials, unit, unit_index, split, rows, sums);
            else write_results(p, results, unit, token, sinks, rows, sums, reinterpret_cast<float*>(memory.tiles));
        }
        barrier();
        // The next token's partial results are written after a barrier that the warps which join these come to as well.
        if (p.walkers == 1 && splits.count > 1) {
            for (u32 r = here.warp(); r < unit.live; r += WARPS) {
                const u32 head = unit.head_first + r;
                combine(p, partials, unit_index, r, splits.count, sink_of(sinks, head), results, token, head);
            }
        }
    }
}
#endif
