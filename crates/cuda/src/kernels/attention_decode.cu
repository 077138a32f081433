// Attention of single tokens over f16 caches on tensor cores; in a step with one token per sequence also the norms, rotations
// and KV write of `qkv_write`. Splits are those of `attention_split`.
//
// A unit is a token, a KV head and up to eight of its query heads: the high and the low parts of eight queries are the 16 rows
// of a matrix product. A warp takes the 16 keys of one block of the cache at a time, straight from memory to registers, the
// next ones under way; the parts of a split are neighbouring blocks and are joined at its end. Where there are many units, thread
// blocks have fewer warps and several are on a multiprocessor: while one waits for its row or joins its parts, another multiplies.
//
// A product's terms may come in any order, so a thread loads 16 bytes at a time: of keys, elements 8t to 8t + 7 of 32 are
// columns 2t, 2t + 1, 2t + 8 and 2t + 9 of two products; of values, elements 8g to 8g + 7 of 64 are column g of eight products.
//
// Each load that depends on another costs half a microsecond and more. So ids, norms' weights and angles, which no kernel
// writes, are loaded before `dependency_wait`; so are the first keys and values where each token is of its own sequence
// (attention.rs guarantees that earlier steps' writes are complete). The token's own key and value pass through shared memory.
//
// KEY_WIDTH: rounded up to a multiple of 32. VALUE_WIDTH: to a multiple of 64. WARPS: 2, 4 or 8. ALL_OPTIONS: see
// `attention.cuh`. sm_80 or newer.
#include "attention_decode.cuh"
#include "attention_kv_write.cuh"

#include "DecodeParams"

#if __CUDA_ARCH__ >= 800
// The lane's four elements of a head.
struct HeadColumns {
    u32 first, left;
    bool aligned;
    DEV Four load(const float* head) const { return load_four(head + first, left, aligned); }
};
DEV HeadColumns head_columns(u32 width, bool aligned) {
    u32 first = here.lane() * 4, left = first < width ? width - first : 0;
    return {first, left, aligned && left > 0};
}

// Queries whose weights differ: see `NORMED_BY_ROW`.
#define WEIGHT_ROWS (ALL_OPTIONS ? ROUNDS : 1)

// The heads that a warp prepares for a token: queries, if they are live; the last two warps also the new key and value. A lane has
// four elements of each.
struct WarpHeads {
    u32 live;  // queries of the unit
    bool brings_key, brings_value;
    HeadColumns key, value;
    Four query_weights[WEIGHT_ROWS], key_weights;  // of the norms
    float angles[ROTATIONS];
    Rotation rotations[ROTATIONS];

