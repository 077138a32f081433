// Attention over a part of what a token sees, as `attention_split`, on tensor cores with f16 caches.
//
// A unit is a token, a KV head and up to eight of the query heads that share it. Those are the 16 rows of a matrix
// product: the high parts of eight queries and their low parts. A warp takes the 16 keys of one block of the cache at a
// time, straight from memory to registers; the eight warps of a block of threads take neighbouring blocks and are joined
// at the end.
//
// A product's terms may be taken in any order, so each thread loads 16 bytes at a time: of keys, elements 8t to 8t + 7
// of 32 stand for columns 2t, 2t + 1, 2t + 8 and 2t + 9 of two products; of values, elements 8g to 8g + 7 of 64 are
// column g of eight products.
//
// KEY_WIDTH: rounded up to a multiple of 32. VALUE_WIDTH: to a multiple of 64. sm_80 or newer.
#include "attention_mma.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define ROWS 8u

DEV uint4 load_or_zero(const u16* from, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}

DEV u32 word(const uint4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

KERNEL_BOUNDED(attention_decode, THREADS, 1)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u16, values, 2), IN(u32, slots, 3), IN(u32, positions, 4), IN(u32, table, 5),
    IN(float, sinks, 6), OUT(float, out, 7), INOUT(float, vectors, 8), INOUT(float2, stats, 9), INOUT(u32, flag, 10),
    PARAMS(AttentionParams, p, 11)
) {
    DYNAMIC_SHARED(float, results);  // of each warp: ROWS vectors
    SHARED(float, maxima, WARPS * ROWS);
    SHARED(float, sums, WARPS * ROWS);
    dependency_launch();
    dependency_wait();

    Partials partials = {vectors, stats};
    u32 items = p.tokens * units_of_token(p) * p.walkers;
    for (u32 item = block_x(); item < items; item += grid_x()) {
        u32 walker = item % p.walkers, place = p.walkers == 1 ? block_x() : item / p.walkers;
        Unit unit = unit_of(p, item / p.walkers);
        float* result = out + unit.token * p.out_stride + u64(unit.head_first) * p.value_width;
        Standing standing;
        if (!stand(p, slots, positions, unit.token, flag, standing)) {
            // Padding, or no place: several blocks of threads leave that to `attention_combine`.
            if (p.walkers == 1) {
                for (u32 i = thread_x(); i < unit.live * p.value_width; i += THREADS) result[i] = 0.0f;
            }
            continue;
        }
        if (p.long_runs && in_long_run(slots, positions, p.tokens, unit.token)) continue;
        Splits splits = splits_of(standing);
        const u32* blocks = table + u64(standing.slot) * p.table_cols;

        // This thread has row g, and columns that depend on t.
        u32 g = lane() / 4, t = lane() % 4;
        u32 query[KEY_WIDTH / 32][2][4];
        float undo;
        {
            float own[KEY_WIDTH / 32][8], largest = 0.0f;
            const float* x = q + unit.token * p.q_stride + u64(unit.head_first + g) * p.key_width;
#pragma unroll
            for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
#pragma unroll
                for (u32 i = 0; i < 8; i++) {
                    u32 d = s * 32 + t * 8 + i;
                    own[s][i] = g < unit.live && d < p.key_width ? x[d] * p.scale : 0.0f;
                    largest = fmaxf(largest, fabsf(own[s][i]));
                }
            }
            largest = fmaxf(largest, shuffle_xor(largest, 1));
            RowScale scale = row_scale(fmaxf(largest, shuffle_xor(largest, 2)));
            undo = scale.undo;
#pragma unroll
            for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32(&part)[4] = query[s][i / 2];
                    float a = own[s][2 * i] * scale.apply, b = own[s][2 * i + 1] * scale.apply;
                    split_pair(a, b, part[i % 2 * 2], part[i % 2 * 2 + 1]);
                }
            }
        }

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            u32 begin = standing.first / KV_BLOCK + split * splits.blocks, end = begin + splits.blocks;
            if (end > standing.last / KV_BLOCK + 1) end = standing.last / KV_BLOCK + 1;
            if (__syncthreads_or(meets_bad_block(p, table, standing.slot, begin, end, flag))) {
                if (thread_x() < unit.live) {
                    partials.stats[partial_of(p, place, thread_x(), split)] = make_float2(0.0f, BAD_SUM);
                }
                barrier();
                continue;
            }

            float max = minus_infinity(), sum = 0.0f, acc[VALUE_WIDTH / 64][8][4] = {};
            for (u32 block = begin + warp(); block < end; block += WARPS) {
                u32 position = block * KV_BLOCK;
                u64 row = cache_row(p, blocks[block], unit.kv_head, 0);
                uint4 key[2][KEY_WIDTH / 32], value[4][VALUE_WIDTH / 64];
#pragma unroll
                for (u32 n = 0; n < 2; n++) {
                    const u16* from = keys + (row + n * 8 + g) * p.key_stride + t * 8;
#pragma unroll
                    for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                        key[n][s] = load_or_zero(from + s * 32, s * 32 + t * 8 < p.key_stride);
                    }
                }
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    // What the token does not see is not read: another sequence may have left infinities there, and
                    // 0 · ∞ is not 0.
                    u32 at = t * 2 + k / 2 * 8 + k % 2;
                    bool seen = position + at >= standing.first && position + at <= standing.last;
                    const u16* from = values + (row + at) * p.value_stride + g * 8;
