// Matrix products by `wgmma` (compute capability 9.0): Y = X · Wᵀ for many rows of X, dense or grouped by expert.
//
// A warpgroup has 64 rows of weights for each fragment, the operand that may be in registers; rows of X, in shared memory, are
// the other. Four lanes share two rows of weights. Of each 16 columns a lane has four neighbours: it loads their codes and
// makes bfloat16 of them in the operand's places, because X has the even ones of 16 columns before the odd ones. The next
// weights are unpacked while a product runs. Sums are f32, in the order of steps and pieces, whatever else is in the tile.
//
// A step is 128 columns; rows of X are two halves of 128 bytes each with the swizzle of `wgmma`, `STAGES` steps in flight. Four
// more warps copy them and make copies known to products (`fence_async`), because the fence waits for all loads of the thread,
// and warps that multiply always have weights under way. (Without those warps: half as fast on an H200.)
//
// Defines: those of `gemm.cuh` (TOKENS a multiple of 32, at least the rows of a tile of experts), WARPS (that multiply, a
// multiple of four), BLOCKS (of a multiprocessor), STAGES.
#include "gemm.cuh"
#include "hopper.cuh"
#include "quarter_row.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(GPU_SIM)

// A lane's part of a row of weights in a step, and some of the scales, which the four lanes exchange by shuffles.
template <class F, bool IS_FLOAT = F::IS_FLOAT>
struct Part;

template <class F>
struct Part<F, false> : QuarterRow<F> {
    typedef QuarterRow<F> Quarter;
    // Scales that a lane has, of 128 columns a quarter.
    static constexpr int SCALES = 32 / F::SCALED;
    static_assert(SCALES == 1 || F::PIECES % SCALES == 0, "a lane's scales are of one span");
    typedef Scale Scales[SCALES];

    typename F::Raw own;

    // Which lane has the scale of piece i, and the first piece whose scale lane t has.
    static DEV u32 lender(int i) { return SCALES == 1 ? Quarter::at(i) / 2 : i / 2; }
    static DEV u32 lent(u32 t) {
        u32 piece = 0;
#pragma unroll
        for (int i = PIECES - 1; i >= 0; i--) piece = lender(i) == t ? i : piece;
        return piece;
    }

    // Loads what has piece i, if it is the last of its span.
    DEV void load_after(int i, Row row, u32 step, u32 t) {
        if (i % F::PIECES == F::PIECES - 1) this->load_span(i / F::PIECES, row, step, t);
    }
    DEV void load_scales(Row row, u32 step, u32 t) {
        own = Quarter::load(row, step * Quarter::SPANS + lent(t) / F::PIECES, t);
    }
    DEV void scales(u32 t, Scales& scales) const {
#pragma unroll
        for (int d = 0; d < SCALES; d++) scales[d] = scale_of<F>(own, lent(t) % F::PIECES + d);
    }
    static DEV Scale scale(int i, const Scales& scales) {
        const Scale& one = scales[SCALES == 1 ? 0 : i % 2];
        return {__shfl_sync(0xffffffffu, one.scale, lender(i), 4), __shfl_sync(0xffffffffu, one.offset, lender(i), 4)};
    }
    // The even and the odd ones of the lane's four columns.
    DEV void unpack(int i, Scale scale, u32& even, u32& odd) const {
        u32 codes = this->codes(i);
        even = pair_of<F>(codes, scale, 0);
        odd = pair_of<F>(codes, scale, 1);
    }
};

// bfloat16 as it is.
template <class F>
struct Part<F, true> {
    typedef u32 Scales;
    uint2 raw[PIECES];

    static DEV u32 at(int i) { return i; }
    DEV void load_after(int i, Row row, u32 step, u32 t) {
        u32 column = step * STEP + 16 * i + 4 * t;
        // Rows are padded with zeros.
        raw[i] = column < row.blocks ? load_64(row.base + 2 * column) : uint2{0, 0};
    }
    DEV void load_scales(Row, u32, u32) {}
    DEV void scales(u32, Scales&) const {}
    static DEV Scale scale(int, Scales) { return {1.0f, 0.0f}; }
    DEV void unpack(int i, Scale, u32& even, u32& odd) const {
        even = __byte_perm(raw[i].x, raw[i].y, 0x5410);
        odd = __byte_perm(raw[i].x, raw[i].y, 0x7632);
    }
};

