// Pieces of `attention_decode`: the blocks of the cache that a warp goes through, its products with them, and the join of a
// thread block's warps. g = lane / 4 and t = lane % 4 are the rows and columns of products, as in `ptx.cuh`.
#pragma once
#include "attention_mma.cuh"

#if __CUDA_ARCH__ >= 800
#define ROWS 8u
// A split has parts, of which part n takes blocks n, n + PARTS and so on of the cache. A thread block has a warp for each part, or
// fewer warps that take several parts one after another: a result does not depend on the number of warps.
#define PARTS 8u
#ifndef WARPS
#define WARPS PARTS
#endif
#define THREADS (WARPS * 32)
// Parts of a warp, and rows: a warp prepares and joins the rows with the numbers of its parts.
#define ROUNDS (PARTS / WARPS)

// Elements from row to row of the split queries in shared memory: an odd number of 64 bytes, so that two rows lie in
// different banks.
#define QUERY_ROW (KEY_WIDTH + (KEY_WIDTH % 64 == 0 ? 32 : 0))

// The v-th result of lane `from` of a part; a column of padding keeps reading lanes in different banks.
DEV u32 result_at(u32 part, u32 v, u32 from) { return (part * (VALUE_WIDTH / 4) + v) * 33 + from; }

DEV uint4 load_or_zero(const u16* from, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}