    static DEV u32 query(u32 i) { return here.warp() + i * WARPS; }
    DEV void load_norms(const DecodeParams& both, const Unit& unit, const float* q_norm, const float* k_norm) {
        for (u32 i = 0; i < WEIGHT_ROWS; i++) query_weights[i] = {};
        key_weights = {};
        if (!both.kv_write.normed) return;
        bool by_row = ALL_OPTIONS && both.kv_write.normed == NORMED_BY_ROW;
        u32 width = by_row ? both.attention.key_width : 0;
#pragma unroll
        for (u32 i = 0; i < WEIGHT_ROWS; i++) {
            if (!by_row || query(i) < live) query_weights[i] = key.load(q_norm + (unit.head_first + query(i)) * width);
        }
        key_weights = key.load(k_norm + unit.kv_head * width);
    }
    DEV void load_angles(const DecodeParams& both, const float* frequencies) {
#pragma unroll
        for (u32 i = 0; i < ROTATIONS; i++) {
            u32 pair = i * 32 + here.lane();
            angles[i] = pair < both.kv_write.pairs ? frequencies[pair] : 0.0f;
        }
    }
    DEV void rotate_to(u32 position, float magnitude) {
#pragma unroll
        for (u32 i = 0; i < ROTATIONS; i++) rotations[i] = rotation_at(position, angles[i], magnitude);
    }
    // Normalises and rotates the queries, and with HEADS = ROUNDS + 1 the new key behind them.
    template <u32 HEADS>
    DEV void prepare(Four (&own)[ROUNDS + 1], const DecodeParams& both, float2 means, const Scratch& scratch) const {
        Four heads[HEADS], weights[HEADS];
        float of_rows[HEADS];
        float* rows[HEADS];
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            bool is_key = h == ROUNDS;
            heads[h] = own[h];
            weights[h] = is_key ? key_weights : query_weights[h < WEIGHT_ROWS ? h : 0];
            of_rows[h] = is_key ? means.y : means.x;
            rows[h] = scratch.rows + (is_key ? PARTS : query(h)) * 128;
        }
        norm_and_rotate<HEADS>(heads, weights, rotations, both.kv_write, both.attention.key_width, of_rows, rows);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) own[h] = heads[h];
    }
    // `row`: the token's queries, keys and values. `newest`: its key and value are prepared too, and go to block `id`.
    DEV void bring(
        const DecodeParams& both, const float* row, float2 means, const Unit& unit, const Cache& cache, const Scratch& scratch,
        bool newest, u32 id, u32 position
    ) const {
        const AttentionParams& p = both.attention;
        u32 heads = p.kv_heads * p.group, kv_head = unit.kv_head;
        Four own[ROUNDS + 1] = {};  // the last one a key or a value
#pragma unroll
        for (u32 i = 0; i < ROUNDS; i++) {
            if (query(i) < live) own[i] = key.load(row + u64(unit.head_first + query(i)) * p.key_width);
        }
        if (newest && brings_key) {
            own[ROUNDS] = key.load(row + u64(heads + kv_head) * p.key_width);
        } else if (newest && brings_value) {
            row += u64(heads + p.kv_heads) * p.key_width;
            own[ROUNDS] = value.load(row + u64(kv_head) * p.value_width);
        }
        // The first unit of a KV head writes to the cache.
        bool writes = id < p.blocks && unit.head_first == kv_head * p.group;
        u64 to = cache_row(p, id, kv_head, position % KV_BLOCK);
        if (newest && brings_key) {
            prepare<ROUNDS + 1>(own, both, means, scratch);
            keep(own[ROUNDS], KEY_WIDTH, scratch.new_key, writes ? cache.keys + to * p.key_stride : nullptr, p.key_stride);
        } else {
            prepare<ROUNDS>(own, both, means, scratch);
        }
        if (newest && brings_value) {
            keep(own[ROUNDS], VALUE_WIDTH, scratch.new_value, writes ? cache.values + to * p.value_stride : nullptr, p.value_stride);
        }
        const float scale = query_scale(p, position);
#pragma unroll
        for (u32 i = 0; i < ROUNDS; i++) {
            u32 at = query(i) * QUERY_ROW / 8;
            float undo = split_query(own[i], scale, scratch.high + at, scratch.low + at);
            if (here.lane() == 0) scratch.undo[query(i)] = undo;
        }
    }
};

// A token whose splits this thread block takes.
struct Visit {
    // Past the last one if there is none.
    u32 token;
    Context context;
    Walk walk;
    // The block of the cache to which this thread block writes the token's own key, if it brings it.
    u32 own_id;
};