typedef Part<FORMAT> Weights;
// Warps that do not multiply, those of them that copy, and all threads. One that copies knows that a stage is empty for it
// and not for a step before, since the step that it copied last is not more than STAGES ago.
constexpr u32 COPIERS = 4, COPYING = STAGES < COPIERS ? STAGES : COPIERS, THREADS = 32 * (WARPS + COPIERS);
constexpr u32 OUTPUTS = (GATED ? 8 : 16) * WARPS * FRAGMENTS;
// Bytes of a row of X in a step; of half a stage, which has 128 of each row; of a stage.
constexpr u32 X_ROW = 2 * STEP, HALF = TOKENS * 128, STAGE = 2 * HALF;
// Registers of a thread, multiples of eight: at first, of one that copies, and of one that multiplies, which takes what the
// others give.
constexpr u32 FIRST_REGISTERS = 65536 / BLOCKS / THREADS / 8 * 8, COPY_REGISTERS = WARPS > 8 ? 32 : 40;
constexpr u32 REGISTERS = (FIRST_REGISTERS * (WARPS + COPIERS) - COPY_REGISTERS * COPIERS) / WARPS / 8 * 8;
// Sums of a row of X where they meet before they are written, and from one to the next: two rows further are eight banks.
constexpr u32 SUMS = 16 * WARPS * FRAGMENTS, SUMS_ROW = SUMS + 4;
static_assert(TOKENS * SUMS_ROW * 4 <= STAGES * STAGE, "sums take the place of the stages");
// Barriers of all threads, and of those that multiply. Warps that copy and warps that multiply reach EVERYBODY by different
// instructions. Synccheck reports this ("Divergent thread(s) in block"), but PTX requires only the threads of a warp to reach
// `bar.sync` together, and each warp here does.
enum { EVERYBODY = 1, MULTIPLIERS = 2 };

// Steps that are in shared memory, and who may touch them: a stage is full when a warp has copied it, and empty when all
// warps have multiplied with it.
struct Stages {
    u8* memory;
    u64 *full, *empty;

    static DEV u32 parity(u32 step) { return step / STAGES & 1; }
    DEV const u8* take(u32 step) const {
        mbarrier_wait(&full[step % STAGES], parity(step));
        return memory + step % STAGES * STAGE;
    }
    // By a whole warp, whose products have ended.
    DEV void release(u32 step) const {
        if (here.lane() == 0) mbarrier_arrive(&empty[step % STAGES]);
    }
};

// Copies the steps of one warp of COPYING, from the first step on. `x_of`: bytes before each of so many rows of X, a multiple
// of eight.
DEV void copy(const Stages& stages, u32 first_step, u32 steps, const u8* x, u32 x_bytes, const u64* x_of, u32 rows) {
    const u32 line = here.lane() / 8, unit = here.lane() % 8;
    const u32 first = here.warp() - WARPS;
    for (u32 step = first < COPYING ? first : steps; step < steps; step += COPYING) {
        mbarrier_wait(&stages.empty[step % STAGES], stages.parity(step) ^ 1);
        u8* stage = stages.memory + step % STAGES * STAGE;
#pragma unroll 4
        for (u32 row = line; row < rows; row += 4) {
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                u64 at = u64(first_step + step) * X_ROW + half * 128 + 16 * unit;
                bool valid = at < x_bytes;
                u8* to = stage + half * HALF + row * 128 + (unit ^ row % 8) * 16;
                cp_async_16(to, x + x_of[row] + (valid ? at : 0), valid);
            }
        }
        cp_async_commit();
        cp_async_wait<0>();
        fence_async();
        mbarrier_arrive(&stages.full[step % STAGES]);
    }
}

// A block's tile, and its share of the steps.
struct Block {
    u32 expert, output, count, first_step, steps;
};