DEV u32 word(const uint4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

// Writes four elements of a query for each lane as high and low parts. Returns what undoes their scale.
DEV float split_query(Four v, float factor, uint4* high, uint4* low) {
    float largest = 0.0f;
    for (u32 i = 0; i < 4; i++) v.at[i] *= factor, largest = fmaxf(largest, fabsf(v.at[i]));
    // Integers have the same order as the floats with their bits, where none is below 0.
    RowScale scale = row_scale(__uint_as_float(warp_largest(__float_as_uint(largest))));
    for (u32 i = 0; i < 4; i++) v.at[i] *= scale.apply;
    uint2 parts[2];
    split_pair(v.at[0], v.at[1], parts[0].x, parts[1].x);
    split_pair(v.at[2], v.at[3], parts[0].y, parts[1].y);
    if (here.lane() * 4 < KEY_WIDTH) {
        reinterpret_cast<uint2*>(high)[here.lane()] = parts[0];
        reinterpret_cast<uint2*>(low)[here.lane()] = parts[1];
    }
    return scale.undo;
}

// Iterator over the KV-cache blocks of a warp's parts of splits, one block ahead. At the end, ids are PADDING.
struct Walk {
    struct Cursor {
        u32 split, part, block;
    };
    const u32* table;  // the token's row
    u32 first, end;    // columns that the token sees
    Splits splits;
    u32 walkers;
    Cursor now, next;
    u32 id, next_id;

    DEV Cursor settle(Cursor at) const {
        while (at.split < splits.count && at.block >= min(first + (at.split + 1) * splits.blocks, end)) {
            at.part += WARPS;
            if (ROUNDS == 1 || at.part >= PARTS) at.part = here.warp(), at.split += walkers;
            at.block = first + at.split * splits.blocks + at.part;
        }
        return at;
    }
    DEV u32 id_of(Cursor at) const { return at.split < splits.count ? table[at.block] : PADDING; }
    DEV void begin(u32 walker) {
        now = settle({walker, here.warp(), first + walker * splits.blocks + here.warp()});
        next = settle({now.split, now.part, now.block + PARTS});
        id = id_of(now), next_id = id_of(next);
    }
    DEV bool is_in(u32 split, u32 part) const { return now.split == split && (ROUNDS == 1 || now.part == part); }
    DEV void step() { now = next, id = next_id; }
    DEV void look_ahead() {
        next = settle({next.split, next.part, next.block + PARTS});
        next_id = id_of(next);
    }
};

// Keys and values of a KV head in the cache, and the positions of the token that are there: `first..end`.
struct Cache {
    const AttentionParams& p;
    u16 *keys, *values;
    u32 kv_head, first, end;

    // Keys that the token does not see are not read: another sequence may have left infinities there; 0 · ∞ is not 0.
    DEV bool has(const Walk& walk, u32 at) const {
        u32 position = walk.now.block * KV_BLOCK + at;
        return walk.id < p.blocks && position >= first && position < end;
    }
};

// A thread's part of the keys and values of one block of the cache.
struct KeysAndValues {
    uint4 key[2][KEY_WIDTH / 32], value[4][VALUE_WIDTH / 64];

    // Which token of the block the n-th key and the k-th value are of.
    static DEV u32 key_at(u32 n) { return here.lane() / 4 + n * 8; }
    static DEV u32 value_at(u32 k) { return here.lane() % 4 * 2 + k / 2 * 8 + k % 2; }

    DEV void load_keys(const Cache& cache, const Walk& walk) {
        u32 g = here.lane() / 4, t = here.lane() % 4, stride = cache.p.key_stride;
        u64 row = cache_row(cache.p, walk.id, cache.kv_head, g);
#pragma unroll
        for (u32 n = 0; n < 2; n++) {
            bool inside = cache.has(walk, key_at(n));
            const u16* from = cache.keys + (row + n * 8) * stride + t * 8;
#pragma unroll
            for (u32 s = 0; s < KEY_WIDTH / 32; s++) key[n][s] = load_or_zero(from + s * 32, inside && s * 32 + t * 8 < stride);
        }
    }
    DEV void load_values(const Cache& cache, const Walk& walk) {
        u32 g = here.lane() / 4, stride = cache.p.value_stride;
        u64 row = cache_row(cache.p, walk.id, cache.kv_head, 0);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            bool inside = cache.has(walk, value_at(k));
            const u16* from = cache.values + (row + value_at(k)) * stride + g * 8;
#pragma unroll
            for (u32 s = 0; s < VALUE_WIDTH / 64; s++) value[k][s] = load_or_zero(from + s * 64, inside && s * 64 + g * 8 < stride);
        }
    }
    // Zeroes the values of a block from token `end` of it on.
    DEV void forget_values(u32 end) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
#pragma unroll
            for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                if (value_at(k) >= end) value[k][s] = make_uint4(0, 0, 0, 0);
            }
        }
    }
    // Puts the token's own key and value where the block has it.
    DEV void insert(u32 at, const uint4* new_key, const uint4* new_value) {
        u32 g = here.lane() / 4, t = here.lane() % 4;
#pragma unroll
        for (u32 n = 0; n < 2; n++) {
#pragma unroll
            for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                if (at == key_at(n)) key[n][s] = new_key[s * 4 + t];
            }
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
#pragma unroll
            for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                if (at == value_at(k)) value[k][s] = new_value[s * 8 + g];
            }
        }
    }
};

// Shared memory of a thread block.
struct Scratch {
    float* rows;               // to rotate each query and a new key, then each part's results
    uint4 *high, *low;         // parts of the queries
    float* undo;               // of each query: brings a score back to its scale
    float2* found;             // of each part: the rows' maxima and sums
    uint4 *new_key, *new_value;
};

// Products of a block's keys with the queries: row g of four sums is the high part of query g, row g + 8 the low part. Products
// that go to the same sums wait for each other: four sums instead of two.
struct Scores {
    float even[2][4], odd[2][4];

    DEV void multiply(const KeysAndValues& block, const Scratch& scratch) {
        u32 g = here.lane() / 4, t = here.lane() % 4;
#pragma unroll
        for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
            u32 at = g * (QUERY_ROW / 8) + s * 4 + t;
            uint4 a = scratch.high[at], b = scratch.low[at];
            u32 first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
            for (u32 n = 0; n < 2; n++) {
                const uint4& key = block.key[n][s];
                u32 of_first[2] = {key.x, key.y}, of_second[2] = {key.z, key.w};
                mma_m16n8k16_f16(even[n], first, of_first);
                mma_m16n8k16_f16(odd[n], second, of_second);
            }
        }
    }
    // Logits of a thread's four keys of the block that begins at `position`. Returns the largest; NaN is not larger than
    // anything and reaches the sum of the exponentials.
    DEV float make_logits(const AttentionParams& p, const Context& context, u32 position, float undo, float (&logits)[4]) const {
        float top = minus_infinity();
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 n = i / 2, high = i % 2, low = high + 2;
            float logit = ((even[n][high] + odd[n][high]) + (even[n][low] + odd[n][low])) * undo;
            if (ALL_OPTIONS && p.softcap != 0.0f) logit = p.softcap * tanhf(logit / p.softcap);
            u32 at = position + KeysAndValues::value_at(i);
            logits[i] = at >= context.first && at <= context.last ? logit * LOG2_E : minus_infinity();
            top = fmaxf(top, logits[i]);
        }
        return top;
    }
};

