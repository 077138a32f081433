// Attention over a part of what a token sees, as `attention_split`, on tensor cores with f16 caches.
//
// A unit is a token, a KV head and up to eight of the query heads that share it. Those are the 16 rows of a matrix
// product: the high parts of eight queries and their low parts. A warp takes the 16 keys of one block of the cache at a
// time, straight from memory to registers, the next ones under way while these are multiplied; the eight warps of a block
// of threads take neighbouring blocks and are joined at the end of a split.
//
// A product's terms may be taken in any order, so each thread loads 16 bytes at a time: of keys, elements 8t to 8t + 7
// of 32 stand for columns 2t, 2t + 1, 2t + 8 and 2t + 9 of two products; of values, elements 8g to 8g + 7 of 64 are
// column g of eight products.
//
// KEY_WIDTH: rounded up to a multiple of 32. VALUE_WIDTH: to a multiple of 64. sm_80 or newer.
#include "attention_mma.cuh"

#if __CUDA_ARCH__ >= 800
#define ROWS 8u
#define WARPS ROWS
#define THREADS (WARPS * 32)

// Elements from row to row of the queries in shared memory, so that rows lie in different banks.
#define QUERY_ROW (KEY_WIDTH + 4)

// Where lane `from` of a warp leaves its v-th result, behind the queries; a column of padding keeps the lanes that read it
// in different banks.
DEV u32 result_at(u32 warp, u32 v, u32 from) {
    return ROWS * QUERY_ROW + (warp * (VALUE_WIDTH / 4) + v) * 33 + from;
}

DEV uint4 load_or_zero(const u16* from, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}

DEV u32 word(const uint4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

// Eight elements of each 32 of a query, split in two; returns what undoes their scale.
DEV float take_queries(const float* from, u32 (&query)[KEY_WIDTH / 32][2][4]) {
    float own[KEY_WIDTH / 32][8], largest = 0.0f;
#pragma unroll
    for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
        const float4* x = reinterpret_cast<const float4*>(from + s * 32);
        float4 low = x[0], high = x[1];
        float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (u32 i = 0; i < 8; i++) own[s][i] = all[i], largest = fmaxf(largest, fabsf(all[i]));
    }
    largest = fmaxf(largest, shuffle_xor(largest, 1));
    RowScale scale = row_scale(fmaxf(largest, shuffle_xor(largest, 2)));
#pragma unroll
    for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32(&part)[4] = query[s][i / 2];
            float a = own[s][2 * i] * scale.apply, b = own[s][2 * i + 1] * scale.apply;
            split_pair(a, b, part[i % 2 * 2], part[i % 2 * 2 + 1]);
        }
    }
    return scale.undo;
}

// A block of the cache on a warp's way, and the split that it is part of.
struct Cursor {
    u32 split, block;
};