KERNEL_BOUNDED(attention_decode, THREADS, ROUNDS)(
    IN(float, q, 0), IN(float, q_norm, 1), IN(float, k_norm, 2), IN(float, frequencies, 3), INOUT(u16, keys, 4),
    INOUT(u16, values, 5), IN(u32, slots, 6), IN(u32, positions, 7), IN(u32, table, 8), IN(float, sinks, 9),
    OUT(float, out, 10), OUT(float, exact, 11), OUT(Int8Block, int8, 12), OUT(u32, bf16, 13), INOUT(float, vectors, 14),
    INOUT(float2, stats, 15), INOUT(u32, flag, 16), IN(u32, ends, 17), PARAMS(DecodeParams, both, 18)
) {
    DYNAMIC_SHARED(float, rows);
    SHARED(uint4, high, ROWS * QUERY_ROW / 8);
    SHARED(uint4, low, ROWS * QUERY_ROW / 8);
    SHARED(float, undo, ROWS);
    SHARED(float2, found, PARTS * ROWS);
    SHARED(uint4, new_key, KEY_WIDTH / 8);
    SHARED(uint4, new_value, VALUE_WIDTH / 8);
    SHARED(u32, left_out, WARPS);
    const AttentionParams& p = both.attention;
    dependency_launch();

    Unit unit = unit_of(p, here.block_y());
    Partials partials = {vectors, stats};
    Results results = {out, exact, int8, bf16};
    Scratch scratch = {rows, high, low, undo, found, new_key, new_value};
    bool placed = both.kv_write.placed;
    u32 walker = here.block_z(), unit_index = here.block_x() * p.units + here.block_y();
    WarpHeads heads = {unit.live, here.warp() == WARPS - 1, here.warp() == WARPS - 2, head_columns(p.key_width, p.aligned_q),
                       head_columns(p.value_width, p.aligned_q)};
    LongRuns long_runs = {left_out, ends, 1};
    float sink_logits[ROUNDS];
#pragma unroll
    for (u32 i = 0; i < ROUNDS; i++) {
        u32 r = WarpHeads::query(i);
        sink_logits[i] = r < unit.live ? sink_of(sinks, unit.head_first + r) : minus_infinity();
    }
    heads.load_norms(both, unit, q_norm, k_norm);
    heads.load_angles(both, frequencies);

    // Whether this thread block sees a token's own key, and writes it to the cache.
    auto is_newest = [&](const Splits& splits) { return placed && (splits.count - 1) % p.walkers == walker; };
    // The first token from `token` on of which this thread block takes splits; ids and angles are on their way.
    auto visit = [&](u32 token) {
        Visit found = {};
        for (; token < p.tokens; token += here.grid_x()) {
            if (p.long_runs && long_runs.have(p, slots, positions, token)) continue;
            if (!find_context(p, slots, positions, ends, token, found.context)) {
                dependency_wait();
                if (walker == 0) write_zeros(p, found.context, token, results, unit.head_first, unit.live, flag);
                continue;
            }
            const Context& context = found.context;
            const Splits splits = splits_of(p, context);
            if (walker >= splits.count) continue;
            const u32* blocks = table + u64(context.slot) * p.table_cols;
            found.own_id = is_newest(splits) && (heads.brings_key || heads.brings_value) ? blocks[context.last / KV_BLOCK] : PADDING;
            found.walk = {blocks, context.first / KV_BLOCK, context.last / KV_BLOCK + 1, splits, p.walkers};
            found.walk.begin(walker);
            heads.rotate_to(context.position, both.kv_write.magnitude);
            break;
        }
        found.token = token;
        return found;
    };
    // The cache ends before the token's own key, if that comes with the token.
    auto cache_of = [&](const Visit& of) {
        return Cache{p, keys, values, unit.kv_head, of.context.first, of.context.last + (placed ? 0 : 1)};
    };
    KeysAndValues block;
    auto load = [&](const Visit& of) {
        if (of.token >= p.tokens) return;
        const Cache cache = cache_of(of);
        block.load_keys(cache, of.walk);
        block.load_values(cache, of.walk);
    };

    Visit now = visit(here.block_x());
    if (!placed) dependency_wait();
    load(now);
    dependency_wait();
    while (now.token < p.tokens) {
        const Context context = now.context;
        const bool newest = is_newest(now.walk.splits);
        const float* row = q + now.token * p.q_stride;
        float2 means = make_float2(0.0f, 0.0f);
        if (ALL_OPTIONS && both.kv_write.normed == NORMED_BY_ROW) {
            u32 keys = p.kv_heads * p.key_width;
            float* parts = reinterpret_cast<float*>(found);
            RowSquares of_queries = {row, keys * p.group, parts}, of_keys = {row + keys * p.group, keys, parts + 32};
            of_queries.add_up(p.aligned_q);
            of_keys.add_up(p.aligned_q);
            barrier();
            means = make_float2(of_queries.mean(), of_keys.mean());
        }
        const Cache cache = cache_of(now);
        heads.bring(both, row, means, unit, cache, scratch, newest, now.own_id, context.position);
        barrier();

        // Ids of the next token are loaded while this one's keys are multiplied, its keys while the warps are joined.
        const Visit next = visit(now.token + here.grid_x());
        TokenSplits own = {p,     unit,    context,  now.token, unit_index, walker, now.walk.splits.count,
                           cache, scratch, partials, results,   sink_logits, flag};
        auto insert = [&](u32 position) {
            u32 own_at = newest ? context.last - position : KV_BLOCK;
            if (own_at < KV_BLOCK) block.insert(own_at, new_key, new_value);
        };
        own.take(now.walk, block, insert, [&] { load(next); });
        now = next;
        // They are loaded for each token, because to keep them would take registers.
        heads.load_norms(both, unit, q_norm, k_norm);
    }
    // The end of a kernel implies the end of those before it.
    dependency_wait();
}
#endif
