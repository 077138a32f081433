// Attention of long runs by `wgmma` (compute capability 9.0), at `Precision::Fast` and without a soft cap.
//
// A thread block takes a tile of the batch: neighbouring tokens and the query heads of one KV head, 64 rows for each
// warpgroup that multiplies. Four more warps copy keys and values and make copies known to products (`fence_async`),
// because the fence waits for all loads of the thread (gemm_wgmma.cu).
//
// While the exponentials of a tile of keys are made, the values of the tile before are multiplied; and warpgroups begin
// their products in turns, so that one multiplies while another makes exponentials. Sums stay in the accumulators of
// tensor cores: over 8,192 keys the NMSE grows to 4e-10 by what these cut off, far below the rounding of exponentials
// to f16.
//
// Tiles of keys begin at multiples of KEYS and keys that a row does not see change nothing in it, so the result of a
// row does not depend on the rows beside it.
//
// KEY_WIDTH, VALUE_WIDTH (of a slice): rounded up to a multiple of 64, and of 128 above 64 for values. KEYS: multiplied at
// once, 32, 64 or 128. WARPS: that multiply, a multiple of four. BLOCKS: of a multiprocessor. STAGES: tiles of keys and
// values in shared memory, at least two. ROUNDED (1: results are activations in bfloat16).
#define COPIERS 4u
#define THREADS (32 * (WARPS + COPIERS))
#define ROWS (16u * WARPS)
#define LOW_PARTS 0
#define TOGETHER (KEY_WIDTH <= 128 ? 16u : 4u)
#include "attention_rows.cuh"
#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(GPU_SIM)

// Bytes: 64 columns of a matrix, which lie in lines of 128 bytes with the swizzle of `wgmma`, are a panel.
constexpr u32 PANEL = KEYS * 128, KEY_TILE = KEY_WIDTH / 64 * PANEL, STAGE = KEY_TILE + VALUE_WIDTH / 64 * PANEL;
// The same of a warpgroup's queries.
constexpr u32 QUERY_PANEL = 64 * 128, QUERIES = KEY_WIDTH / 64 * QUERY_PANEL;
constexpr u32 GROUPS = WARPS / 4;
// Registers of a thread, as in gemm_wgmma.cu.
constexpr u32 FIRST_REGISTERS = 65536 / BLOCKS / THREADS / 8 * 8, COPY_REGISTERS = 56;
constexpr u32 FREE_REGISTERS = (FIRST_REGISTERS * (WARPS + COPIERS) - COPY_REGISTERS * COPIERS) / WARPS / 8 * 8;
constexpr u32 REGISTERS = FREE_REGISTERS < 240 ? FREE_REGISTERS : 240;
static_assert(STAGES >= 2, "each warp that copies has a place of its own");
// Barriers: of a warpgroup that has written its queries, and of one whose turn it is and the one before.
enum { WRITTEN = 1, TURN = WRITTEN + GROUPS };

// Where 16 bytes of a row of a panel lie.
DEV u32 panel_place(u32 row, u32 unit) { return row * 128 + (unit ^ row % 8) * 16; }

// Keys and values in shared memory. Of the block's tile i of keys, keys are item 2i and values item 2i + 1. An item's
// place is full when a warp has copied it, and empty when all warps have multiplied with it.
struct Ring {
    u8* memory;
    u64 *full, *empty;

    static DEV u32 barrier_of(u32 item) { return item / 2 % STAGES * 2 + item % 2; }
    static DEV u32 parity(u32 item) { return item / 2 / STAGES & 1; }
    DEV u8* at(u32 item) const { return memory + item / 2 % STAGES * STAGE + item % 2 * KEY_TILE; }
    DEV const u8* take(u32 item) const {
        mbarrier_wait(&full[barrier_of(item)], parity(item));
        return at(item);
    }
    // By a whole warp, whose products have ended.
    DEV void release(u32 item) const {
        if (here.lane() == 0) mbarrier_arrive(&empty[barrier_of(item)]);
    }
};

// Tiles of keys that a run sees: `count` of them from position `begin` on; and the block's number of the first.
struct KeyTiles {
    u32 first, last;  // positions
    u32 begin, count, number;
};

DEV KeyTiles key_tiles(const AttentionParams& p, const Run& run, u32 number) {
    u32 first = first_seen(p, run.first_position), begin = first / KEYS * KEYS;
    return {first, run.last, begin, (run.last - begin) / KEYS + 1, number};
}

// A run's row of the block table, and where a bad id is noted for the warps that multiply.
struct Blocks {
    const u32* ids;
    u32 first;  // place of the row in the table
    u32 *flag, *bad;

