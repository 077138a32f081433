// Attention over f16 caches whose values are the first elements of their keys (`KvSpec::values_in_keys`), on tensor cores. A key
// is copied to shared memory once, and is an operand of both products.
//
// The thread block has ROWS queries of one KV head. A warp multiplies the rows of one of ROW_GROUPS groups with OWN_KEYS of the
// KEYS of a tile, then the exponentials of the whole tile with OWN_VALUES columns of the values. Between the two, the warps of a
// row group exchange maxima and exponentials in shared memory. Softmax is online, in f32. What a row does not see changes nothing
// in it, so its result does not depend on the other rows.
//
// KEY_WIDTH: at least VALUE_WIDTH, rounded up to a multiple of 64. VALUE_WIDTH: to a multiple of 128. ROWS: 16, 32 or 64.
// WARPS: 4 or 8. KEYS: of a tile, at least 8 for each column group. STAGES: tiles in shared memory, 1 or 2. LOW_PARTS: whether
// queries and exponentials have low parts (`attention_mma.cuh`), 0 or 1. sm_80 or newer.
#pragma once
#include "attention_mma.cuh"

#define THREADS (WARPS * 32u)

#if __CUDA_ARCH__ >= 800
// Fragments of 16 rows of a warp.
constexpr u32 FRAGMENTS = ROWS >= 32 ? 2 : 1;
constexpr u32 ROW_GROUPS = ROWS / (16 * FRAGMENTS), COLUMN_GROUPS = WARPS / ROW_GROUPS;
constexpr u32 OWN_KEYS = KEYS / COLUMN_GROUPS, OWN_VALUES = VALUE_WIDTH / COLUMN_GROUPS;
// Rows of a thread: quad and quad + 8 of each fragment.
constexpr u32 OWN_ROWS = 2 * FRAGMENTS;
constexpr u32 TILE = KEYS * KEY_WIDTH;
static_assert(OWN_KEYS % 8 == 0 && OWN_VALUES % 16 == 0 && KEY_WIDTH % 64 == 0, "whole operands");
static_assert(KEYS == 32 || KEYS == 64, "units of a row of exponentials");

DEV u32 row_group() { return here.warp() / COLUMN_GROUPS; }
DEV u32 column_group() { return here.warp() % COLUMN_GROUPS; }
// The thread's i-th row.
DEV u32 own_row(u32 i) { return row_group() * 16 * FRAGMENTS + i / 2 * 16 + i % 2 * 8 + here.lane() / 4; }

// The place of element d of a row of queries or keys, and of an exponential. The same 16 bytes of eight rows are in different
// banks.
DEV u32 place(u32 row, u32 d) { return row * KEY_WIDTH + (d / 8 ^ row % 8) * 8 + d % 8; }
DEV u32 weight_place(u32 row, u32 key) {
    constexpr u32 units = KEYS / 8;
    return row * KEYS + (key / 8 ^ row / (8 / units) % units) * 8 + key % 8;
}

// The thread block's shared memory.
struct Memory {
    u16 *high, *low;                  // queries
    u16* tiles;                       // STAGES of keys
    u16 *high_weights, *low_weights;  // exponentials
    float* scores;                    // of slices, if there are 16 rows
    float* of_groups;                 // a number for each row and column group

    DEV Memory(u16* shared, float* numbers) {
        high = shared;
        low = high + ROWS * KEY_WIDTH;
        tiles = low + LOW_PARTS * ROWS * KEY_WIDTH;
        high_weights = tiles + STAGES * TILE;
        low_weights = high_weights + ROWS * KEYS;
        scores = reinterpret_cast<float*>(low_weights + LOW_PARTS * ROWS * KEYS);
        of_groups = numbers;
    }
};

// Queries that a warp loads together, and groups of four elements of each lane in a query.
#define TOGETHER (ROWS / WARPS < 4 ? ROWS / WARPS : 4u)
#define QUERY_FOURS ((KEY_WIDTH + 127) / 128)

