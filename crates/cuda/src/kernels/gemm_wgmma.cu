// Matrix products by `wgmma` (compute capability 9.0): Y = X · Wᵀ for many rows of X, dense or grouped by expert.
//
// A warpgroup has 64 rows of weights for each fragment, the operand that may be in registers; rows of X, in shared memory, are
// the other. Four lanes share two rows of weights. Of each 16 columns a lane has four neighbours: it makes bfloat16 of their
// codes in the operand's places, because X has the even ones of 16 columns before the odd ones. The weights of 64 columns are
// unpacked while the products of the 64 before run. Sums are f32, in the order of columns, whatever else is in the tile.
//
// A block takes items one after another: a tile of rows of X with the outputs of its warps. Two kinds of copies run ahead of the
// products, past the ends of items. Each warp that multiplies copies its own rows of weights as they are stored, a chunk of
// columns at a time. Four more warps start copies of rows of X, 64 columns in a stage, which the device goes on with by itself
// and which bring the swizzle of `wgmma`. (Copies by threads, 16 bytes each, take more: gate and up of 8,192 tokens 988 µs where
// these take 839, on an H200. Rows of experts, which lie apart, are a copy each: four warps start one every 13 clocks, one warp
// every 51, on an H100.)
//
// Defines: those of `gemm.cuh` (TOKENS 64 or 128, at least the rows of a tile of experts), WARPS (that multiply, a multiple of
// four), COPIERS (warps that start copies of X), STAGES (of X), CHUNKS (of weights, in shared memory), PLANE_BYTES (bytes of the format's planes in a block, in their order),
// STAGED_ROW (bytes of a staged row), EPILOGUE and ACTIVATION (their kinds; of gate and up STORE, after the activation).
#define STAGED_ROWS
#include "gemm.cuh"
#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(GPU_SIM)
#include "staged.cuh"

typedef Staged<FORMAT> Weights;

constexpr u32 THREADS = 32 * (WARPS + COPIERS);
// Outputs of a warp for each fragment, and of a block.
constexpr u32 WARP_OUTPUTS = GATED ? 8 : 16, OUTPUTS = WARP_OUTPUTS * WARPS * FRAGMENTS;
// Columns of X in a stage, which are 128 bytes, and bytes of a stage.
constexpr u32 STEP = 64, X_ROW = 2 * STEP, X_STAGE = TOKENS * X_ROW;
constexpr u32 CHUNK_STEPS = Weights::COLUMNS / STEP;
// Bytes of a chunk of weights and of its scales, of one warp.
constexpr u32 CHUNK = 16 * FRAGMENTS * STAGED_ROW, SCALES = FRAGMENTS * sizeof(Weights::Scales);
// Registers of a thread, multiples of eight: at first, of one that copies, and of one that multiplies, which takes what the
// others give.
constexpr u32 FIRST_REGISTERS = 65536 / THREADS / 8 * 8, COPY_REGISTERS = 48;
constexpr u32 REGISTERS = (FIRST_REGISTERS * (WARPS + COPIERS) - COPY_REGISTERS * COPIERS) / WARPS / 8 * 8;
// Tiles whose rows of Y are known: those of all stages, and one that is being written.
constexpr u32 KNOWN_TILES = STAGES + 1;


// A place in a ring, and whether the number of rounds before is odd: the parity of a barrier's phase.
template <u32 PLACES>
struct Ring {
    u32 place = 0, parity = 0;

    // One or some places further on, at most as many as there are.
    DEV void advance(u32 by = 1) {
        place += by;
        if (place >= PLACES) {
            place -= PLACES;
            parity ^= 1;
        }
    }
};

// Stages of X, and who may touch them: a stage is full when all copies to it have come, and empty when all warps have multiplied
// with it.
struct Stages {
    u8* memory;
    u64 *full, *empty;

    // By a whole warp, whose products have ended.
    DEV void release(u32 place) const {
        if (here.lane() == 0) mbarrier_arrive(&empty[place]);
    }
};

// What a block multiplies at a time.
struct Item {
    // Rows of X, by position among those of all tiles, and its matrix.
    u32 expert, first, count;
    u32 output;
};