    // The id of a block of the cache; zero for a bad one, which is reported.
    DEV u32 id(const AttentionParams& p, u32 column, bool& valid) const {
        const u32 block = ids[column];
        valid = block < p.blocks;
        if (valid) return block;
        raise(flag, FLAG_BLOCK, block, first + column, p.blocks);
        add_atomic(bad, 1);
        return 0;
    }
};

// Keys or values of one head in the cache, from their column `first` on.
struct Cells {
    const u16* cells;
    u32 stride, head, first;
};

// Copies KEYS of them from position `tile` on, zeros outside of the positions that the run sees. By a warp.
template <u32 WIDTH>
DEV void copy_tile_of(const AttentionParams& p, const Cells& from, const Blocks& blocks, const KeyTiles& tiles, u32 tile,
                      u8* to) {
    const u32 line = here.lane() / 8, unit = here.lane() % 8;
    // A lane reads the id of one block of the cache.
    const u32 column = tile / KV_BLOCK + here.lane();
    bool there = here.lane() < KEYS / KV_BLOCK && column >= tiles.first / KV_BLOCK && column <= tiles.last / KV_BLOCK;
    u32 own = 0;
    if (there) own = blocks.id(p, column, there);
    const u32 all = __ballot_sync(0xffffffffu, there);
#pragma unroll 1
    for (u32 b = 0; b < KEYS / KV_BLOCK; b++) {
        const u64 block = shuffle(own, b);
        const u64 row_first = (block * p.kv_heads + from.head) * KV_BLOCK + line;
        const u16* cells = from.cells + row_first * from.stride + from.first + unit * 8;
#pragma unroll
        for (u32 i = 0; i < KV_BLOCK; i += 4) {
            const u32 row = b * KV_BLOCK + i + line;
            const bool seen = all >> b & 1 && tile + row >= tiles.first && tile + row <= tiles.last;
#pragma unroll
            for (u32 panel = 0; panel < WIDTH / 64; panel++) {
                const bool valid = seen && from.first + panel * 64 + unit * 8 < from.stride;
                cp_async_16(to + panel * PANEL + panel_place(row, unit), cells + i * from.stride + panel * 64, valid);
            }
        }
    }
}

// Copies what is this warp's of a run.
DEV void copy_run(const AttentionParams& p, const Ring& ring, const KeyTiles& tiles, const Blocks& blocks, const u16* keys,
                  const u16* values, u32 head) {
    const u32 own = here.warp() - WARPS, begin = 2 * tiles.number, end = begin + 2 * tiles.count;
    for (u32 item = begin + (own - begin) % COPIERS; item < end; item += COPIERS) {
        mbarrier_wait(&ring.empty[Ring::barrier_of(item)], Ring::parity(item) ^ 1);
        const u32 tile = tiles.begin + (item - begin) / 2 * KEYS;
        if (item % 2 == 0) {
            const Cells from = {keys, p.key_stride, head, 0};
            copy_tile_of<KEY_WIDTH>(p, from, blocks, tiles, tile, ring.at(item));
        } else {
            const Cells from = {values, p.value_stride, head, first_value()};
            copy_tile_of<VALUE_WIDTH>(p, from, blocks, tiles, tile, ring.at(item));
        }
        cp_async_commit();
        cp_async_wait<0>();
        fence_async();
        mbarrier_arrive(&ring.full[Ring::barrier_of(item)]);
    }
}

// The order in which warpgroups begin products. The last one's first arrival is for the first one's first turn, whose
// last wait is for the last arrival.
struct Turns {
    u32 group;

    DEV static void wait(u32 group) { named_barrier_sync(TURN + group, 256); }      // Orders nothing but their times.
    DEV static void arrive(u32 group) { named_barrier_arrive(TURN + group, 256); }  // Orders nothing but their times.
    DEV void open() const {
        if (GROUPS > 1 && group == GROUPS - 1) arrive(0);
    }
    DEV void begin() const {
        if (GROUPS > 1) wait(group);
    }
    DEV void end() const {
        if (GROUPS > 1) arrive((group + 1) % GROUPS);
    }
    DEV void close() const {
        if (GROUPS > 1 && group == 0) wait(0);
    }
};

// A thread's two rows.
struct Rows {
    u32 row[2], seen_first[2], seen_last[2];
    float to_log2[2], max[2], sum[2];
};

DEV Rows rows_of(const AttentionParams& p, const Run& run, const float* units, const float* sinks) {
    Rows rows;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 row = here.warp() * 16 + here.lane() / 4 + 8 * h;
        bool alive = run.live(row);
        u32 position = alive ? run.position(row) : run.first_position;
        u32 last = alive ? run.last_of(row) : run.first_position;
        rows.row[h] = row;
        rows.seen_first[h] = first_seen(p, position);
        rows.seen_last[h] = last;
        rows.to_log2[h] = units[row] * LOG2_E;
        // A sink is a logit without a value: it starts the maximum and the sum.
        bool sink = sinks && alive;
        rows.max[h] = sink ? sinks[run.tile.head_first + row % run.tile.heads] * LOG2_E : minus_infinity();
        rows.sum[h] = sink && here.lane() % 4 == 0 ? ONE : 0.0f;
    }
    return rows;
}

