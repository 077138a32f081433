// Attention over one split of what a token sees, for every shape of cache, in plain f32.
//
// A unit is a token, a KV head and up to ROWS of its query heads. A thread block takes splits of the keys of one unit and
// leaves for each the maximum of the logits, the sum of their exponentials and the weighted sum of values, which
// `attention_combine` joins. 64 keys at a time: four threads for a key make the logits, a warp for a row the exponentials, a
// thread for eight columns of some of the values the sums.
//
// ROWS: 1, 4 or 8. CELLS_Q8_0: the cache has 8-bit codes and scales.
#include "attention.cuh"

#define THREADS 128u
#define WARPS (THREADS / 32)
#define TILE 64u
// Threads that share the values of eight columns, at most.
#define MAX_SHARES 16u
#define WARP_ROWS ((ROWS + WARPS - 1) / WARPS)

#ifdef CELLS_Q8_0
typedef i8 Cell;
#else
typedef u16 Cell;
#endif

// Eight neighbours of a row of the cache, from 8 · chunk. What lies between a row's width and its stride is zero.
DEV void load(const Cell* cells, const u16* scales, u64 row, u32 width, u32 stride, u32 chunk, float (&x)[8]) {
#ifdef CELLS_Q8_0
    uint2 codes = *reinterpret_cast<const uint2*>(cells + row * stride + chunk * 8);
    float scale = half_to_float(scales[row * ((width + 31) / 32) + chunk / 4]);
    for (int i = 0; i < 8; i++) x[i] = float(i8((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)))) * scale;
#else
    (void)scales, (void)width;
    uint4 halves = *reinterpret_cast<const uint4*>(cells + row * stride + chunk * 8);
    u32 words[4] = {halves.x, halves.y, halves.z, halves.w};
    for (int i = 0; i < 8; i++) x[i] = half_to_float(u16(words[i / 2] >> (16 * (i % 2))));
#endif
}

// A unit and its keys and values in the cache, for the threads of a block.
struct Work {
    const AttentionParams& p;
    const Unit& unit;
    const Context& context;
    const u32* blocks;  // the token's row of the table
    float *rows, *weights, *rescale;  // in shared memory: ROWS queries, then ROWS results; ROWS · TILE; ROWS

    DEV bool sees(u32 position, u32 end) const {
        return position < end && position >= context.first && position <= context.last;
    }
    DEV u64 row_of(u32 position) const {
        return cache_row(p, blocks[position / KV_BLOCK], unit.kv_head, position % KV_BLOCK);
    }
    DEV void load_queries(const float* row) const {
        float scale = query_scale(p, context.position);
        for (u32 i = here.thread_x(); i < ROWS * p.key_stride; i += THREADS) {
            u32 r = i / p.key_stride, d = i % p.key_stride;
            bool inside = r < unit.live && d < p.key_width;
            rows[i] = inside ? row[u64(unit.head_first + r) * p.key_width + d] * scale : 0.0f;
        }
    }
    // Logits of the keys of a tile: four threads to a key.
    DEV void make_logits(const Cell* keys, const u16* scales, u32 tile_first, u32 tile_end) const {
        u32 chunks = p.key_stride / 8;
        for (u32 key = here.thread_x() / 4; key < TILE; key += THREADS / 4) {
            u32 position = tile_first + key;
            bool seen = sees(position, tile_end);
            float dots[ROWS] = {};
            if (seen) {
                u64 row = row_of(position);
                for (u32 c = here.lane() % 4; c < chunks; c += 4) {
                    float x[8];
                    load(keys, scales, row, p.key_width, p.key_stride, c, x);
                    for (int r = 0; r < ROWS; r++) {
                        const float4* y = reinterpret_cast<const float4*>(rows + r * p.key_stride + c * 8);
                        float4 low = y[0], high = y[1];
                        dots[r] += x[0] * low.x + x[1] * low.y + x[2] * low.z + x[3] * low.w;
                        dots[r] += x[4] * high.x + x[5] * high.y + x[6] * high.z + x[7] * high.w;
                    }
                }
            }
            for (u32 r = 0; r < ROWS; r++) {
                float dot = dots[r] + shuffle_xor(dots[r], 1);
                dot += shuffle_xor(dot, 2);
                if (p.softcap != 0.0f) dot = p.softcap * tanhf(dot / p.softcap);
                dot *= LOG2_E;
                if (here.lane() % 4 == r % 4) weights[r * TILE + key] = seen ? dot : minus_infinity();
            }
        }
    }
    // Exponentials of the logits: a warp to a row, of which these are the maxima and sums so far.
    DEV void make_weights(float (&max)[WARP_ROWS], float (&sum)[WARP_ROWS]) const {
        for (u32 i = 0; i < WARP_ROWS; i++) {
            u32 r = here.warp() + i * WARPS;
            if (r >= ROWS) break;
            float a = weights[r * TILE + here.lane()], b = weights[r * TILE + 32 + here.lane()];
            // NaN is not larger than anything: it reaches the sum below.
            float top = fmaxf(max[i], warp_max(fmaxf(a, b)));
            a = a == minus_infinity() ? 0.0f : exp2_approx(a - top);
            b = b == minus_infinity() ? 0.0f : exp2_approx(b - top);
            float factor = max[i] == top ? 1.0f : exp2_approx(max[i] - top);
            sum[i] = sum[i] * factor + warp_sum(a + b);
            max[i] = top;
            weights[r * TILE + here.lane()] = a;
            weights[r * TILE + 32 + here.lane()] = b;
            if (here.lane() == 0) rescale[r] = factor;
        }
    }
    // Adds weighted values: eight columns of each `shares`-th key to a thread.
    DEV void add_values(
        const Cell* values, const u16* scales, u32 tile_first, u32 tile_end, u32 chunk, u32 share, u32 shares,
        float (&acc)[ROWS][8]
    ) const {
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < 8; i++) acc[r][i] *= rescale[r];
        }
        for (u32 key = share; key < TILE; key += shares) {
            // A key that the token does not see is not read: another sequence may have left infinities, and 0 · ∞ is not 0.
            u32 position = tile_first + key;
            if (!sees(position, tile_end)) continue;
            float x[8];
            load(values, scales, row_of(position), p.value_row, p.value_stride, chunk, x);
            for (int r = 0; r < ROWS; r++) {
                for (int i = 0; i < 8; i++) acc[r][i] += weights[r * TILE + key] * x[i];
            }
        }
    }
    // Sums of the threads that share columns, in order, to `rows`.
    DEV void join(u32 chunk, u32 share, u32 shares, const float (&acc)[ROWS][8]) const {
        for (u32 turn = 0; turn < shares; turn++) {
            if (share == turn) {
                for (int r = 0; r < ROWS; r++) {
                    float* sums = rows + r * p.value_stride + chunk * 8;
                    for (int i = 0; i < 8; i++) sums[i] = turn == 0 ? acc[r][i] : sums[i] + acc[r][i];
                }
            }
            barrier();
        }
    }
};

