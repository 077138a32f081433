// Attention over a part of what a token sees, as `attention_split`, on tensor cores with f16 caches; in a step whose
// tokens are each of a sequence of their own, also what `qkv_write` does before it.
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
// What a step waits for is memory: each load that needs the one before it costs half a microsecond and more. So ids,
// norms' weights and angles come before `dependency_wait`: nobody writes them while the model runs. So do the first keys
// and values of a launch that places, since none of its tokens sees another's, and what earlier steps wrote is there
// (attention.rs sees to it). The token's own key and value pass through shared memory, and go to the cache on the side.
//
// KEY_WIDTH: rounded up to a multiple of 32. VALUE_WIDTH: to a multiple of 64. sm_80 or newer.
#include "attention_mma.cuh"
#include "attention_kv_write.cuh"

// Twin of `DecodeParams` in attention.rs.
struct DecodeParams {
    AttentionParams attention;
    KvWriteParams kv_write;
};

#if __CUDA_ARCH__ >= 800
#define ROWS 8u
#define WARPS ROWS
#define THREADS (WARPS * 32)

// Elements from row to row of the split queries in shared memory: an odd number of 64 bytes, so that two rows lie in
// different banks.
#define QUERY_ROW (KEY_WIDTH + (KEY_WIDTH % 64 == 0 ? 32 : 0))

// Where lane `from` of a warp leaves its v-th result; a column of padding keeps lanes that read it in different banks.
DEV u32 result_at(u32 warp, u32 v, u32 from) { return (warp * (VALUE_WIDTH / 4) + v) * 33 + from; }

DEV uint4 load_or_zero(const u16* from, bool inside) {
    return inside ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}