// A part of a split: of row g the maximum of the logits and, relative to it, the sums of the exponentials and of the
// weighted values.
struct PartSums {
    float max, sum, acc[VALUE_WIDTH / 64][8][4];

    // Adds the logits of a block and gives their exponentials as an operand of products. Returns what scales the values before.
    DEV float add_logits(float (&logits)[4], float top, u32 (&weights)[4]) {
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(max, fmaxf(top, shuffle_xor(top, 2)));
        // Nothing seen yet: every exponential is that of −∞.
        float base = top == minus_infinity() ? 0.0f : top - ONE_EXPONENT;
        float factor = max == top ? 1.0f : exp2_approx(max - top);
        max = top;
#pragma unroll
        for (u32 i = 0; i < 4; i++) logits[i] = exp2_approx(logits[i] - base);
        // Written out, so that every kernel that takes tokens by splits rounds alike.
        sum = fmaf(sum, factor, (logits[0] + logits[1]) + (logits[2] + logits[3]));
        split_pair(logits[0], logits[1], weights[0], weights[1]);
        split_pair(logits[2], logits[3], weights[2], weights[3]);
        return factor;
    }
    DEV void add_values(const KeysAndValues& block, const u32 (&weights)[4], float factor) {
        const uint4(&value)[4][VALUE_WIDTH / 64] = block.value;
#pragma unroll
        for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                u32 select = j % 2 ? 0x7632 : 0x5410;
                u32 b[2] = {
                    __byte_perm(word(value[0][s], j / 2), word(value[1][s], j / 2), select),
                    __byte_perm(word(value[2][s], j / 2), word(value[3][s], j / 2), select),
                };
#pragma unroll
                for (int i = 0; i < 4; i++) acc[s][j][i] *= factor;
                mma_m16n8k16_f16(acc[s][j], weights, b);
            }
        }
    }
    DEV void store(const Scratch& scratch, u32 part, bool bad) {
        u32 g = here.lane() / 4, t = here.lane() % 4;
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (t == 0) scratch.found[part * ROWS + g] = make_float2(max, bad ? BAD_SUM : sum);
#pragma unroll
        for (u32 v = 0; v < VALUE_WIDTH / 4; v++) {
            float(&own)[4] = acc[v / 16][v % 8];
            scratch.rows[result_at(part, v, here.lane())] = own[v / 8 % 2] + own[v / 8 % 2 + 2];
        }
    }
};

// Row r of a split, joined over the parts.
struct SplitRow {
    float max, sum;
    bool bad;
    Four column;  // the lane's four columns of the weighted values

    DEV void join(const Scratch& scratch, u32 r) {
        u32 d = here.lane() * 4;
        float2 of[PARTS];
        float factors[PARTS];
        max = minus_infinity(), sum = 0.0f, bad = false, column = {};
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) of[n] = scratch.found[n * ROWS + r];
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) max = fmaxf(max, of[n].x), bad |= of[n].y == BAD_SUM;
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) {
            // A part without keys has nothing; a sum of NaN alone has no maximum and stays; 1 / ONE is exact.
            factors[n] = of[n].y == 0.0f ? 0.0f : (of[n].x == max ? 1.0f : exp2_approx(of[n].x - max)) / ONE;
            sum = fmaf(of[n].y, factors[n], sum);
        }
        if (d >= VALUE_WIDTH) return;
        // Which thread has column d, and in which register.
        u32 v = d / 64 * 16 + d / 8 % 2 * 8 + d % 8, from = r * 4 + d / 16 % 4;