// Writes queries to shared memory, those of row r multiplied by `scale(r)`, which is 0 for a row that is not live; `at(r)` is
// its first element among the queries, valid for each row. `units` receives what brings a row's scores back to its logits' scale.
template <class At, class Scale>
DEV void store_queries(const AttentionParams& p, const float* q, At at, Scale scale, const Memory& memory, float* units) {
    for (u32 first = here.warp(); first < ROWS; first += TOGETHER * WARPS) {
        Four own[TOGETHER][QUERY_FOURS];
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            const float* x = q + at(first + r * WARPS);
#pragma unroll
            for (u32 i = 0; i < QUERY_FOURS; i++) {
                const u32 d = i * 128 + here.lane() * 4, left = d < p.key_width ? p.key_width - d : 0;
                own[r][i] = load_four(x + d, left, p.aligned_q && left > 0);
            }
        }
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            const u32 row = first + r * WARPS;
            const float factor = scale(row);
            float largest = 0.0f;
#pragma unroll
            for (u32 i = 0; i < QUERY_FOURS * 4; i++) {
                float& x = own[r][i / 4].at[i % 4];
                x = factor != 0.0f ? x * factor : 0.0f;
                largest = fmaxf(largest, fabsf(x));
            }
            const RowScale powers = row_scale(warp_max(largest));
            if (here.lane() == 0) units[row] = powers.undo;
#pragma unroll
            for (u32 i = 0; i < QUERY_FOURS; i++) {
                const u32 d = i * 128 + here.lane() * 4;
                if (d >= KEY_WIDTH) continue;
                const float* x = own[r][i].at;
                u32 high[2], low[2];
#pragma unroll
                for (u32 e = 0; e < 2; e++) split_pair(x[2 * e] * powers.apply, x[2 * e + 1] * powers.apply, high[e], low[e]);
                *reinterpret_cast<uint2*>(memory.high + place(row, d)) = make_uint2(high[0], high[1]);
                if (LOW_PARTS) *reinterpret_cast<uint2*>(memory.low + place(row, d)) = make_uint2(low[0], low[1]);
            }
        }
    }
}

// Keys of one head in the cache: positions `first..=last` of the token's row of the table, zeros outside.
struct Keys {
    const AttentionParams& p;
    const u16* cells;
    const u32* blocks;
    u32 head, first, last;

    // The blocks of KEYS of them, from a multiple of KV_BLOCK on, one for each of the first lanes.
    DEV u32 blocks_of(u32 tile) const {
        const u32 column = tile / KV_BLOCK + here.lane();
        const bool there = here.lane() < KEYS / KV_BLOCK && column >= first / KV_BLOCK && column <= last / KV_BLOCK;
        return there ? blocks[column] : 0;
    }

    // Starts to copy KEYS of them from these blocks: a warp for a row at a time.
    DEV void fetch(u16* to, u32 tile, u32 own) const {
        // A step of one token waits for every instruction that is fetched.
#pragma unroll(ROWS == 16 ? 1 : KEYS / WARPS)
        for (u32 i = 0; i < KEYS / WARPS; i++) {
            const u32 row = i * WARPS + here.warp(), position = tile + row;
            const bool seen = position >= first && position <= last;
            const u64 block = shuffle(own, row / KV_BLOCK);
            const u16* key = cells + ((block * p.kv_heads + head) * KV_BLOCK + row % KV_BLOCK) * p.key_stride;
#pragma unroll
            for (u32 unit = here.lane(); unit < KEY_WIDTH / 8; unit += 32) {
                cp_async_16(to + place(row, unit * 8), key + unit * 8, seen && unit * 8 < p.key_stride);
            }
        }
        cp_async_commit();
    }
};

// The thread's rows: the positions that each sees, what makes logits times log2 e of its scores, and the largest logit and the
// sum of this thread's exponentials so far.
struct Rows {
    u32 first[OWN_ROWS], last[OWN_ROWS];
    float unit[OWN_ROWS], max[OWN_ROWS], sum[OWN_ROWS];

    // Row i sees nothing yet. A sink is a logit without a value.
    DEV void start(u32 i, u32 first_position, u32 last_position, float scale, float sink) {
        first[i] = first_position, last[i] = last_position, unit[i] = scale, max[i] = sink;
        sum[i] = sink != minus_infinity() && column_group() == 0 && here.lane() % 4 == 0 ? ONE : 0.0f;
    }
};

typedef float Scores[FRAGMENTS][OWN_KEYS / 8][4];
typedef float Sums[FRAGMENTS][OWN_VALUES / 8][4];