KERNEL_BOUNDED(attention_decode, THREADS, 1)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u16, values, 2), IN(u32, slots, 3), IN(u32, positions, 4), IN(u32, table, 5),
    IN(float, sinks, 6), OUT(float, out, 7), INOUT(float, vectors, 8), INOUT(float2, stats, 9), INOUT(u32, flag, 10),
    PARAMS(AttentionParams, p, 11)
) {
    DYNAMIC_SHARED(float, shared);  // the queries, and each warp's results
    SHARED(float2, found, WARPS * ROWS);  // of each warp: the rows' maxima and sums
    SHARED(u32, left_out, WARPS);
    dependency_launch();
    Unit unit = unit_of(p, block_y());
    dependency_wait();

    Partials partials = {vectors, stats};
    // This thread has row g, and columns that depend on t.
    u32 g = lane() / 4, t = lane() % 4;
    u32 walker = block_z(), place = block_x() * p.units + block_y();
    // In a prompt nearly all tokens are left to `attention_tile`: the warps look at one each, WARPS turns ahead. Bit 0 is
    // this turn's token; when only the last bit is there, they look again.
    u32 left_ahead = 1;
    for (u32 token = block_x(); token < p.tokens; token += grid_x()) {
        if (p.long_runs) {
            if (left_ahead == 1) left_ahead = look_ahead(p, slots, positions, token, left_out);
            bool left = left_ahead & 1;
            left_ahead >>= 1;
            if (left) continue;
        }
        float* result = out + token * p.out_stride + u64(unit.head_first) * p.value_width;
        // No branch stands between these loads, nor between them and those of the ids: all are under way together.
        const float* x = q + token * p.q_stride + u64(unit.head_first) * p.key_width;
        float part[KEY_WIDTH / 32];
#pragma unroll
        for (u32 i = 0; i < KEY_WIDTH / 32; i++) {
            u32 r = (i * THREADS + thread_x()) / KEY_WIDTH, d = (i * THREADS + thread_x()) % KEY_WIDTH;
            part[i] = x[min(r, unit.live - 1) * p.key_width + min(d, p.key_width - 1)];
        }
        Standing standing;
        if (!stand(p, slots, positions, token, flag, standing)) {
            // Padding, or no place: several blocks of threads leave that to `attention_combine`.
            if (p.walkers == 1) {
                for (u32 i = thread_x(); i < unit.live * p.value_width; i += THREADS) result[i] = 0.0f;
            }
            continue;
        }
        Splits splits = splits_of(standing);
        const u32* blocks = table + u64(standing.slot) * p.table_cols;

        // This warp's way through the splits of this walker. Where it ends the id is none.
        u32 block_first = standing.first / KV_BLOCK, block_end = standing.last / KV_BLOCK + 1;
        auto settle = [&](Cursor at) {
            while (at.split < splits.count && at.block >= min(block_first + (at.split + 1) * splits.blocks, block_end)) {
                at.split += p.walkers;
                at.block = block_first + at.split * splits.blocks + warp();
            }
            return at;
        };
        auto id_of = [&](Cursor at) { return at.split < splits.count ? blocks[at.block] : PADDING; };
        Cursor now = settle({walker, block_first + walker * splits.blocks + warp()});
        Cursor next = settle({now.split, now.block + WARPS});
        u32 id = id_of(now), next_id = id_of(next);

        // While the ids are under way.
#pragma unroll
        for (u32 i = 0; i < KEY_WIDTH / 32; i++) {
            u32 r = (i * THREADS + thread_x()) / KEY_WIDTH, d = (i * THREADS + thread_x()) % KEY_WIDTH;
            shared[r * QUERY_ROW + d] = r < unit.live && d < p.key_width ? part[i] * p.scale : 0.0f;
        }
        barrier();

        uint4 key[2][KEY_WIDTH / 32], value[4][VALUE_WIDTH / 64];
        auto load_keys = [&]() {
            u64 row = cache_row(p, id, unit.kv_head, g);
#pragma unroll
            for (u32 n = 0; n < 2; n++) {
                const u16* from = keys + (row + n * 8) * p.key_stride + t * 8;
#pragma unroll
                for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                    key[n][s] = load_or_zero(from + s * 32, id < p.blocks && s * 32 + t * 8 < p.key_stride);
                }
            }
        };
        auto load_values = [&]() {
            u64 row = cache_row(p, id, unit.kv_head, 0);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                // What the token does not see is not read: another sequence may have left infinities there, and 0 · ∞ is
                // not 0.
                u32 at = t * 2 + k / 2 * 8 + k % 2, position = now.block * KV_BLOCK + at;
                bool seen = id < p.blocks && position >= standing.first && position <= standing.last;
                const u16* from = values + (row + at) * p.value_stride + g * 8;
#pragma unroll
                for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                    value[k][s] = load_or_zero(from + s * 64, seen && s * 64 + g * 8 < p.value_stride);
                }
            }
        };
        load_keys();
        load_values();
        u32 query[KEY_WIDTH / 32][2][4];
        float undo = take_queries(shared + g * QUERY_ROW + t * 8, query);

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            bool bad = false;
            float max = minus_infinity(), sum = 0.0f, acc[VALUE_WIDTH / 64][8][4] = {};
            while (now.split == split) {
                u32 position = now.block * KV_BLOCK;
                if (id >= p.blocks) {
                    raise(flag, FLAG_BLOCK, id, standing.slot * p.table_cols + now.block, p.blocks);
                    bad = true;
                }
                float scores[2][4] = {};
#pragma unroll
                for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
#pragma unroll
                    for (u32 n = 0; n < 2; n++) {
                        u32 low[2] = {key[n][s].x, key[n][s].y}, high[2] = {key[n][s].z, key[n][s].w};
                        mma_m16n8k16_f16(scores[n], query[s][0], low);
                        mma_m16n8k16_f16(scores[n], query[s][1], high);
                    }
                }
                now = next;
                id = next_id;
                load_keys();
                next = settle({next.split, next.block + WARPS});
                next_id = id_of(next);

                // Row g + 8 is the low part of row g. NaN is not larger than anything: it reaches the sum below.
                float logits[4], top = minus_infinity();
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    float logit = (scores[i / 2][i % 2] + scores[i / 2][i % 2 + 2]) * undo;
                    if (p.softcap != 0.0f) logit = p.softcap * tanhf(logit / p.softcap);
                    u32 at = position + i / 2 * 8 + t * 2 + i % 2;
                    logits[i] = at >= standing.first && at <= standing.last ? logit * LOG2_E : minus_infinity();
                    top = fmaxf(top, logits[i]);
                }
                top = fmaxf(top, shuffle_xor(top, 1));
                top = fmaxf(max, fmaxf(top, shuffle_xor(top, 2)));
                // Nothing seen yet: every exponential is that of −∞.
                float base = top == minus_infinity() ? 0.0f : top - ONE_EXPONENT;
                float factor = max == top ? 1.0f : exp2_approx(max - top);
                max = top;