#pragma unroll
                    for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                        value[k][s] = load_or_zero(from + s * 64, seen && s * 64 + g * 8 < p.value_stride);
                    }
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
                float factor = max == top ? 1.0f : exp2f(max - top);
                max = top;
#pragma unroll
                for (u32 i = 0; i < 4; i++) logits[i] = exp2f(logits[i] - base);
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
            }

            // The warps' results, relative to the maximum of all.
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            if (t == 0) maxima[warp() * ROWS + g] = max, sums[warp() * ROWS + g] = sum;
            barrier();
            float top = minus_infinity();
            for (u32 w = 0; w < WARPS; w++) top = fmaxf(top, maxima[w * ROWS + g]);
            // A warp without keys has nothing; 1 / ONE is exact.
            float factor = max == minus_infinity() ? 0.0f : exp2f(max - top) / ONE;
            float* own = results + (warp() * ROWS + g) * VALUE_WIDTH;
#pragma unroll
            for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
#pragma unroll
                    for (u32 j = 0; j < 8; j++) {
                        own[s * 64 + (t * 2 + i) * 8 + j] = (acc[s][j][i] + acc[s][j][i + 2]) * factor;
                    }
                }
            }
            barrier();
            for (u32 i = thread_x(); i < unit.live * p.value_width; i += THREADS) {
                u32 r = i / p.value_width, d = i % p.value_width;
                float total = 0.0f;
                for (u32 w = 0; w < WARPS; w++) total += results[(w * ROWS + r) * VALUE_WIDTH + d];
                partials.vectors[partial_of(p, place, r, split) * p.value_width + d] = total;
            }
            if (thread_x() < unit.live) {
                float all = minus_infinity(), total = 0.0f;
                for (u32 w = 0; w < WARPS; w++) all = fmaxf(all, maxima[w * ROWS + thread_x()]);
                for (u32 w = 0; w < WARPS; w++) {
                    float own = maxima[w * ROWS + thread_x()], part = sums[w * ROWS + thread_x()];
                    // A sum of NaN alone has no maximum and stays.
                    total += part == 0.0f ? 0.0f : part * (own == all ? 1.0f : exp2f(own - all)) / ONE;
                }
                partials.stats[partial_of(p, place, thread_x(), split)] = make_float2(all, total);
            }
            barrier();
        }
        if (p.walkers == 1) {
            for (u32 r = warp(); r < unit.live; r += WARPS) {
                const float* sink = sinks ? sinks + unit.head_first + r : nullptr;
                combine(p, partials, place, r, splits.count, sink, result + r * p.value_width, 0, 32);
            }
            barrier();
        }
    }
}