// The items of all blocks: the outputs of one tile after another, so that blocks at work at the same time read the same X.
struct Items {
    const u32* tiles;
    // Tiles of the list, blocks of outputs, and items.
    u32 listed, row_blocks, end, y_rows;

    DEV Items(const u32* tiles, const u32* tile_count, const GemmParams& p) : tiles(tiles), y_rows(p.y_rows) {
        row_blocks = (p.outputs + OUTPUTS - 1) / OUTPUTS;
        u32 count = (p.y_rows + TOKENS - 1) / TOKENS;
        listed = 0;
        if (tiles != nullptr) {
            count = listed = *tile_count;
            // A list for a ring of experts ends with an empty tile, past all rows.
            if (count > 0 && tiles[3 * u64(count) - 1] == 0) count--;
        }
        end = count * row_blocks;
    }
    DEV Item at(u32 index) const {
        const u32 tile = index / row_blocks, output = index % row_blocks * OUTPUTS;
        if (index >= end) return {0, 0, 0, 0};
        if (tiles == nullptr) return {0, tile * TOKENS, min(y_rows - tile * TOKENS, u32(TOKENS)), output};
        const u32* own = tiles + 3 * u64(tile);
        return {own[0], own[1], own[2], output};
    }
    // Positions of pairs that belong to tiles; the list of a ring ends past all.
    DEV u32 rows() const {
        if (listed == 0) return 0;
        const u32* last = tiles + 3 * (u64(listed) - 1);
        return min(last[1] + last[2], y_rows);
    }
};

// The steps of each item of a block.
struct Steps {
    u32 first_chunk, end_chunk;

    DEV u32 first() const { return first_chunk * CHUNK_STEPS; }
    DEV u32 end() const { return end_chunk * CHUNK_STEPS; }
};

// The most warps of those that copy of which each can have stages to itself.
DEV constexpr u32 owners() {
    u32 most = STAGES < COPIERS ? STAGES : COPIERS;
    while (STAGES % most != 0) most--;
    return most;
}

// Whether a stage is copied by one warp, and not by all.
DEV bool has_owner(const GemmParams& p) { return p.x_box > 1 || TOKENS <= 32; }

// Copies X, `x_box` neighbouring rows at a time. A stage of few copies is one warp's, so that what belongs to a stage is done once,
// and always the same warp's: another could not tell a stage that has been emptied from one that was filled two rounds ago.
// Many copies are shared by all warps, since one starts a copy every 51 clocks. A copy's coordinates must be known to be those of
// one lane: of others the compiler makes a loop over lanes, 28 instructions a copy.
DEV void copy_columns(const Stages& stages, const Items& items, const Steps& steps, const TensorMap& x, u32* y_of, const u32* ids,
                      const u32* pairs, u32* flag, const GemmParams& p) {
    constexpr u32 ROUNDS = TOKENS / 32, AT_ONCE = 4, OWNERS = owners();
    const u32 count = steps.end() - steps.first(), warp = warp_largest(here.warp()) - WARPS;
    const bool is_owner = has_owner(p);
    if (is_owner && warp >= OWNERS) return;
    // Steps of the items before, and items.
    u32 before = 0, number = 0;
    for (u32 index = here.block_x(); index < items.end; index += here.grid_x(), number++, before += count) {
        const Item item = items.at(index);
        const u32 all = warp_largest((item.count + p.x_box - 1) / p.x_box);
        // The warp's first step and copy of the item, and from each to the next.
        u32 step = 0, first = warp, by = 1, stride = COPIERS;
        if (is_owner) step = (warp + OWNERS - before % OWNERS) % OWNERS, first = 0, by = OWNERS, stride = 1;
        if (step >= count) continue;
        u32 own[ROUNDS];
#pragma unroll
        for (u32 r = 0; r < ROUNDS; r++) {
            const u32 i = first + (32 * r + here.lane()) * stride;
            own[r] = p.x_box > 1 ? item.first + i * p.x_box : line_of(i, item.first, item.count, ids, pairs, flag, p).x;
        }
        const u32 copies = all > first ? (all - first + stride - 1) / stride : 0, apart = stride * p.x_box * X_ROW;
        for (; step < count; step += by) {
            const u32 stage = (before + step) % STAGES;
            mbarrier_wait(&stages.empty[stage], (before + step) / STAGES & 1 ^ 1);
            u8* to = stages.memory + stage * X_STAGE + first * p.x_box * X_ROW;
            u64* full = &stages.full[stage];
            // No warp still writes the tile that was there: it would not have released its last stages.
            if (step == 0 && first == 0) {
                for (u32 i = here.lane(); i < TOKENS; i += 32)
                    y_of[number % KNOWN_TILES * TOKENS + i] = line_of(i, item.first, item.count, ids, pairs, flag, p).y;
            }
            warp_barrier();
            if (is_elected()) mbarrier_arrive_expect_tx(full, copies * p.x_box * X_ROW);
#pragma unroll
            for (u32 r = 0; r < ROUNDS; r++) {
#pragma unroll 1
                for (u32 i = 0; i < 32 && 32 * r + i < copies; i += AT_ONCE) {
                    u32 row[AT_ONCE];
#pragma unroll
                    for (u32 j = 0; j < AT_ONCE; j++) row[j] = shuffle(own[r], i + j);
                    if (is_elected()) {
#pragma unroll
                        for (u32 j = 0; j < AT_ONCE; j++)
                            if (32 * r + i + j < copies) copy_tile(to + j * apart, x, (steps.first() + step) * STEP, row[j], full);
                    }
                    to += AT_ONCE * apart;
                }
            }
        }
    }
}

