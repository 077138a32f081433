// The walk over keys and values; see `attention.h`.
#pragma once
#include "attention.h"

#define ROWS (ROW_GROUPS * 8u)
#define WARP_ROWS (ROWS / WARPS)

// Keys or values.
struct Side {
    const GLOBAL Cell* cells;
    const GLOBAL u16* scales;
    u32 width, stride;
};

// The queries of a walk: those of `heads` heads of each of `tokens` neighbours; row r is head r % heads of token r / heads.
struct Queries {
    Unit unit;
    u32 token, tokens;
    u32 slot, position;  // position: of the first
    u32 ahead;           // positions that a query sees after its own
};
// The context of a row; empty if there is no such row.
struct Sight {
    bool live;
    u32 first, last;
};
DEV Sight sight_of(constant AttentionParams& p, Queries queries, u32 row) {
    u32 i = row / queries.unit.heads, position = queries.position + i;
    return {i < queries.tokens, first_seen(p, position), position + queries.ahead};
}

// Memory of the block of threads.
struct Scratch {
    GROUP float* queries;  // ROWS × query_columns
    GROUP float* scores;   // ROWS × ROUND
    GROUP float* factors;  // ROWS × 8, each row's factor eight times
    GROUP float* patch;    // the warp's own, 16 × PATCH
};

// The state after some rounds: sums of the warp's columns, and of its rows (warp, warp + WARPS, …) the largest logit and the
// sum of exponentials.
struct Walk {
    simdgroup_float8x8 sums[ROW_GROUPS][PANELS][2];
    float max[WARP_ROWS], sum[WARP_ROWS];
};