// Multiplies with N rows of X and leaves the sums of each in `sums_of`: of two weights, the second's after the first's.
template <int N>
DEV void multiply(const Block& block, const LaneRows& row, Weights (&w)[FRAGMENTS][2], const Stages& stages,
                  float* sums_of) {
    float sums[FRAGMENTS][N / 2] = {};
    const u32 t = here.lane() % 4;
    u32 a[2][4];
    for (u32 step = 0; step < block.steps; step++) {
        // The last step is loaded again at the end: a branch around the loads would make later code wait for them.
        const u32 next_step = block.first_step + min(step + 1, block.steps - 1);
        const u8* stage = stages.take(step);
#pragma unroll
        for (int m = 0; m < FRAGMENTS; m++) {
            // Scales first: then the next ones can be loaded in their place.
            Weights::Scales scales[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                w[m][h].scales(t, scales[h]);
                w[m][h].load_scales(row[m][h], next_step, t);
            }
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                u32(&own)[4] = a[i % 2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    w[m][h].unpack(i, Weights::scale(i, scales[h]), own[h], own[2 + h]);
                    w[m][h].load_after(i, row[m][h], next_step, t);
                }
                const u32 at = Weights::at(i);
                wgmma_fence();
                wgmma_bf16(sums[m], own, wgmma_matrix(stage + at / 4 * HALF + at % 4 * 32, 0, 1024, SWIZZLE_128), true);
                wgmma_commit();
                // The one before has ended: its weights may be overwritten.
                wgmma_wait<1>();
            }
        }
        // Not later: ptxas keeps products under way apart only where nothing branches.
        wgmma_wait<0>();
        stages.release(step);
    }
    // All have used the last stage.
    named_barrier_sync(MULTIPLIERS, 32 * WARPS);
#pragma unroll
    for (int m = 0; m < FRAGMENTS; m++) {
        float* own = sums_of + (GATED ? 8 : 16) * (m * WARPS + here.warp()) + here.lane() / 4 + here.lane() % 4 * 2 * SUMS_ROW;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            own[(i / 4 * 8 + i % 2) * SUMS_ROW + i / 2 % 2 * (GATED ? OUTPUTS : 8)] = sums[m][i];
        }
    }
}

// Writes the sums. A thread has one place of some rows of Y.
DEV void write(const Block& block, const float* sums_of, const u32* y_of, const float* bias, const float* up_bias, Result* y,
               const GemmParams& p) {
    constexpr u32 PLACES = OUTPUTS / TOGETHER;
    u32 place = here.thread_x() % PLACES * TOGETHER, column[TOGETHER];
    float add[TOGETHER], up_add[TOGETHER];
    if (block.output + place >= p.outputs) return;
#pragma unroll
    for (u32 e = 0; e < TOGETHER; e++) {
        column[e] = output_at(place + e);
        // Of an odd number of outputs, the place after the last is written too: a row has as much space again.
        u64 at = block.expert * p.bias_stride + min(block.output + column[e], p.outputs - 1);
        add[e] = bias == nullptr ? 0.0f : bias[at];
        up_add[e] = up_bias == nullptr ? 0.0f : up_bias[at];
    }
    // Gate and up have their activation first, and are stored.
    const Epilogue how = GATED ? Epilogue{STORE} : p.epilogue;
#pragma unroll 4
    for (u32 i = here.thread_x() / PLACES; i < block.count; i += 32 * WARPS / PLACES) {
        bool missing = y_of[i] & NO_ROW;
        float results[TOGETHER];
#pragma unroll
        for (u32 e = 0; e < TOGETHER; e++) {
            const float* sum = sums_of + i * SUMS_ROW + column[e];
            float result = sum[0] + add[e];
            if (GATED) result = activate(p.epilogue.activation, result, sum[OUTPUTS] + up_add[e]);
            results[e] = missing ? 0.0f : result;
        }
        store_results(how, y + (y_of[i] & ~NO_ROW) * p.y_stride + block.output + place, results);
    }
}