#if ROWS == 16
// Few rows: a warp keeps a slice of the queries' columns in registers, and multiplies it with PART_KEYS of a tile. The sums of the
// slices are added in shared memory. If each warp read all columns of the queries, these would be five times the bytes of a tile.
constexpr u32 SLICES = 4, SLICE = KEY_WIDTH / SLICES, PART_KEYS = KEYS / (WARPS / SLICES);
constexpr u32 SCORE_ROW = KEYS + 8;  // rows in different banks

struct Queries {
    u32 parts[1 + LOW_PARTS][SLICE / 16][4];

    DEV u32 slice() const { return here.warp() % SLICES * SLICE; }
    DEV void load(const Memory& memory) {
        const u16* const queries[2] = {memory.high, memory.low};
#pragma unroll
        for (u32 part = 0; part < 1 + LOW_PARTS; part++) {
#pragma unroll
            for (u32 k = 0; k < SLICE / 16; k++) {
                ldmatrix_x4(parts[part][k], queries[part] + place(here.lane() % 16, slice() + k * 16 + here.lane() / 16 * 8));
            }
        }
    }
    DEV void multiply(Scores& scores, const Memory& memory, const u16* tile) const {
        const u32 first_key = here.warp() / SLICES * PART_KEYS, key = first_key + here.lane() / 16 * 8 + here.lane() % 8;
        float sums[1 + LOW_PARTS][PART_KEYS / 8][4] = {};
#pragma unroll
        for (u32 k = 0; k < SLICE / 16; k++) {
            u32 b[PART_KEYS / 16][4];
#pragma unroll
            for (u32 n = 0; n < PART_KEYS / 16; n++) {
                ldmatrix_x4(b[n], tile + place(key + n * 16, slice() + k * 16 + here.lane() / 8 % 2 * 8));
            }
#pragma unroll
            for (u32 i = 0; i < (1 + LOW_PARTS) * PART_KEYS / 8; i++) {
                const u32 part = i / (PART_KEYS / 8), n = i % (PART_KEYS / 8);
                mma_m16n8k16_f16(sums[part][n], parts[part][k], half_of(b[n / 2], n % 2));
            }
        }
        float* const of_slice = memory.scores + here.warp() % SLICES * ROWS * SCORE_ROW;
        const u32 pair = here.lane() % 4 * 2;
#pragma unroll
        for (u32 i = 0; i < PART_KEYS / 4; i++) {
            const u32 n = i / 2, row = here.lane() / 4 + i % 2 * 8, e = i % 2 * 2;
            float2 sum = make_float2(sums[0][n][e], sums[0][n][e + 1]);
            if (LOW_PARTS) sum.x += sums[LOW_PARTS][n][e], sum.y += sums[LOW_PARTS][n][e + 1];
            *reinterpret_cast<float2*>(of_slice + row * SCORE_ROW + first_key + n * 8 + pair) = sum;
        }
        barrier();
#pragma unroll
        for (u32 i = 0; i < OWN_KEYS / 4; i++) {
            const u32 row = here.lane() / 4 + i % 2 * 8, key = column_group() * OWN_KEYS + i / 2 * 8 + pair;
            float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
            for (u32 slice = 0; slice < SLICES; slice++) {
                const float2 part = *reinterpret_cast<const float2*>(memory.scores + (slice * ROWS + row) * SCORE_ROW + key);
                sum.x += part.x, sum.y += part.y;
            }
            scores[0][i / 2][i % 2 * 2] = sum.x, scores[0][i / 2][i % 2 * 2 + 1] = sum.y;
        }
    }
};
#else
// Many rows: a warp reads the queries and the keys of its scores. To load the next operands before the products of these was 5%
// slower on an H100.
struct Queries {
    DEV void load(const Memory& memory) { (void)memory; }
    DEV void multiply(Scores& scores, const Memory& memory, const u16* tile) const {
        const u32 row = row_group() * 16 * FRAGMENTS + here.lane() % 16, key = column_group() * OWN_KEYS + here.lane() % 8;
        const u16* const queries[2] = {memory.high, memory.low};
#pragma unroll
        for (u32 i = 0; i < FRAGMENTS * OWN_KEYS / 2; i++) scores[i / (OWN_KEYS / 2)][i / 4 % (OWN_KEYS / 8)][i % 4] = 0.0f;
#pragma unroll 2
        for (u32 k = 0; k < KEY_WIDTH; k += 32) {
            u32 b[OWN_KEYS / 8][4];
#pragma unroll
            for (u32 n = 0; n < OWN_KEYS / 8; n++) ldmatrix_x4(b[n], tile + place(key + n * 8, k + here.lane() / 8 * 8));
#pragma unroll
            for (u32 i = 0; i < (1 + LOW_PARTS) * 2 * FRAGMENTS; i++) {
                const u32 part = i / (2 * FRAGMENTS), half = i / FRAGMENTS % 2, f = i % FRAGMENTS;
                u32 a[4];
                ldmatrix_x4(a, queries[part] + place(row + f * 16, k + half * 16 + here.lane() / 16 * 8));
#pragma unroll
                for (u32 n = 0; n < OWN_KEYS / 8; n++) mma_m16n8k16_f16(scores[f][n], a, half_of(b[n], half));
            }
        }
    }
};
#endif