// Copies a warp's rows of weights, CHUNKS − 1 chunks ahead.
struct WeightCopier {
    const u8 *weight, *up;
    u8* to;
    const Items& items;
    const Steps& steps;
    const GemmParams& p;
    // What is copied next, and the item after that, which is loaded early.
    u32 index, chunk;
    Ring<CHUNKS> place;
    Item item, after;
    LaneUnits<PLANE_BYTES> units;

    DEV WeightCopier(const u8* weight, const u8* up, u8* to, const Items& items, const Steps& steps, const GemmParams& p)
        : weight(weight), up(up), to(to), items(items), steps(steps), p(p) {
        index = here.block_x();
        chunk = steps.first_chunk;
        after = items.at(index);
        next_item();
    }
    DEV void next_item() {
        item = after;
        after = items.at(index + here.grid_x());
        const u64 first = item.expert * p.matrix_bytes + (item.output + here.warp() * WARP_OUTPUTS) * p.row_bytes;
        units.find(weight + first, up + first, p.row_bytes, p.blocks);
    }
    // Starts the next chunk's copies, which make one group, empty at the end.
    DEV void copy() {
        if (index < items.end) {
#pragma unroll
            for (u32 m = 0; m < FRAGMENTS; m++) {
                const u32 before = m * WARPS * WARP_OUTPUTS, output = item.output + here.warp() * WARP_OUTPUTS + before;
                const u32 rows = p.outputs - min(output, p.outputs);
                units.copy(chunk, before * p.row_bytes, rows, p.row_bytes, p.blocks, to + place.place * CHUNK + m * 16 * STAGED_ROW);
            }
            if (++chunk == steps.end_chunk) {
                chunk = steps.first_chunk;
                index += here.grid_x();
                next_item();
            }
        }
        place.advance();
        cp_async_commit();
    }
};

template <int N>
struct Sums {
    float of[FRAGMENTS][N / 2];
};