KERNEL_BOUNDED(gemm_wgmma, 32 * (WARPS + 4), BLOCKS)
(IN(u8, weight, 0), IN(u8, up, 1), IN(u8, x, 2), IN(u32, ids, 3), IN(u32, pairs, 4), IN(u32, tiles, 5),
 IN(u32, tile_count, 6), IN(float, bias, 7), IN(float, up_bias, 8), INOUT(Result, y, 9), INOUT(u32, flag, 10),
 PARAMS(GemmParams, p, 11)) {
    DYNAMIC_SHARED(u8, shared);
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    SHARED(u64, x_of, TOKENS);
    SHARED(u32, y_of, TOKENS);
    const u32 row_blocks = (p.outputs + OUTPUTS - 1) / OUTPUTS;
    const u32 tile = here.block_x() / row_blocks, block_output = here.block_x() % row_blocks * OUTPUTS;

    if (tiles != nullptr) dependency_wait();
    const Rows rows = rows_of(tile, here.grid_x() / row_blocks, block_output, block_output + OUTPUTS, pairs, tiles, tile_count, y, p);
    if (rows.first == rows.end) return;

    u32 first_step = 0, steps = (p.blocks * FORMAT::BLOCK + STEP - 1) / STEP;
    if (SHARED_COLUMNS) {
        // Blocks along y share the steps; Y has one place for each share.
        const u32 share = here.block_y(), shares = here.grid_y(), all = steps;
        first_step = all * share / shares;
        steps = all * (share + 1) / shares - first_step;
        y += u64(share) * p.y_rows * p.y_stride;
    }
    const Block block = {rows.expert, block_output, rows.end - rows.first, first_step, steps};
    // The swizzle needs this alignment.
    const Stages stages = {shared + (-shared_address(shared) & 1023), full, empty};
    float* sums_of = reinterpret_cast<float*>(stages.memory);
    const bool few = TOKENS > 32 && block.count <= TOKENS / 2;

    if (here.warp() >= WARPS) {
        registers_give<COPY_REGISTERS>();
        if (tiles == nullptr) dependency_wait();
        for (u32 i = here.thread_x() - 32 * WARPS; i < TOKENS; i += 32 * COPIERS) {
            Line line = line_of(i, rows.first, block.count, ids, pairs, flag, p);
            y_of[i] = line.y;
            x_of[i] = line.x;
        }
        if (here.thread_x() - 32 * WARPS < STAGES) {
            mbarrier_init(&full[here.thread_x() - 32 * WARPS], 32);
            mbarrier_init(&empty[here.thread_x() - 32 * WARPS], WARPS);
        }
        named_barrier_sync(EVERYBODY, THREADS);
        copy(stages, block.first_step, block.steps, x, 64 * p.x_blocks, x_of, few ? TOKENS / 2 : TOKENS);
    } else {
        registers_take<REGISTERS>();
        auto output_of = [&](int m, int h) {
            return block_output + (m * WARPS + here.warp()) * (GATED ? 8 : 16) + here.lane() / 4 + (GATED ? 0 : 8 * h);
        };
        LaneRows row;
        find_rows(weight, up, block.expert, output_of, p, row);
        Weights w[FRAGMENTS][2];
#pragma unroll
        for (int m = 0; m < FRAGMENTS; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                w[m][h].load_scales(row[m][h], block.first_step, here.lane() % 4);
#pragma unroll
                for (int i = 0; i < PIECES; i++) w[m][h].load_after(i, row[m][h], block.first_step, here.lane() % 4);
            }
        }
        dependency_launch();
        if (tiles == nullptr) dependency_wait();
        named_barrier_sync(EVERYBODY, THREADS);
        if (few) {
            multiply<(TOKENS > 32 ? TOKENS / 2 : TOKENS)>(block, row, w, stages, sums_of);
        } else {
            multiply<TOKENS>(block, row, w, stages, sums_of);
        }
        named_barrier_sync(MULTIPLIERS, 32 * WARPS);
        write(block, sums_of, y_of, bias, up_bias, y, p);
    }
}
#endif