// Puts scores under the soft cap, if there is one, and takes away what a row does not see. Returns the rows' largest logits.
DEV void find_tops(const AttentionParams& p, const Rows& rows, u32 tile, Scores& scores, float (&tops)[OWN_ROWS]) {
    const u32 key = tile + column_group() * OWN_KEYS + here.lane() % 4 * 2;
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        const bool whole = tile >= rows.first[i] && tile + (KEYS - 1) <= rows.last[i];
        float top = minus_infinity();
#pragma unroll
        for (u32 e = 0; e < OWN_KEYS / 4; e++) {
            float& score = scores[i / 2][e / 2][i % 2 * 2 + e % 2];
            const u32 position = key + e / 2 * 8 + e % 2;
            score *= rows.unit[i];
            if (p.softcap != 0.0f) score = p.softcap * tanhf(score / p.softcap);
            score *= LOG2_E;
            if (!whole && (position < rows.first[i] || position > rows.last[i])) score = minus_infinity();
            // NaN is not larger than anything: it reaches the sum.
            top = fmaxf(top, score);
        }
        top = fmaxf(top, shuffle_xor(top, 1));
        tops[i] = fmaxf(top, shuffle_xor(top, 2));
    }
}

// Makes exponentials of a tile's logits, in shared memory too. `factors` receives what scales the rows' sums before.
DEV void weigh(const Memory& memory, Rows& rows, const Scores& scores, float (&factors)[OWN_ROWS]) {
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        const u32 row = own_row(i);
        float top = rows.max[i];
        for (u32 group = 0; group < COLUMN_GROUPS; group++) top = fmaxf(top, memory.of_groups[group * ROWS + row]);
        // Nothing seen yet: every exponential is that of −∞.
        const float base = top == minus_infinity() ? 0.0f : top - ONE_EXPONENT;
        factors[i] = rows.max[i] == top ? 1.0f : exp2_approx(rows.max[i] - top);
        rows.max[i] = top;
        float total = 0.0f;
#pragma unroll
        for (u32 n = 0; n < OWN_KEYS / 8; n++) {
            float weights[2];
            for (u32 e = 0; e < 2; e++) {
                weights[e] = exp2_approx(scores[i / 2][n][i % 2 * 2 + e] - base);
                total += weights[e];
            }
            const u32 to = weight_place(row, column_group() * OWN_KEYS + n * 8 + here.lane() % 4 * 2);
            u32 high, low;
            if (LOW_PARTS) {
                split_pair(weights[0], weights[1], high, low);
                *reinterpret_cast<u32*>(memory.low_weights + to) = low;
            } else {
                high = pack_half(weights[0], weights[1]);
            }
            *reinterpret_cast<u32*>(memory.high_weights + to) = high;
        }
        rows.sum[i] = rows.sum[i] * factors[i] + total;
    }
}