KERNEL_BOUNDED(attention_split, THREADS, 2)(
    IN(float, q, 0), IN(Cell, keys, 1), IN(u16, key_scales, 2), IN(Cell, values, 3), IN(u16, value_scales, 4),
    IN(u32, slots, 5), IN(u32, positions, 6), IN(u32, table, 7), IN(float, sinks, 8), OUT(float, out, 9),
    OUT(float, exact, 10), OUT(Int8Block, int8, 11), OUT(u32, bf16, 12), INOUT(float, vectors, 13),
    INOUT(float2, stats, 14), INOUT(u32, flag, 15), IN(u32, ends, 16), PARAMS(AttentionParams, p, 17)
) {
    DYNAMIC_SHARED(float, rows);
    SHARED(float, weights, ROWS * TILE);
    SHARED(float, rescale, ROWS);
    SHARED(u32, left_out, WARPS);
    dependency_launch();
    dependency_wait();

    Partials partials = {vectors, stats};
    Results results = {out, exact, int8, bf16};
    Unit unit = unit_of(p, here.block_y());
    u32 walker = here.block_z(), unit_index = here.block_x() * p.units + here.block_y();
    LongRuns long_runs = {left_out, ends, 1};
    for (u32 token = here.block_x(); token < p.tokens; token += here.grid_x()) {
        if (p.long_runs && long_runs.have(p, slots, positions, token)) continue;
        Context context;
        if (!find_context(p, slots, positions, ends, token, context)) {
            if (walker == 0) write_zeros(p, context, token, results, unit.head_first, unit.live, flag);
            continue;
        }
        Splits splits = splits_of(p, context);
        Work work = {p, unit, context, table + u64(context.slot) * p.table_cols, rows, weights, rescale};
        u32 value_chunks = p.value_stride / 8;
        u32 shares = THREADS / value_chunks < MAX_SHARES ? THREADS / value_chunks : MAX_SHARES;
        u32 chunk = here.thread_x() % value_chunks, share = here.thread_x() / value_chunks;

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            u32 begin = context.first / KV_BLOCK + split * splits.blocks, end = begin + splits.blocks;
            if (end > context.last / KV_BLOCK + 1) end = context.last / KV_BLOCK + 1;
            work.load_queries(q + token * p.q_stride);
            // Also the barrier between the queries' writers and readers.
            if (__syncthreads_or(meets_bad_block(p, table, context.slot, begin, end, flag))) {
                if (here.thread_x() < unit.live) stats[partial_of(p, unit_index, here.thread_x(), split)] = make_float2(0.0f, BAD_SUM);
                barrier();
                continue;
            }

            float max[WARP_ROWS], sum[WARP_ROWS], acc[ROWS][8] = {};
            for (u32 i = 0; i < WARP_ROWS; i++) max[i] = minus_infinity(), sum[i] = 0.0f;
            for (u32 tile = begin; tile < end; tile += TILE / KV_BLOCK) {
                u32 tile_first = tile * KV_BLOCK;
                u32 tile_end = end - tile < TILE / KV_BLOCK ? end * KV_BLOCK : tile_first + TILE;
                work.make_logits(keys, key_scales, tile_first, tile_end);
                barrier();
                work.make_weights(max, sum);
                barrier();
                if (share < shares) work.add_values(values, value_scales, tile_first, tile_end, chunk, share, shares, acc);
                barrier();
            }
            work.join(chunk, share, shares, acc);
            for (u32 i = here.thread_x(); i < unit.live * p.value_stride; i += THREADS) {
                u32 r = i / p.value_stride, d = i % p.value_stride;
                vectors[partial_of(p, unit_index, r, split) * p.value_stride + d] = rows[i];
            }
            for (u32 i = 0; i < WARP_ROWS; i++) {
                u32 r = here.warp() + i * WARPS;
                bool mine = r < unit.live && here.lane() == 0;
                if (mine) stats[partial_of(p, unit_index, r, split)] = make_float2(max[i], sum[i]);
            }
            barrier();
        }
        // The next token's partial results are written after a barrier that the warps which join these come to as well.
        if (p.walkers == 1 || (splits.count == 1 && walker == 0)) {
            for (u32 r = here.warp(); r < unit.live; r += WARPS) {
                u32 head = unit.head_first + r;
                combine(p, partials, unit_index, r, splits.count, sink_of(sinks, head), results, token, head);
            }
        }
    }
}
