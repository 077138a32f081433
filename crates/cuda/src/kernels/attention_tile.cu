// Attention of long runs on tensor cores.
//
// A thread block takes a tile of the batch: neighbouring tokens and the query heads of one KV head, 16 rows for each warp.
// Keys and values pass through shared memory, the next ones under way. Softmax is online, in f32.
//
// Tiles of keys begin at multiples of KEYS and keys that a row does not see change nothing in it, so the result of a row does
// not depend on the rows beside it.
//
// KEY_WIDTH, VALUE_WIDTH (of a slice): rounded up to a multiple of 16. KEYS: multiplied at once, 16, 32 or 64. WARPS: of a
// block. LOW_PARTS: whether queries and exponentials have low parts, 0 or 1. ROUNDED (1: results are activations in
// bfloat16). sm_80 or newer.
#define THREADS (32u * WARPS)
#define ROWS (16u * WARPS)
#define TOGETHER (KEY_WIDTH <= 128 ? 8u : 4u)
#include "attention_rows.cuh"

#if __CUDA_ARCH__ >= 800
// Whether the queries' high parts stay in registers.
#define QUERIES_STAY (KEY_WIDTH <= 128)

// Columns of eight values whose sums of a tile are under way together.
#define COLUMNS (VALUE_WIDTH % 32 == 0 && VALUE_WIDTH <= 128 ? 4u : 2u)

// Blocks of a multiprocessor that the registers must suffice for. Without low parts a third one is worth some spills.
#define LEAST_BLOCKS (!LOW_PARTS && KEY_WIDTH <= 128 && VALUE_WIDTH <= 128 ? 3 : 2)

// Halves from row to row in shared memory: an odd number of 16-byte units, so that eight rows lie in different banks.
#define KEY_ROW (KEY_WIDTH + 8)
#define VALUE_ROW (VALUE_WIDTH + 8)
#define STAGE (KEYS * (KEY_ROW + VALUE_ROW))

// Keys and values of one head in the cache: positions `first..=last` of the token's row of the table, zeros outside.
struct Cache {
    const AttentionParams& p;
    const u16 *keys, *values;
    const u32* blocks;
    u32 head, first, last;

    // From column `from_column` on, zeros behind the last one.
    template <u32 WIDTH>
    DEV void fetch_rows(u16* to, const u16* cells, u32 stride, u32 from_column, u32 tile) const {
        // A thread copies the same 16 bytes of some rows.
        constexpr u32 chunks = WIDTH / 8, rows = THREADS / chunks;
        u32 chunk = here.thread_x() % chunks, row_first = here.thread_x() / chunks;
        if (row_first >= rows) return;
        to += row_first * (WIDTH + 8) + chunk * 8;
        u32 column = from_column + chunk * 8;
        cells += u64(head) * KV_BLOCK * stride + column;
        bool inside = column < stride;
#pragma unroll
        for (u32 row = 0; row < KEYS; row += rows) {
            if (KEYS % rows != 0 && row + row_first >= KEYS) break;
            u32 position = tile + row + row_first;
            bool valid = inside && position >= first && position <= last;
            u64 from = 0;
            if (valid) from = (u64(blocks[position / KV_BLOCK]) * p.kv_heads * KV_BLOCK + position % KV_BLOCK) * stride;
            cp_async_16(to + row * (WIDTH + 8), cells + from, valid);
        }
    }
    // Starts to copy KEYS keys and values to a stage.
    DEV void fetch(u16* stage, u32 tile) const {
        fetch_rows<KEY_WIDTH>(stage, keys, p.key_stride, 0, tile);
        fetch_rows<VALUE_WIDTH>(stage + KEYS * KEY_ROW, values, p.value_stride, first_value(), tile);
    }
};

// High parts of a warp's queries: operands of products in registers, or where they lie in shared memory.
#if QUERIES_STAY
typedef u32 HighQueries[KEY_WIDTH / 16][4];
DEV void load_high(HighQueries& high, const u16* shared) {
#pragma unroll
    for (u32 k = 0; k < KEY_WIDTH / 16; k++) ldmatrix_x4(high[k], shared + k * 16);
    barrier();
}
#else
typedef const u16* HighQueries;
DEV void load_high(HighQueries& high, const u16* shared) { high = shared; }
#endif