// Adds the products of a tile's exponentials with the warp's columns of values. Tensor cores cut off what does not fit their
// sums, and the error of many cuts adds up: the sums of a tile are separate, and are added with rounding.
DEV void multiply_values(Sums& sums, const Memory& memory, const u16* tile, const float (&factors)[OWN_ROWS]) {
    u32 a[1 + LOW_PARTS][FRAGMENTS][KEYS / 16][4];
#pragma unroll
    for (u32 f = 0; f < FRAGMENTS; f++) {
#pragma unroll
        for (u32 k = 0; k < KEYS / 16; k++) {
            const u32 row = (row_group() * FRAGMENTS + f) * 16 + here.lane() % 16;
            const u32 from = weight_place(row, k * 16 + here.lane() / 16 * 8);
            ldmatrix_x4(a[0][f][k], memory.high_weights + from);
            if (LOW_PARTS) ldmatrix_x4(a[LOW_PARTS][f][k], memory.low_weights + from);
        }
    }
    const u32 column = column_group() * OWN_VALUES + here.lane() / 16 * 8;
#pragma unroll
    for (u32 n = 0; n < OWN_VALUES / 8; n += 2) {
        __syncwarp();  // Orders nothing: the compiler takes no more of these at once than there are registers.
        u32 b[KEYS / 16][4];
#pragma unroll
        for (u32 k = 0; k < KEYS / 16; k++) {
            ldmatrix_x4_trans(b[k], tile + place(k * 16 + here.lane() % 16, column + n * 8));
        }
        float parts[FRAGMENTS][2][4] = {};
#pragma unroll
        for (u32 k = 0; k < KEYS / 16; k++) {
#pragma unroll
            for (u32 i = 0; i < (1 + LOW_PARTS) * 2 * FRAGMENTS; i++) {
                const u32 part = i / (2 * FRAGMENTS), half = i / FRAGMENTS % 2, f = i % FRAGMENTS;
                mma_m16n8k16_f16(parts[f][half], a[part][f][k], half_of(b[k], half));
            }
        }
#pragma unroll
        for (u32 i = 0; i < 8 * FRAGMENTS; i++) {
            const u32 f = i / 8, half = i / 4 % 2, e = i % 4;
            float& sum = sums[f][n + half][e];
            sum = fmaf(sum, factors[2 * f + e / 2], parts[f][half][e]);
        }
    }
}

// Goes through the keys in tiles from position `begin` on. At the end `rows.sum` of the lane's own keys is still to be joined.
DEV void attend(const AttentionParams& p, const Keys& keys, u32 begin, const Memory& memory, Rows& rows, Sums& sums) {
    keys.fetch(memory.tiles, begin, keys.blocks_of(begin));
    // Loaded a tile ahead, because a copy waits for them.
    u32 next = keys.blocks_of(begin + KEYS);
    Queries queries;
    queries.load(memory);
    for (u32 tile = begin, stage = 0; tile <= keys.last; tile += KEYS, stage ^= STAGES - 1) {
        const bool more = tile + KEYS <= keys.last;
        const u16* of_tile = memory.tiles + stage * TILE;
        // Also what was read of the other stage, and of exponentials, is complete.
        cp_async_wait<0>();
        barrier();
        if (STAGES == 2 && more) {
            keys.fetch(memory.tiles + (stage ^ 1) * TILE, tile + KEYS, next);
            next = keys.blocks_of(tile + 2 * KEYS);
        }
        Scores scores;
        queries.multiply(scores, memory, of_tile);
        float tops[OWN_ROWS], factors[OWN_ROWS];
        find_tops(p, rows, tile, scores, tops);
#pragma unroll
        for (u32 i = 0; i < OWN_ROWS; i++) {
            if (here.lane() % 4 == 0) memory.of_groups[column_group() * ROWS + own_row(i)] = tops[i];
        }
        barrier();
        weigh(memory, rows, scores, factors);
        barrier();
        multiply_values(sums, memory, of_tile, factors);
        if (STAGES == 1 && more) {
            barrier();
            keys.fetch(memory.tiles, tile + KEYS, next);
            next = keys.blocks_of(tile + 2 * KEYS);
        }
    }
    // A row's sum is that of its column groups, in order.
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        rows.sum[i] += shuffle_xor(rows.sum[i], 1);
        rows.sum[i] += shuffle_xor(rows.sum[i], 2);
    }
    barrier();
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        if (here.lane() % 4 == 0) memory.of_groups[column_group() * ROWS + own_row(i)] = rows.sum[i];
    }
    barrier();
#pragma unroll
    for (u32 i = 0; i < OWN_ROWS; i++) {
        rows.sum[i] = 0.0f;
        for (u32 group = 0; group < COLUMN_GROUPS; group++) rows.sum[i] += memory.of_groups[group * ROWS + own_row(i)];
    }
    // The next queries and keys may overwrite all of it.
    barrier();
}
#endif