DEV u32 word(const uint4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

// Four elements of a query for each lane, to rows of their high and low parts; what undoes the scale that they get.
DEV float split_query(Four v, float factor, uint4* high, uint4* low) {
    float largest = 0.0f;
    for (u32 i = 0; i < 4; i++) v.at[i] *= factor, largest = fmaxf(largest, fabsf(v.at[i]));
    // As integers, numbers that are not below 0 have the same order.
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

// A block of the cache on a warp's way, and the split that it is part of.
struct Cursor {
    u32 split, block;
};

KERNEL_BOUNDED(attention_decode, THREADS, 1)(
    IN(float, q, 0), IN(float, q_norm, 1), IN(float, k_norm, 2), IN(float, frequencies, 3), INOUT(u16, keys, 4),
    INOUT(u16, values, 5), IN(u32, slots, 6), IN(u32, positions, 7), IN(u32, table, 8), IN(float, sinks, 9),
    OUT(float, out, 10), OUT(float, exact, 11), OUT(Int8Block, int8, 12), OUT(u32, bf16, 13), INOUT(float, vectors, 14),
    INOUT(float2, stats, 15), INOUT(u32, flag, 16), PARAMS(DecodeParams, both, 17)
) {
    DYNAMIC_SHARED(float, shared);  // a row for each warp to turn a head in, then each warp's results
    SHARED(uint4, high, ROWS * QUERY_ROW / 8);
    SHARED(uint4, low, ROWS * QUERY_ROW / 8);
    SHARED(float, undo, ROWS);
    SHARED(float2, found, WARPS * ROWS);  // of each warp: the rows' maxima and sums
    SHARED(uint4, new_key, KEY_WIDTH / 8);
    SHARED(uint4, new_value, VALUE_WIDTH / 8);
    SHARED(u32, left_out, WARPS);
    const AttentionParams& p = both.attention;
    const KvWriteParams& kv_write = both.kv_write;
    dependency_launch();

    Unit unit = unit_of(p, here.block_y());
    Partials partials = {vectors, stats};
    Results results = {out, exact, int8, bf16};
    // This thread has row g, and columns that depend on t. This warp brings one query, if it is live, and the last two
    // warps also a new key and value.
    u32 g = here.lane() / 4, t = here.lane() % 4, d = here.lane() * 4;
    bool live = here.warp() < unit.live, brings_key = here.warp() == WARPS - 1, brings_value = here.warp() == WARPS - 2;
    u32 key_left = d < p.key_width ? p.key_width - d : 0, value_left = d < p.value_width ? p.value_width - d : 0;
    bool key_wide = p.aligned_q && key_left > 0, value_wide = p.aligned_q && value_left > 0;
    u32 walker = here.block_z(), place = here.block_x() * p.units + here.block_y();
    // In a prompt nearly all tokens are left to `attention_tile`: the warps look at one each, WARPS turns ahead. Bit 0 is
    // this turn's token; when only the last bit is there, they look again.
    u32 left_ahead = 1;
    for (u32 token = here.block_x(); token < p.tokens; token += here.grid_x()) {
        if (p.long_runs) {
            if (left_ahead == 1) left_ahead = look_ahead(p, slots, positions, token, left_out);
            bool left = left_ahead & 1;
            left_ahead >>= 1;
            if (left) continue;
        }
        float sink = live ? sink_of(sinks, unit.head_first + here.warp()) : minus_infinity();
        Four weights[2] = {};
        if (kv_write.normed) {
            weights[0] = load_four(q_norm + d, key_left, key_wide);
            weights[1] = load_four(k_norm + d, key_left, key_wide);
        }
        float angles[ROTATIONS];
#pragma unroll
        for (u32 i = 0; i < ROTATIONS; i++) {
            u32 pair = i * 32 + here.lane();
            angles[i] = pair < kv_write.pairs ? frequencies[pair] : 0.0f;
        }
        Standing standing;
        if (!stand(p, slots, positions, token, standing)) {
            dependency_wait();
            if (walker == 0) refuse(p, standing, token, results, unit.head_first, unit.live, flag);
            continue;
        }
        Splits splits = splits_of(p, standing);
        if (walker >= splits.count) continue;
        const u32* blocks = table + u64(standing.slot) * p.table_cols;
        // Whether this block of threads sees the token's own key, and places it. What is in the cache ends before that.
        bool newest = kv_write.placed && (splits.count - 1) % p.walkers == walker;
        u32 cached_end = standing.last + (kv_write.placed ? 0 : 1);
        u32 own_id = newest && (brings_key || brings_value) ? blocks[standing.last / KV_BLOCK] : PADDING;

        // This warp's way through the splits of this walker. Where it ends the id is none.
        u32 block_first = standing.first / KV_BLOCK, block_end = standing.last / KV_BLOCK + 1;
        auto settle = [&](Cursor at) {
            while (at.split < splits.count && at.block >= min(block_first + (at.split + 1) * splits.blocks, block_end)) {
                at.split += p.walkers;
                at.block = block_first + at.split * splits.blocks + here.warp();
            }
            return at;
        };
        auto id_of = [&](Cursor at) { return at.split < splits.count ? blocks[at.block] : PADDING; };
        Cursor now = settle({walker, block_first + walker * splits.blocks + here.warp()});
        Cursor next = settle({now.split, now.block + WARPS});
        u32 id = id_of(now), next_id = id_of(next);
        // While the ids are under way.
        Rotation turns[ROTATIONS];
#pragma unroll
        for (u32 i = 0; i < ROTATIONS; i++) turns[i] = rotation_at(standing.last, angles[i], kv_write.magnitude);

        uint4 key[2][KEY_WIDTH / 32], value[4][VALUE_WIDTH / 64];
        // What the token does not see is not read: another sequence may have left infinities there; 0 · ∞ is not 0.
        auto cached = [&](u32 at) {
            u32 position = now.block * KV_BLOCK + at;
            return id < p.blocks && position >= standing.first && position < cached_end;
        };
        auto load_keys = [&]() {
            u64 row = cache_row(p, id, unit.kv_head, g);
#pragma unroll
            for (u32 n = 0; n < 2; n++) {
                bool inside = cached(g + n * 8);
                const u16* from = keys + (row + n * 8) * p.key_stride + t * 8;
#pragma unroll
                for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                    key[n][s] = load_or_zero(from + s * 32, inside && s * 32 + t * 8 < p.key_stride);
                }
            }
        };
        auto load_values = [&]() {
            u64 row = cache_row(p, id, unit.kv_head, 0);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                u32 at = t * 2 + k / 2 * 8 + k % 2;
                bool inside = cached(at);
                const u16* from = values + (row + at) * p.value_stride + g * 8;
#pragma unroll
                for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                    value[k][s] = load_or_zero(from + s * 64, inside && s * 64 + g * 8 < p.value_stride);
                }
            }
        };
        if (!kv_write.placed) dependency_wait();
        load_keys();
        load_values();
        dependency_wait();

        // A query, and a new key or value.
        const float* row = q + token * p.q_stride;
        u32 heads = p.kv_heads * p.group;
        Four own[2] = {};
        if (live) own[0] = load_four(row + u64(unit.head_first + here.warp()) * p.key_width + d, key_left, key_wide);
        if (newest && brings_key) {
            own[1] = load_four(row + u64(heads + unit.kv_head) * p.key_width + d, key_left, key_wide);
        } else if (newest && brings_value) {
            row += u64(heads + p.kv_heads) * p.key_width;
            own[1] = load_four(row + u64(unit.kv_head) * p.value_width + d, value_left, value_wide);
        }
        float* const scratches[2] = {shared + here.warp() * 128, shared + WARPS * 128};
        // The first unit of a KV head writes to the cache.
        bool writes = own_id < p.blocks && unit.head_first == unit.kv_head * p.group;
        u64 to = cache_row(p, own_id, unit.kv_head, standing.last % KV_BLOCK);
        if (newest && brings_key) {
            norm_and_rotate<2>(own, weights, turns, kv_write, p.key_width, scratches);
            keep(own[1], KEY_WIDTH, new_key, writes ? keys + to * p.key_stride : nullptr, p.key_stride);
        } else {
            Four query[1] = {own[0]}, weight[1] = {weights[0]};
            float* const scratch[1] = {scratches[0]};
            norm_and_rotate<1>(query, weight, turns, kv_write, p.key_width, scratch);
            own[0] = query[0];
        }
        if (newest && brings_value) {
            keep(own[1], VALUE_WIDTH, new_value, writes ? values + to * p.value_stride : nullptr, p.value_stride);
        }
        u32 own_row = here.warp() * QUERY_ROW / 8;
        float undone = split_query(own[0], p.scale, high + own_row, low + own_row);
        if (here.lane() == 0) undo[here.warp()] = undone;
        barrier();

        for (u32 split = walker; split < splits.count; split += p.walkers) {
            bool bad = false;
            float max = minus_infinity(), sum = 0.0f, acc[VALUE_WIDTH / 64][8][4] = {};
            while (now.split == split) {
                u32 position = now.block * KV_BLOCK;
                // Where in this block the token's own key is, if it is not in the cache.
                u32 own_at = newest ? standing.last - position : KV_BLOCK;
                if (own_at < KV_BLOCK) {
#pragma unroll
                    for (u32 n = 0; n < 2; n++) {
#pragma unroll
                        for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                            if (own_at == g + n * 8) key[n][s] = new_key[s * 4 + t];
                        }
                    }
#pragma unroll
                    for (u32 k = 0; k < 4; k++) {
#pragma unroll
                        for (u32 s = 0; s < VALUE_WIDTH / 64; s++) {
                            if (own_at == t * 2 + k / 2 * 8 + k % 2) value[k][s] = new_value[s * 8 + g];
                        }
                    }
                }
                if (id >= p.blocks) {
                    raise(flag, FLAG_BLOCK, id, standing.slot * p.table_cols + now.block, p.blocks);
                    bad = true;
                }
                // Products that go to the same sums wait for each other: four sums instead of two.
                float scores[2][4] = {}, rest[2][4] = {};
#pragma unroll
                for (u32 s = 0; s < KEY_WIDTH / 32; s++) {
                    // Row g of the product is the high part of query g, row g + 8 the low part.
                    u32 at = g * (QUERY_ROW / 8) + s * 4 + t;
                    uint4 a = high[at], b = low[at];
                    u32 first[4] = {a.x, b.x, a.y, b.y}, second[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
                    for (u32 n = 0; n < 2; n++) {
                        u32 of_first[2] = {key[n][s].x, key[n][s].y}, of_second[2] = {key[n][s].z, key[n][s].w};
                        mma_m16n8k16_f16(scores[n], first, of_first);
                        mma_m16n8k16_f16(rest[n], second, of_second);
                    }
                }
                now = next;
                id = next_id;
                load_keys();
                next = settle({next.split, next.block + WARPS});
                next_id = id_of(next);

                // NaN is not larger than anything: it reaches the sum below.
                float logits[4], top = minus_infinity();
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 n = i / 2, high = i % 2, low = high + 2;
                    float logit = ((scores[n][high] + rest[n][high]) + (scores[n][low] + rest[n][low])) * undo[g];
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
            if (t == 0) found[here.warp() * ROWS + g] = make_float2(max, bad ? BAD_SUM : sum);
#pragma unroll
            for (u32 v = 0; v < VALUE_WIDTH / 4; v++) {
                float(&own)[4] = acc[v / 16][v % 8];
                shared[result_at(here.warp(), v, here.lane())] = own[v / 8 % 2] + own[v / 8 % 2 + 2];
            }
            barrier();
            u32 r = here.warp();
            if (r < unit.live) {
                float2 of[WARPS];
                float all = minus_infinity(), total = 0.0f, factors[WARPS];
                bool any_bad = false;
#pragma unroll
                for (u32 w = 0; w < WARPS; w++) of[w] = found[w * ROWS + r];
#pragma unroll
                for (u32 w = 0; w < WARPS; w++) all = fmaxf(all, of[w].x), any_bad |= of[w].y == BAD_SUM;
#pragma unroll
                for (u32 w = 0; w < WARPS; w++) {
                    // A warp without keys has nothing; a sum of NaN alone has no maximum and stays; 1 / ONE is exact.
                    factors[w] = of[w].y == 0.0f ? 0.0f : (of[w].x == all ? 1.0f : exp2_approx(of[w].x - all)) / ONE;
                    total = fmaf(of[w].y, factors[w], total);
                }
                Four column = {};
                if (d < VALUE_WIDTH) {
                    // Which thread of a warp has column d, and in which register.
                    u32 v = d / 64 * 16 + d / 8 % 2 * 8 + d % 8, from = r * 4 + d / 16 % 4;
#pragma unroll
                    for (u32 w = 0; w < WARPS; w++) {
#pragma unroll
                        for (u32 i = 0; i < 4; i++) {
                            column.at[i] = fmaf(factors[w], shared[result_at(w, v + i, from)], column.at[i]);
                        }
                    }
                }
                if (splits.count == 1) {
                    float share = only_share(all, total, sink);
                    for (u32 i = 0; i < 4; i++) column.at[i] = any_bad ? 0.0f : column.at[i] * share;
                    write_result(p, results, token, unit.head_first + r, 0, column);
                } else {
                    u64 to = partial_of(p, place, r, split);
                    if (here.lane() == 0) partials.stats[to] = make_float2(all, any_bad ? BAD_SUM : total);
                    float* vector = partials.vectors + to * p.value_stride;
                    if (d < p.value_stride) *reinterpret_cast<Four*>(vector + d) = column;
                }
            }
            barrier();
        }
        // The next token's partial results are written after a barrier that the warps which join these come to as well.
        if (p.walkers == 1 && splits.count > 1 && live) {
            combine(p, partials, place, here.warp(), splits.count, sink, results, token, unit.head_first + here.warp());
        }
    }
    // A kernel that has ended must be one after which all before it have.
    dependency_wait();
}
#endif