// Puts scores in row h under the soft cap, if there is one. Returns what makes logits of them, times log2 e.
DEV float cap(const AttentionParams& p, float unit, int h, float (&scores)[KEYS / 2]) {
    if (p.softcap == 0.0f) return unit * LOG2_E;
    float inverse = unit / p.softcap;
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) {
        scores[4 * n + 2 * h] = tanhf(scores[4 * n + 2 * h] * inverse);
        scores[4 * n + 2 * h + 1] = tanhf(scores[4 * n + 2 * h + 1] * inverse);
    }
    return p.softcap * LOG2_E;
}

// Exponentials as operands of products.
DEV void split_scores(const float (&scores)[KEYS / 8][4], u32 (&a_high)[KEYS / 16][4], u32 (&a_low)[KEYS / 16][4]) {
#pragma unroll
    for (u32 k = 0; k < KEYS / 16; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float* score = scores[2 * k + i / 2] + i % 2 * 2;
            if (LOW_PARTS) split_pair(score[0], score[1], a_high[k][i], a_low[k][i]);
            else a_high[k][i] = pack_half(score[0], score[1]);
        }
    }
}

// Both products stay in the kernel: as functions they change the compiler's order of instructions (4 % slower at a width of 128 and
// 2,048 tokens on an H100).
KERNEL_BOUNDED(attention_tile, THREADS, LEAST_BLOCKS)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u16, values, 2), IN(u32, slots, 3), IN(u32, positions, 4), IN(u32, table, 5),
    IN(float, sinks, 6), OUT(Result, out, 7), INOUT(u32, flag, 8), IN(u32, ends, 9), PARAMS(AttentionParams, p, 10)
) {
    // Two stages of keys and values, the queries' low parts, if they have some, and their high parts; these lie where
    // the first stage will be if they go on to registers.
    DYNAMIC_SHARED(u16, shared);
    SHARED(u32, near_slots, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_positions, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_lasts, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(float, row_units, ROWS);
    dependency_launch();
    dependency_wait();

    Tile tile = tile_of(p);
    Neighbours near = {near_slots, near_positions, near_lasts};
    near.load(p, tile, slots, positions, ends);
    u32 quad = here.lane() / 4, pair = here.lane() % 4 * 2;
    u32 end;
    for (u32 begin = LONG_RUN; begin < LONG_RUN + tile.present; begin = end) {
        end = near.run_end(begin, LONG_RUN + tile.present);
        if (!near.serves(p, begin, end)) continue;
        Run run = near.run(p, tile, begin, end, ends != nullptr);
        u32 slot = near_slots[begin], last = run.last;

        u32 first = first_seen(p, run.first_position);
        const u32* blocks = table + u64(slot) * p.table_cols;
        bool bad = meets_bad_block(p, table, slot, first / KV_BLOCK, last / KV_BLOCK + 1, flag);
        if (__syncthreads_or(bad)) {
            if (here.block_y() == 0) run.write_zeros(p, out, THREADS);
            continue;
        }

        // Queries, a warp for its own 16 rows.
        u16* low = shared + 2 * STAGE;
        auto place = [](u32 row, u32 d) { return row * KEY_ROW + d; };
        u16* high = QUERIES_STAY ? shared : low + LOW_PARTS * ROWS * KEY_ROW;
        store_queries(p, run, q, place, high, low, row_units);
        __syncwarp();
        u32 query_at = (here.warp() * 16 + here.lane() % 16) * KEY_ROW + here.lane() / 16 * 8;
        HighQueries q_high;
        load_high(q_high, high + query_at);
        // This thread has rows `quad` and `quad + 8` of its warp.
        u32 row_of[2] = {here.warp() * 16 + quad, here.warp() * 16 + quad + 8};
        u32 seen_first[2], seen_last[2];
        float unit[2], max[2], sum[2];
        for (int h = 0; h < 2; h++) {
            bool alive = run.live(row_of[h]);
            u32 position = near_positions[LONG_RUN + (alive ? run.token_of(row_of[h]) : 0)];
            seen_first[h] = alive ? first_seen(p, position) : 1;
            seen_last[h] = alive ? run.last_of(row_of[h]) : 0;
            unit[h] = row_units[row_of[h]];
            // A sink is a logit without a value: it starts the maximum and the sum.
            bool sink = sinks && alive;
            max[h] = sink ? sinks[tile.head_first + row_of[h] % tile.heads] * LOG2_E : minus_infinity();
            sum[h] = sink && here.lane() % 4 == 0 ? ONE : 0.0f;
        }
        float acc[VALUE_WIDTH / 8][4] = {};

        u32 key_tile = first / KEYS * KEYS, stage = 0;
        Cache cache = {p, keys, values, blocks, tile.kv_head, first, last};
        cache.fetch(shared, key_tile);
        cp_async_commit();
        for (; key_tile <= last; key_tile += KEYS, stage ^= 1) {
            u32 next = key_tile + KEYS;
            if (next <= last && next > key_tile) cache.fetch(shared + (stage ^ 1) * STAGE, next);
            cp_async_commit();
            cp_async_wait<1>();
            barrier();
            const u16* tile_keys = shared + stage * STAGE;
            const u16* tile_values = tile_keys + KEYS * KEY_ROW;

            float scores[KEYS / 8][4] = {};
#pragma unroll
            for (u32 k = 0; k < KEY_WIDTH / 16; k++) {
                u32 a_low[4];
                if (LOW_PARTS) ldmatrix_x4(a_low, low + query_at + k * 16);
#if QUERIES_STAY
                u32(&a_high)[4] = q_high[k];
#else
                u32 a_high[4];
                ldmatrix_x4(a_high, high + query_at + k * 16);
#endif
                u32 b[KEYS / 16][4];
#pragma unroll
                for (u32 n = 0; n < KEYS / 16; n++) {
                    u32 key = n * 16 + here.lane() / 16 * 8 + here.lane() % 8;
                    ldmatrix_x4(b[n], tile_keys + key * KEY_ROW + k * 16 + here.lane() / 8 % 2 * 8);
                }
                // Products that go to the same sums stand far apart: each waits for the one before it.
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; n++) mma_m16n8k16_f16(scores[n], a_high, half_of(b[n / 2], n % 2));
#if LOW_PARTS
#pragma unroll
                for (u32 n = 0; n < KEYS / 8; n++) mma_m16n8k16_f16(scores[n], a_low, half_of(b[n / 2], n % 2));
#endif
            }

            float(&flat)[KEYS / 2] = reinterpret_cast<float(&)[KEYS / 2]>(scores);
            float factor[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float to_log2 = cap(p, unit[h], h, flat);
                if (key_tile < seen_first[h] || key_tile + (KEYS - 1) > seen_last[h]) {
                    hide(seen_first[h], seen_last[h], key_tile, pair, h, flat);
                }
                factor[h] = weigh(to_log2, h, max[h], sum[h], flat);
            }
            u32 a_high[KEYS / 16][4], a_low[KEYS / 16][4];
            split_scores(scores, a_high, a_low);
            // Tensor cores cut off what does not fit their sums, and the error of many cuts adds up: those of a tile are
            // taken by themselves, and added with rounding.
#pragma unroll
            for (u32 first_n = 0; first_n < VALUE_WIDTH / 8; first_n += COLUMNS) {
                __syncwarp();  // Orders nothing: the compiler takes no more of these at once than there are registers.
                float parts[COLUMNS][4] = {};
#pragma unroll
                for (u32 k = 0; k < KEYS / 16; k++) {
                    u32 b[COLUMNS / 2][4];
#pragma unroll
                    for (u32 n = 0; n < COLUMNS / 2; n++) {
                        u32 column = (first_n + 2 * n) * 8 + here.lane() / 16 * 8;
                        ldmatrix_x4_trans(b[n], tile_values + (k * 16 + here.lane() % 16) * VALUE_ROW + column);
                    }
#pragma unroll
                    for (u32 n = 0; n < COLUMNS; n++) mma_m16n8k16_f16(parts[n], a_high[k], half_of(b[n / 2], n % 2));
#if LOW_PARTS
#pragma unroll
                    for (u32 n = 0; n < COLUMNS; n++) mma_m16n8k16_f16(parts[n], a_low[k], half_of(b[n / 2], n % 2));
#endif
                }
#pragma unroll
                for (u32 n = 0; n < COLUMNS; n++) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        acc[first_n + n][i] = fmaf(acc[first_n + n][i], factor[i / 2], parts[n][i]);
                    }
                }
            }
            // The next turn overwrites this stage.
            barrier();
        }

        write_rows(p, run, row_of, sum, reinterpret_cast<float(&)[VALUE_WIDTH / 2]>(acc), out);
        // The next run's queries may overwrite the stages: no read since the last barrier, and no copy under way.
    }
}
#endif