DEV void begin(THREAD Walk& walk) {
#pragma unroll
    for (u32 g = 0; g < ROW_GROUPS; g++) {
        for (u32 i = 0; i < PANELS; i++) {
            for (u32 c = 0; c < 2; c++) walk.sums[g][i][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }
    for (u32 i = 0; i < WARP_ROWS; i++) walk.max[i] = MINUS_INFINITY, walk.sum[i] = 0.0f;
}

// Queries, times the scale, from column `panel` on. Rows and columns that are not there are zero.
DEV void load_queries(Here here, constant AttentionParams& p, const GLOBAL float* q, Queries queries, u32 panel, Scratch scratch) {
    for (u32 row = here.warp(); row < ROWS; row += WARPS) {
        u32 i = row / queries.unit.heads, head = queries.unit.head_first + row % queries.unit.heads;
        const GLOBAL float* from = q + (queries.token + i) * p.q_stride + u64(head) * p.key_width;
        float scale = query_scale(p, queries.position + i);
        for (u32 d = here.lane(); d < p.query_columns; d += 32) {
            bool there = i < queries.tokens && panel + d < p.key_width;
            scratch.queries[row * p.query_columns + d] = there ? from[panel + d] * scale : 0.0f;
        }
    }
}

// PATCH columns of a head's keys or values in a block of the cache, whose first has `position`; those outside of
// `first..=last` are zero. By one warp, eight columns for each lane.
DEV void load_patch(Here here, constant AttentionParams& p, Side side, u32 block, u32 kv_head, u32 position, u32 first,
                    u32 last, u32 column, GROUP float* patch) {
    u32 at = here.lane() / 2, eight = here.lane() % 2 * 8;
    column += eight;
    position += at;
    float4 low = float4(0.0f), high = float4(0.0f);
    if (column < side.stride && position >= first && position <= last) {
        u64 row = (u64(block) * p.kv_heads + kv_head) * KV_BLOCK + at;
        const GLOBAL Cell* from = side.cells + row * side.stride + column;
#ifdef CELLS_Q8_0
        uint2 codes = *reinterpret_cast<const GLOBAL uint2*>(from);
        float scale = half_to_float(side.scales[row * ((side.width + GROUP_SIZE - 1) / GROUP_SIZE) + column / GROUP_SIZE]);
        low = float4(as_type<char4>(codes.x)) * scale;
        high = float4(as_type<char4>(codes.y)) * scale;
#else
        uint4 halves = *reinterpret_cast<const GLOBAL uint4*>(from);
        low = float4(as_type<half4>(halves.xy));
        high = float4(as_type<half4>(halves.zw));
#endif
    }
    // All lanes have read the patch before.
    warp_barrier();
    GROUP float4* to = reinterpret_cast<GROUP float4*>(patch + at * PATCH + eight);
    to[0] = low;
    to[1] = high;
    warp_barrier();
}

// The weights of a round's keys, of the warp's rows; in the place of their scores.
DEV void weigh(Here here, constant AttentionParams& p, Queries queries, u32 round, Scratch scratch, THREAD Walk& walk) {
#pragma unroll
    for (u32 i = 0; i < WARP_ROWS; i++) {
        u32 row = here.warp() + i * WARPS, position = round * ROUND + here.lane();
        GROUP float* scores = scratch.scores + row * ROUND + here.lane();
        Sight sight = sight_of(p, queries, row);
        float logits[2];
        for (u32 half_of = 0; half_of < 2; half_of++, position += 32) {
            logits[half_of] = MINUS_INFINITY;
            if (!sight.live || position < sight.first || position > sight.last) continue;
            float dot = scores[half_of * 32];
            if (p.softcap != 0.0f) dot = p.softcap * tanh(dot / p.softcap);
            logits[half_of] = dot * LOG2_E;
        }
        // NaN is not larger than anything: it reaches the sum below.
        float top = fmaxf(walk.max[i], simd_max(fmaxf(logits[0], logits[1])));
        float a = logits[0] == MINUS_INFINITY ? 0.0f : exp2(logits[0] - top);
        float b = logits[1] == MINUS_INFINITY ? 0.0f : exp2(logits[1] - top);
        float factor = walk.max[i] == top ? 1.0f : exp2(walk.max[i] - top);
        walk.sum[i] = walk.sum[i] * factor + simd_sum(a + b);
        walk.max[i] = top;
        scores[0] = a;
        scores[32] = b;
        if (here.lane() < 8) scratch.factors[row * 8 + here.lane()] = factor;
    }
}

// Multiplies sums by their rows' factors, element by element: a matrix of which has them in the same places as one of sums,
// and a product of matrices would bring one row's infinities into others.
DEV void rescale(Scratch scratch, THREAD Walk& walk) {
#pragma unroll
    for (u32 g = 0; g < ROW_GROUPS; g++) {
        simdgroup_float8x8 factors;
        simdgroup_load(factors, scratch.factors + g * 64, 8);
#pragma unroll
        for (u32 i = 0; i < PANELS; i++) {
            for (u32 c = 0; c < 2; c++) {
                for (u32 e = 0; e < 2; e++) walk.sums[g][i][c].thread_elements()[e] *= factors.thread_elements()[e];
            }
        }
    }
}

// Walks over rounds `begin..end` of the queries' context. `blocks`: the sequence's row of the table, whose entries for these
// rounds are in range.
DEV void walk_over(Here here, constant AttentionParams& p, const GLOBAL float* q, Side keys, Side values, Queries queries,
                   const GLOBAL u32* blocks, u32 begin, u32 end, Scratch scratch, THREAD Walk& walk) {
    u32 first = first_seen(p, queries.position), last = queries.position + queries.tokens - 1 + queries.ahead;
    u32 kv_head = queries.unit.kv_head;
    bool whole_keys = p.query_columns == p.key_columns;
    if (whole_keys) load_queries(here, p, q, queries, 0, scratch);
    for (u32 round = begin; round < end; round++) {
        u32 own = round * ROUND_BLOCKS + here.warp();
        bool seen = own >= first / KV_BLOCK && own <= last / KV_BLOCK;
        simdgroup_float8x8 dots[ROW_GROUPS][2];
        for (u32 g = 0; g < ROW_GROUPS; g++) {
            for (u32 c = 0; c < 2; c++) dots[g][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        for (u32 panel = 0; panel < p.key_columns; panel += p.query_columns) {
            // All threads have read the scores of the round before and the queries of the panel before.
            barrier();
            if (!whole_keys) {
                load_queries(here, p, q, queries, panel, scratch);
                barrier();
            }
            u32 columns = min(p.query_columns, p.key_columns - panel);
            for (u32 column = 0; seen && column < columns; column += PATCH) {
                u32 block = blocks[own];
                load_patch(here, p, keys, block, kv_head, own * KV_BLOCK, first, last, panel + column, scratch.patch);
                for (u32 d = 0; d < PATCH; d += 8) {
                    simdgroup_float8x8 k[2];
                    for (u32 c = 0; c < 2; c++) simdgroup_load(k[c], scratch.patch + c * 8 * PATCH + d, PATCH, ulong2(0), true);
#pragma unroll
                    for (u32 g = 0; g < ROW_GROUPS; g++) {
                        simdgroup_float8x8 rows;
                        simdgroup_load(rows, scratch.queries + g * 8 * p.query_columns + column + d, p.query_columns);
                        for (u32 c = 0; c < 2; c++) simdgroup_multiply_accumulate(dots[g][c], rows, k[c], dots[g][c]);
                    }
                }
            }
        }
        if (seen) {
#pragma unroll
            for (u32 g = 0; g < ROW_GROUPS; g++) {
                GROUP float* to = scratch.scores + g * 8 * ROUND + here.warp() * KV_BLOCK;
                for (u32 c = 0; c < 2; c++) simdgroup_store(dots[g][c], to + c * 8, ROUND);
            }
        }
        barrier();
        weigh(here, p, queries, round, scratch, walk);
        barrier();
        rescale(scratch, walk);
        for (u32 b = 0; b < ROUND_BLOCKS; b++) {
            u32 at = round * ROUND_BLOCKS + b;
            // Outside of the context.
            if (at < first / KV_BLOCK || at > last / KV_BLOCK) continue;
#pragma unroll
            for (u32 i = 0; i < PANELS; i++) {
                u32 column = (here.warp() + i * WARPS) * PATCH;
                if (column >= p.value_columns) continue;
                load_patch(here, p, values, blocks[at], kv_head, at * KV_BLOCK, first, last, column, scratch.patch);
                for (u32 k = 0; k < KV_BLOCK; k += 8) {
                    simdgroup_float8x8 v[2];
                    for (u32 c = 0; c < 2; c++) simdgroup_load(v[c], scratch.patch + k * PATCH + c * 8, PATCH);
#pragma unroll
                    for (u32 g = 0; g < ROW_GROUPS; g++) {
                        simdgroup_float8x8 weights;
                        simdgroup_load(weights, scratch.scores + g * 8 * ROUND + b * KV_BLOCK + k, ROUND);
                        for (u32 c = 0; c < 2; c++) {
                            simdgroup_multiply_accumulate(walk.sums[g][i][c], weights, v[c], walk.sums[g][i][c]);
                        }
                    }
                }
            }
        }
    }
}

// Whether an entry of the block table, among those of rounds `begin..end` that lie in `first..=last`, is out of range. Each
// warp reads all of them, so there is no barrier.
DEV bool meets_bad_block(Here here, constant AttentionParams& p, const GLOBAL u32* blocks, u32 slot, u32 first, u32 last,
                         u32 begin, u32 end, GLOBAL u32* flag) {
    bool bad = false;
    u32 from = max(begin * ROUND_BLOCKS, first / KV_BLOCK), to = min(end * ROUND_BLOCKS, last / KV_BLOCK + 1);
    for (u32 i = from + here.lane(); i < to; i += 32) {
        if (blocks[i] < p.blocks) continue;
        raise(flag, FLAG_BLOCK, blocks[i], slot * p.table_cols + i, p.blocks);
        bad = true;
    }
    return simd_any(bad);
}

// The share of a row's sums in the result, if there are no other splits.
DEV float only_share(float max, float sum, float sink) {
    float top = fmaxf(max, sink), weight = exp2(max - top);
    return weight / (weight * sum + exp2(sink - top));
}

// Writes the sums of all rows times their factors: as results, or to where the splits are joined, from the partial of the
// unit's first head on.
DEV void write_rows(Here here, constant AttentionParams& p, Queries queries, Scratch scratch, THREAD Walk& walk, bool partial,
                    GLOBAL float* vectors, Results to) {
    barrier();
    rescale(scratch, walk);
#pragma unroll
    for (u32 g = 0; g < ROW_GROUPS; g++) {
        u32 row = g * 8 + here.lane() / 4, i = row / queries.unit.heads, head = row % queries.unit.heads;
#pragma unroll
        for (u32 panel = 0; panel < PANELS; panel++) {
            u32 column = (here.warp() + panel * WARPS) * PATCH, d = column + here.lane() % 4 * 4;
            if (column >= p.value_columns) continue;
            warp_barrier();
            for (u32 c = 0; c < 2; c++) simdgroup_store(walk.sums[g][panel][c], scratch.patch + c * 8, PATCH);
            warp_barrier();
            Four four = *(const GROUP Four*)(scratch.patch + here.lane() / 4 * PATCH + here.lane() % 4 * 4);
            if (i >= queries.tokens) continue;
            if (partial) store_four(vectors + u64(head) * p.splits * p.value_columns + d, four, 4, true);
            else if (d < p.value_width) write_result(p, to, queries.token + i, queries.unit.head_first + head, d, four);
        }
    }
}

// Rows' factors for the end.
DEV void set_factor(Here here, Scratch scratch, u32 i, float factor) {
    if (here.lane() < 8) scratch.factors[(here.warp() + i * WARPS) * 8 + here.lane()] = factor;
}

// Zeros for these heads of a token.
DEV void write_zeros(Here here, constant AttentionParams& p, Unit unit, u32 token, Results to) {
    for (u32 head = here.warp(); head < unit.heads; head += WARPS) {
        for (u32 d = here.lane() * 4; d < p.value_width; d += 128) {
            write_result(p, to, token, unit.head_first + head, d, Four{});
        }
    }
}

// The first arguments of kernels that walk over keys, and what they make of them.
#define WALK_ARGUMENTS                                                                                                   \
    IN(float, q, 0), IN(Cell, keys, 1), IN(u16, key_scales, 2), IN(Cell, values, 3), IN(u16, value_scales, 4),           \
    IN(u32, slots, 5), IN(u32, positions, 6), IN(u32, table, 7), IN(float, sinks, 8), IN(u32, plan, 9),                  \
    OUT(float, out, 10), OUT(float, exact, 11)
#define WALK_OPERANDS                                                                                                    \
    HERE;                                                                                                                \
    DYNAMIC_SHARED(float, query_rows);                                                                                   \
    SHARED(float, scores, ROWS * ROUND);                                                                                 \
    SHARED(float, factors, ROWS * 8);                                                                                    \
    SHARED(float, patches, WARPS * KV_BLOCK * PATCH);                                                                    \
    Scratch scratch = {query_rows, scores, factors, patches + here.warp() * KV_BLOCK * PATCH};                           \
    Side key_side = {keys, key_scales, p.key_width, p.key_stride};                                                       \
    Side value_side = {values, value_scales, p.value_row, p.value_stride};                                               \
    Results results = {out, exact};                                                                                      \
    Unit unit = unit_of(p, here.block_y())