// Multiplies an item with N rows of X, from the next chunk and stage on.
template <int N>
DEV void multiply(const Steps& steps, WeightCopier& weights, Ring<CHUNKS>& place, const Stages& stages, Ring<STAGES>& stage,
                  Weights::Scales* scales, Sums<N>& sums) {
    u32 a[2][4][4], last = 0;
    const u64 x = wgmma_matrix(stages.memory, 0, 1024, SWIZZLE_128);
    for (u32 chunk = steps.first_chunk; chunk < steps.end_chunk; chunk++, place.advance()) {
        // This chunk is there for all lanes, and all have used what the next copies overwrite.
        cp_async_wait<CHUNKS - 2>();
        warp_barrier();
        weights.copy();
        const u8* rows = weights.to + place.place * CHUNK;
#pragma unroll
        for (u32 m = 0; m < FRAGMENTS; m++) Weights::unpack_scales(rows + m * 16 * STAGED_ROW, chunk, scales[m]);
        warp_barrier();
#pragma unroll
        for (u32 part = 0; part < CHUNK_STEPS; part++, stage.advance()) {
            const u64 own_x = wgmma_columns(x, stage.place * (X_STAGE / 2));
#pragma unroll
            for (u32 m = 0; m < FRAGMENTS; m++) {
                u32(&own)[4][4] = a[(part * FRAGMENTS + m) % 2];
#pragma unroll
                for (u32 i = 0; i < 4; i++) Weights::unpack(rows + m * 16 * STAGED_ROW, chunk, 4 * part + i, scales[m], own[i]);
                if (m == 0) mbarrier_wait(&stages.full[stage.place], stage.parity);
                wgmma_fence();
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    wgmma_bf16(sums.of[m], own[i], wgmma_columns(own_x, 16 * i), true);
                }
                wgmma_commit();
                // Those before have ended: their weights may be overwritten, and their stage.
                wgmma_wait<1>();
                if (m == 0 && (part > 0 || chunk > steps.first_chunk)) stages.release(last);
            }
            last = stage.place;
        }
    }
    wgmma_wait<0>();
    stages.release(last);
}

// Writes an item's sums.
template <int N>
DEV void write(const Item& item, const Sums<N>& sums, const u32* y_of, const float* bias, const float* up_bias, Result* y,
               const GemmParams& p) {
    constexpr int HALVES = GATED ? 1 : 2;
    u32 output[FRAGMENTS][HALVES];
    float add[FRAGMENTS][HALVES], up_add[FRAGMENTS];
#pragma unroll
    for (u32 m = 0; m < FRAGMENTS; m++) {
#pragma unroll
        for (u32 h = 0; h < HALVES; h++) {
            output[m][h] = item.output + (m * WARPS + here.warp()) * WARP_OUTPUTS + here.lane() / 4 + 8 * h;
            const u64 at = item.expert * p.bias_stride + min(output[m][h], p.outputs - 1);
            add[m][h] = bias == nullptr ? 0.0f : bias[at];
            up_add[m] = up_bias == nullptr ? 0.0f : up_bias[at];
        }
    }
    auto rows = [&](auto store) {
#pragma unroll
        for (u32 i = 0; i < N / 4; i++) {
            const u32 token = i / 2 * 8 + 2 * (here.lane() % 4) + i % 2;
            if (token >= item.count) continue;
            const u32 to = y_of[token];
            Result* row = y + (to & ~NO_ROW) * p.y_stride;
#pragma unroll
            for (u32 m = 0; m < FRAGMENTS; m++) {
#pragma unroll
                for (u32 h = 0; h < HALVES; h++) {
                    // Sum 2h + i % 2 of eight rows of X; of two weights, h = 1 is the second's.
                    const float* own = sums.of[m] + i / 2 * 4 + i % 2;
                    if (output[m][h] >= p.outputs) continue;
                    store(row + place_of(EPILOGUE, output[m][h]), to & NO_ROW, fmaf(own[2 * h], Weights::SUM_UNIT, add[m][h]),
                          fmaf(own[2], Weights::SUM_UNIT, up_add[m]));
                }
            }
        }
    };
    // Constants: with a choice for each sum, there are 800 KB of code, of which a warp runs through half, and which take 18 s to
    // compile instead of 2.
    Epilogue how = p.epilogue;
    how.kind = EPILOGUE;
    how.activation.kind = ACTIVATION;
    rows([&](Result* at, bool is_missing, float product, float up) {
        if (GATED) product = activate(how.activation, product, up);
        store_result(how, at, is_missing ? 0.0f : product);
    });
}