// Exponentials of a tile's scores in place. MASKED: some row may not see some of its keys.
template <bool MASKED>
DEV void make_exponentials(Rows& rows, u32 tile, float (&scores)[KEYS / 2], float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (MASKED) hide(rows.seen_first[h], rows.seen_last[h], tile, here.lane() % 4 * 2, h, scores);
        factor[h] = weigh(rows.to_log2[h], h, rows.max[h], rows.sum[h], scores);
    }
}

// The matrix `bytes` after one.
DEV u64 matrix_after(u64 matrix, u32 bytes) { return matrix + (bytes >> 4); }

// Begins the product of queries and keys, and that of exponentials and values.
DEV void multiply_keys(float (&scores)[KEYS / 2], const u8* queries, const u8* keys) {
    const u64 left = wgmma_matrix(queries, 0, 1024, SWIZZLE_128), right = wgmma_matrix(keys, 0, 1024, SWIZZLE_128);
#pragma unroll
    for (u32 k = 0; k < KEY_WIDTH / 16; k++) {
        const u32 at = k % 4 * 32;
        wgmma_f16(scores, matrix_after(left, k / 4 * QUERY_PANEL + at), matrix_after(right, k / 4 * PANEL + at), k > 0);
    }
    wgmma_commit();
}
DEV void multiply_values(float (&acc)[VALUE_WIDTH / 2], const u32 (&weights)[KEYS / 16][4], const u8* values) {
    const u64 right = wgmma_matrix(values, PANEL, 1024, SWIZZLE_128);
#pragma unroll
    for (u32 k = 0; k < KEYS / 16; k++) wgmma_f16_by_columns(acc, weights[k], matrix_after(right, k * 16 * 128), true);
    wgmma_commit();
}

// Exponentials as operands of products.
DEV void pack_weights(const float (&scores)[KEYS / 2], u32 (&weights)[KEYS / 16][4]) {
#pragma unroll
    for (u32 i = 0; i < KEYS / 4; i++) weights[i / 4][i % 4] = pack_half(scores[2 * i], scores[2 * i + 1]);
}

// A tile of keys and the values of the tile before. `sums`: a place for each thread, which nobody reads.
template <bool MASKED>
DEV void step(const Ring& ring, const Turns& turns, u32 number, u32 tile, const u8* queries, float* sums, Rows& rows,
              float (&scores)[KEYS / 2], u32 (&weights)[KEYS / 16][4], float (&acc)[VALUE_WIDTH / 2]) {
    // Both waits first: ptxas keeps products under way apart only where nothing branches.
    const u8* values = ring.take(2 * number - 1);
    const u8* keys = ring.take(2 * number);
    turns.begin();
    pin_registers(acc);
    pin_registers(weights);
    wgmma_fence();
    multiply_keys(scores, queries, keys);
    multiply_values(acc, weights, values);
    turns.end();
    wgmma_wait<1>();
    pin_registers(scores);
    ring.release(2 * number);
    float factor[2];
    make_exponentials<MASKED>(rows, tile, scores, factor);
    compute_before_wait(rows.sum[0] + rows.sum[1], &sums[here.thread_x()]);
    wgmma_wait<0>();
    pin_registers(acc);
    pin_registers(scores);
    ring.release(2 * number - 1);
    // Few tiles have a row's largest score.
    if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (u32 i = 0; i < VALUE_WIDTH / 2; i++) acc[i] *= factor[i / 2 % 2];
    }
    pack_weights(scores, weights);
}