#pragma unroll
        for (u32 n = 0; n < PARTS; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                column.at[i] = fmaf(factors[n], scratch.rows[result_at(n, v + i, from)], column.at[i]);
            }
        }
    }
    // Writes a head's result, of which this is the only split.
    DEV void write_result(const AttentionParams& p, const Results& results, u32 token, u32 head, float sink) {
        float share = only_share(max, sum, sink);
        for (u32 i = 0; i < 4; i++) column.at[i] = bad ? 0.0f : column.at[i] * share;
        ::write_result(p, results, token, head, 0, column);
    }
    DEV void write_partial(const Partials& partials, u64 at, u32 stride) const {
        u32 d = here.lane() * 4;
        if (here.lane() == 0) partials.stats[at] = make_float2(max, bad ? BAD_SUM : sum);
        if (d < stride) *reinterpret_cast<Four*>(partials.vectors + at * stride + d) = column;
    }
};

// The splits of a token and a unit that a thread block takes.
struct TokenSplits {
    const AttentionParams& p;
    const Unit& unit;
    const Context& context;
    u32 token, unit_index, walker, count;
    const Cache& cache;
    const Scratch& scratch;
    const Partials& partials;
    const Results& results;
    const float (&sink_logits)[ROUNDS];
    u32* flag;

    // Goes through them, from the first keys and values on, which are under way in `block`. `insert(position)` may change the block
    // that begins there, and `after()` fill `block` again after the last one.
    template <class Insert, class After>
    DEV void take(Walk& walk, KeysAndValues& block, Insert insert, After after) const {
        for (u32 split = walker; split < count; split += p.walkers) {
#pragma unroll 1
            for (u32 part = here.warp(); part < PARTS; part += WARPS) {
                bool bad = false;
                PartSums sums = {minus_infinity(), 0.0f, {}};
                while (walk.is_in(split, part)) {
                    u32 position = walk.now.block * KV_BLOCK;
                    insert(position);
                    bad |= is_bad(walk);
                    Scores scores = {};
                    scores.multiply(block, scratch);
                    walk.step();
                    block.load_keys(cache, walk);
                    walk.look_ahead();
                    float logits[4];
                    float top = scores.make_logits(p, context, position, scratch.undo[here.lane() / 4], logits);
                    u32 weights[4];
                    float factor = sums.add_logits(logits, top, weights);
                    sums.add_values(block, weights, factor);
                    block.load_values(cache, walk);
                }
                if (split + p.walkers >= count && part + WARPS >= PARTS) after();
                sums.store(scratch, part, bad);
            }
            barrier();
#pragma unroll
            for (u32 i = 0; i < ROUNDS; i++) {
                u32 r = here.warp() + i * WARPS;
                if (r >= unit.live) break;
                SplitRow row;
                row.join(scratch, r);
                if (count == 1) row.write_result(p, results, token, unit.head_first + r, sink_logits[i]);
                else row.write_partial(partials, partial_of(p, unit_index, r, split), p.value_stride);
            }
            barrier();
        }
        // The next token's partial results are written after a barrier that the warps which join these come to as well.
        if (p.walkers == 1 && count > 1) join();
    }
    // Joins all splits of the warp's rows.
    DEV void join() const {
#pragma unroll
        for (u32 i = 0; i < ROUNDS; i++) {
            u32 r = here.warp() + i * WARPS;
            if (r >= unit.live) break;
            combine(p, partials, unit_index, r, count, sink_logits[i], results, token, unit.head_first + r);
        }
    }
    // Whether the id of the walk's block is out of range.
    DEV bool is_bad(const Walk& walk) const {
        if (walk.id < p.blocks) return false;
        raise(flag, FLAG_BLOCK, walk.id, context.slot * p.table_cols + walk.now.block, p.blocks);
        return true;
    }
};
#endif