#pragma unroll
                for (u32 i = 0; i < 4; i++) logits[i] = exp2_approx(logits[i] - base);
                sum = sum * factor + ((logits[0] + logits[1]) + (logits[2] + logits[3]));
                u32 weights[4];
                split_pair(logits[0], logits[1], weights[0], weights[1]);
                split_pair(logits[2], logits[3], weights[2], weights[3]);
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
                load_values();
            }

            // Every warp leaves what it has found, and joins one row of all.
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            if (t == 0) found[warp() * ROWS + g] = make_float2(max, bad ? BAD_SUM : sum);
#pragma unroll
            for (u32 v = 0; v < VALUE_WIDTH / 4; v++) {
                float(&own)[4] = acc[v / 16][v % 8];
                shared[result_at(warp(), v, lane())] = own[v / 8 % 2] + own[v / 8 % 2 + 2];
            }
            barrier();
            u32 r = warp();
            if (r < unit.live) {
                float2 own = found[lane() % WARPS * ROWS + r];
                float all = own.x;
                for (u32 mask = 1; mask < WARPS; mask *= 2) all = fmaxf(all, shuffle_xor(all, mask));
                bool any_bad = __any_sync(0xffffffffu, own.y == BAD_SUM);
                // A warp without keys has nothing; a sum of NaN alone has no maximum and stays; 1 / ONE is exact.
                float factor = own.y == 0.0f ? 0.0f : (own.x == all ? 1.0f : exp2_approx(own.x - all)) / ONE;
                float total = own.y * factor;
                for (u32 mask = 1; mask < WARPS; mask *= 2) total += shuffle_xor(total, mask);
                u64 to = partial_of(p, place, r, split);
                if (lane() == 0) partials.stats[to] = make_float2(all, any_bad ? BAD_SUM : total);
                float factors[WARPS];
#pragma unroll
                for (u32 w = 0; w < WARPS; w++) factors[w] = __shfl_sync(0xffffffffu, factor, int(w));
#pragma unroll
                for (u32 base = 0; base < VALUE_WIDTH; base += 32) {
                    // Which thread of a warp has column d, and in which register.
                    u32 d = base + lane();
                    u32 v = d / 64 * 16 + d / 8 % 2 * 8 + d % 8, from = r * 4 + d / 16 % 4;
                    float column = 0.0f;
#pragma unroll
                    for (u32 w = 0; w < WARPS; w++) column = fmaf(factors[w], shared[result_at(w, v, from)], column);
                    if (d < p.value_width) partials.vectors[to * p.value_width + d] = column;
                }
            }
            barrier();
        }
        if (p.walkers == 1) {
            for (u32 r = warp(); r < unit.live; r += WARPS) {
                const float* sink = sinks ? sinks + unit.head_first + r : nullptr;
                combine(p, partials, place, r, splits.count, sink, result + r * p.value_width);
            }
            barrier();
        }
    }
}
#endif