// Zeroes what pairs without an expert have, which follow those of all tiles: with experts in host memory, these are most pairs
// of a prompt.
DEV void zero_rest(const Items& items, const u32* pairs, Result* y, const GemmParams& p) {
    const u32 begin = items.rows();
    const u64 places = u64(p.y_rows - begin) * p.outputs, step = u64(here.grid_x()) * 32 * WARPS;
    for (u64 i = u64(here.block_x()) * 32 * WARPS + here.thread_x(); i < places; i += step) {
        const u32 place = begin + i / p.outputs;
        y[(p.y_by_expert ? place : pairs[place]) * p.y_stride + i % p.outputs] = 0;
    }
}

KERNEL_BOUNDED(gemm_wgmma, THREADS, 1)
(IN(u8, weight, 0), IN(u8, up, 1), TENSOR_MAP(x, 2), IN(u32, ids, 3), IN(u32, pairs, 4), IN(u32, tiles, 5),
 IN(u32, tile_count, 6), IN(float, bias, 7), IN(float, up_bias, 8), INOUT(Result, y, 9), INOUT(u32, flag, 10),
 PARAMS(GemmParams, p, 11)) {
    DYNAMIC_SHARED(u8, shared);
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    SHARED(u32, y_of, KNOWN_TILES * TOKENS);
    // The swizzle needs this alignment.
    u8* memory = shared + (-shared_address(shared) & 1023);
    const Stages stages = {memory, full, empty};
    u8* chunks = memory + STAGES * X_STAGE;

    if (tiles != nullptr) dependency_wait();
    const Items items(tiles, tile_count, p);
    const u32 all = (p.blocks + Weights::CHUNK_BLOCKS - 1) / Weights::CHUNK_BLOCKS;
    Steps steps = {0, all};
    if (SHARED_COLUMNS) {
        // Blocks along y share the columns; Y has one place for each share.
        const u32 share = here.block_y(), shares = here.grid_y();
        steps = {all * share / shares, all * (share + 1) / shares};
        y += u64(share) * p.y_rows * p.y_stride;
    }
    if (here.thread_x() < STAGES) {
        mbarrier_init(&full[here.thread_x()], has_owner(p) ? 1 : COPIERS);
        mbarrier_init(&empty[here.thread_x()], WARPS);
    }
    // Rows of a tile that are missing are multiplied too; nothing of them is written.
    for (u32 i = here.thread_x(); i < STAGES * X_STAGE / 16; i += THREADS) reinterpret_cast<uint4*>(memory)[i] = uint4{0, 0, 0, 0};
    fence_async();
    barrier();

    if (here.warp() >= WARPS) {
        registers_give<COPY_REGISTERS>();
        if (tiles == nullptr) dependency_wait();
        copy_columns(stages, items, steps, x, y_of, ids, pairs, flag, p);
        return;
    }
    registers_take<REGISTERS>();
    WeightCopier weights(weight, up, chunks + here.warp() * CHUNKS * CHUNK, items, steps, p);
    Weights::Scales* scales = reinterpret_cast<Weights::Scales*>(chunks + WARPS * CHUNKS * CHUNK + here.warp() * SCALES);
#pragma unroll
    for (u32 i = 0; i < CHUNKS - 1; i++) weights.copy();
    dependency_launch();
    if (tiles == nullptr) dependency_wait();

    Ring<CHUNKS> place;
    Ring<STAGES> stage;
    u32 tile = 0;
    Item item = items.at(here.block_x());
    for (u32 index = here.block_x(); index < items.end; index += here.grid_x(), tile++) {
        const Item after = items.at(index + here.grid_x());
        auto take = [&](auto sums) {
            multiply(steps, weights, place, stages, stage, scales, sums);
            write(item, sums, y_of + tile % KNOWN_TILES * TOKENS, bias, up_bias, y, p);
        };
        if (item.count > TOKENS / 2) {
            take(Sums<TOKENS>{});
        } else {
            take(Sums<TOKENS / 2>{});
        }
        item = after;
    }
    if (tiles != nullptr) zero_rest(items, pairs, y, p);
}
#endif
