// Rows of the kernels of long runs: queries on their way to shared memory, exponentials of a tile of keys, and results. A
// thread has rows as tensor cores leave them: of scores[4n + 2h + e] h is one of its two rows, and the column 8n + `pair` + e.
//
// The registers hold sums of 256 values. If heads have more, the blocks of row y of the grid have the y-th slice of the
// values, and each of them multiplies queries and keys again.
//
// KEY_WIDTH, VALUE_WIDTH (of a slice), KEYS, LOW_PARTS, ROUNDED: the kernel's. TOGETHER: queries whose loads are under way together.
#pragma once
#include "attention_mma.cuh"
#include "attention_result.cuh"
#include "attention_runs.cuh"

// Elements of a query for each lane.
#define QUERY_PARTS ((KEY_WIDTH + 31) / 32)

// A lane's row of the warp's 16, lane % 16: its first element among the queries, and what the query is multiplied by, 0 in
// a row that is not live, which has another's element.
struct QueryRow {
    u64 at;
    float scale;
};

DEV QueryRow query_row(const AttentionParams& p, const Run& run) {
    const u32 row = here.warp() * 16 + here.lane() % 16;
    const bool alive = run.live(row);
    const u64 token = run.tile.first + (alive ? run.token_of(row) : run.begin - LONG_RUN);
    const u64 at = token * p.q_stride + u64(run.tile.head_first + row % run.tile.heads) * p.key_width;
    return {at, alive ? query_scale(p, run.position(row)) : 0.0f};
}

// Writes the warp's 16 rows of queries to shared memory as high parts and low ones, element d of a row at `place(row, d)`;
// `units` brings a row's scores back to the scale of its logits. Loads of TOGETHER rows are under way together: no branch
// stands between them.
template <class Place>
DEV void store_queries(const AttentionParams& p, const Run& run, const float* q, Place place, u16* high, u16* low, float* units) {
    const QueryRow of_lane = query_row(p, run);
    for (u32 first = 0; first < 16; first += TOGETHER) {
        float own[TOGETHER][QUERY_PARTS];
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            const float* x = q + shuffle(of_lane.at, first + r);
#pragma unroll
            for (u32 i = 0; i < QUERY_PARTS; i++) own[r][i] = x[min(i * 32 + here.lane(), p.key_width - 1)];
        }
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            const u32 row = here.warp() * 16 + first + r;
            const float scale_of_row = shuffle(of_lane.scale, first + r);
            float largest = 0.0f;
#pragma unroll
            for (u32 i = 0; i < QUERY_PARTS; i++) {
                const bool there = scale_of_row != 0.0f && i * 32 + here.lane() < p.key_width;
                own[r][i] = there ? own[r][i] * scale_of_row : 0.0f;
                largest = fmaxf(largest, fabsf(own[r][i]));
            }
            const RowScale scale = row_scale(warp_max(largest));
            if (here.lane() == 0) units[row] = scale.undo;
#pragma unroll
            for (u32 i = 0; i < QUERY_PARTS; i++) {
                const u32 d = i * 32 + here.lane();
                if (d >= KEY_WIDTH) break;
                const float x = own[r][i] * scale.apply;
                const u16 half = float_to_half(x);
                high[place(row, d)] = half;
                if (LOW_PARTS) low[place(row, d)] = float_to_half(x - half_to_float(half));
            }
        }
    }
}

// Takes away the scores in row h of the keys that the row does not see.
DEV void hide(u32 first, u32 last, u32 tile, u32 pair, int h, float (&scores)[KEYS / 2]) {
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) {
        for (u32 e = 0; e < 2; e++) {
            u32 position = tile + n * 8 + pair + e;
            bool seen = position >= first && position <= last;
            if (!seen) scores[4 * n + 2 * h + e] = minus_infinity();
        }
    }
}

// Makes exponentials of a tile's scores in row h. Returns what scales the row's sums before.
DEV float weigh(float to_log2, int h, float& max, float& sum, float (&scores)[KEYS / 2]) {
    // NaN is not larger than anything: it reaches the sum below.
    float top = minus_infinity();
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
    top = fmaxf(top, shuffle_xor(top, 1));
    top = fmaxf(max, fmaxf(top, shuffle_xor(top, 2)) * to_log2);
    // Nothing seen yet: every exponential is that of −∞.
    float base = top == minus_infinity() ? 0.0f : top - ONE_EXPONENT;
    float factor = max == top ? 1.0f : exp2_approx(max - top);
    max = top;
    float total = 0.0f;
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) {
        for (u32 e = 0; e < 2; e++) {
            float& score = scores[4 * n + 2 * h + e];
            score = exp2_approx(fmaf(score, to_log2, -base));
            total += score;
        }
    }
    sum = sum * factor + total;
    return factor;
}

// The first value of the block's slice.
DEV u32 first_value() { return here.block_y() * VALUE_WIDTH; }

// Writes the slice of the thread's two rows.
DEV void write_rows(const AttentionParams& p, const Run& run, const u32 (&row)[2], float (&sum)[2],
                    const float (&acc)[VALUE_WIDTH / 2], Result* out) {
    const u32 first = first_value();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += shuffle_xor(sum[h], 1);
        sum[h] += shuffle_xor(sum[h], 2);
        const bool live = run.live(row[h]);
        const float share = 1.0f / sum[h];
        const u64 token = run.tile.first + run.token_of(row[h]), head = run.tile.head_first + row[h] % run.tile.heads;
        Result* const result = out + token * p.out_stride + head * p.value_width + first;
#pragma unroll
        for (u32 n = 0; n < VALUE_WIDTH / 8; n += 2) {
            float own[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) own[i] = acc[4 * (n + i / 2) + 2 * h + i % 2] * share;
#if ROUNDED
            write_columns(result + 8 * n, live && first + 8 * n < p.value_width, own);
#else
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 d = 8 * (n + i / 2) + here.lane() % 4 * 2 + i % 2;
                if (live && first + d < p.value_width) result[d] = own[i];
            }
#endif
        }
    }
}