// What a warp that multiplies does for a run.
DEV void attend_run(const AttentionParams& p, const Run& run, const Ring& ring, const Turns& turns, const KeyTiles& tiles,
                    const float* q, const float* sinks, u8* queries, float* units, float* sums, const u32* bad,
                    Result* out) {
    auto place = [](u32 row, u32 d) {
        return (d / 64 * QUERY_PANEL + panel_place(row % 64, d % 64 / 8)) / 2 + d % 8;
    };
    store_queries(p, run, q, place, reinterpret_cast<u16*>(queries), nullptr, units);
    fence_async();
    named_barrier_sync(WRITTEN + turns.group, 128);

    Rows rows = rows_of(p, run, units, sinks);
    float scores[KEYS / 2], factor[2], acc[VALUE_WIDTH / 2] = {};
    u32 weights[KEYS / 16][4];
    const u8* keys = ring.take(2 * tiles.number);
    turns.begin();
    wgmma_fence();
    multiply_keys(scores, queries, keys);
    turns.end();
    wgmma_wait<0>();
    pin_registers(scores);
    ring.release(2 * tiles.number);
    make_exponentials<true>(rows, tiles.begin, scores, factor);
    pack_weights(scores, weights);

    // All rows see what the last one sees at its beginning and the first one at its end.
    const u32 all_first = first_seen(p, run.last_position), all_last = run.all_last;
    for (u32 i = 1; i < tiles.count; i++) {
        const u32 number = tiles.number + i, tile = tiles.begin + i * KEYS;
        if (tile >= all_first && tile + (KEYS - 1) <= all_last) {
            step<false>(ring, turns, number, tile, queries, sums, rows, scores, weights, acc);
        } else {
            step<true>(ring, turns, number, tile, queries, sums, rows, scores, weights, acc);
        }
    }

    const u32 item = 2 * (tiles.number + tiles.count) - 1;
    const u8* values = ring.take(item);
    pin_registers(acc);
    pin_registers(weights);
    wgmma_fence();
    multiply_values(acc, weights, values);
    wgmma_wait<0>();
    pin_registers(acc);
    ring.release(item);
    // All ids have been read: all items have come.
    if (!*bad) write_rows(p, run, rows.row, rows.sum, acc, out);
    else if (here.block_y() == 0) run.write_zeros(p, out, 32 * WARPS);
    // The next run's `units` come after these reads.
    __syncwarp();
}

// Calls `work` with each run of the tile and its tiles of keys.
template <class Work>
DEV void for_runs(const AttentionParams& p, const Tile& tile, const Neighbours& near, bool with_ends, Work work) {
    u32 number = 0;
    for (u32 begin = LONG_RUN, end; begin < LONG_RUN + tile.present; begin = end) {
        end = near.run_end(begin, LONG_RUN + tile.present);
        if (!near.serves(p, begin, end)) continue;
        const Run run = near.run(p, tile, begin, end, with_ends);
        const KeyTiles tiles = key_tiles(p, run, number);
        number += tiles.count;
        work(run, tiles);
    }
}

KERNEL_BOUNDED(attention_wgmma, 32 * (WARPS + 4), BLOCKS)(
    IN(float, q, 0), IN(u16, keys, 1), IN(u16, values, 2), IN(u32, slots, 3), IN(u32, positions, 4), IN(u32, table, 5),
    IN(float, sinks, 6), OUT(Result, out, 7), INOUT(u32, flag, 8), IN(u32, ends, 9), PARAMS(AttentionParams, p, 10)
) {
    DYNAMIC_SHARED(u8, shared);
    SHARED(u64, full, 2 * STAGES);
    SHARED(u64, empty, 2 * STAGES);
    SHARED(u32, near_slots, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_positions, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, near_lasts, MAX_TILE_TOKENS + 2 * LONG_RUN);
    SHARED(u32, bad, MAX_TILE_TOKENS + LONG_RUN);  // bad ids that the run from a token on has met
    SHARED(float, row_units, ROWS);
    SHARED(float, sums, 32 * WARPS);
    dependency_launch();
    dependency_wait();

    if (here.thread_x() < 2 * STAGES) {
        mbarrier_init(&full[here.thread_x()], 32);
        mbarrier_init(&empty[here.thread_x()], WARPS);
    }
    const Tile tile = tile_of(p);
    const Neighbours near = {near_slots, near_positions, near_lasts};
    for (u32 i = here.thread_x(); i < MAX_TILE_TOKENS + LONG_RUN; i += THREADS) bad[i] = 0;
    near.load(p, tile, slots, positions, ends);

    // The swizzle needs this alignment. Queries lie behind the stages.
    u8* const memory = shared + (-shared_address(shared) & 1023);
    const Ring ring = {memory, full, empty};
    if (here.warp() >= WARPS) {
        registers_give<COPY_REGISTERS>();
        for_runs(p, tile, near, ends != nullptr, [&](const Run& run, const KeyTiles& tiles) {
            const u32 slot = near.slots[run.begin];
            const Blocks blocks = {table + u64(slot) * p.table_cols, slot * p.table_cols, flag, &bad[run.begin]};
            copy_run(p, ring, tiles, blocks, keys, values, tile.kv_head);
        });
    } else {
        registers_take<REGISTERS>();
        const Turns turns = {here.warp() / 4};
        u8* const queries = memory + STAGES * STAGE + turns.group * QUERIES;
        turns.open();
        for_runs(p, tile, near, ends != nullptr, [&](const Run& run, const KeyTiles& tiles) {
            attend_run(p, run, ring, turns, tiles, q, sinks, queries, row_units, sums, &bad[run.begin], out);
        });
        turns.close();
    }
}
#endif
