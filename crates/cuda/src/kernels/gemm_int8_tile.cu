// Weights times many rows of activations on tensor cores, in bytes, dense or of experts: what `gemm_int8.cu` computes, bit for
// bit, with weights that are unpacked once for TOKENS rows of X.
//
// A warp has 32 rows of weights, or with gate and up 16 of each, in two fragments of 16. A lane loads its parts of four of them
// (`quarter_row.cuh`) and unpacks bytes in the places of the operand of `mma`; scales of a step of 128 columns are unpacked by a
// lane for each row, and read from shared memory. Rows of X come through shared memory too, one step ahead. Products of the 16
// or 32 columns with one scale are whole numbers, scaled and added in f32, which limits the speed: of Q4_K 16 of some 20
// instructions for a `mma` of 16 x 8 x 32.
//
// A sum has the order of `gemm_int8.cu`, where some warps share the columns, 256 in turns: the columns of the first warp come
// first; then their sum is kept, and the next warp's begin from zero.
//
// Compiled for a format (FORMAT), for one weight or for gate and up (GATED 0 or 1), and for so many times 8 rows of X at once
// (ROW_TILES, even).
#define TOKENS (8 * ROW_TILES)
#include "act.h"
#include "gated_out.cuh"
#include "int8_sums.cuh"
#include "quarter_row.cuh"
#include "row_chunks.cuh"

typedef FORMAT Format;

#if __CUDA_ARCH__ >= 800

constexpr u32 WARPS = 4, THREADS = 32 * WARPS, FRAGMENTS = 2;
// Rows of weights of a block, and outputs.
constexpr u32 WEIGHT_ROWS = 16 * FRAGMENTS * WARPS, OUTPUTS = GATED ? WEIGHT_ROWS / 2 : WEIGHT_ROWS;
// Blocks of 32 columns in a step, and groups with one scale in such a block and in a step.
constexpr u32 BLOCKS = STEP / 32, GROUPS = STEP / Format::SCALED;
constexpr int PARTS = 32 / Format::SCALED;
// Pairs of tiles of 8 rows of X, which are computed or left out together.
constexpr u32 PAIRS = ROW_TILES / 2;
// Blocks of a multiprocessor that the registers must suffice for.
constexpr int LEAST_BLOCKS = 3;
// Floats from a row of X to the next where its sums meet: two rows further are eight banks.
constexpr u32 SUMS_ROW = WEIGHT_ROWS + 4;

// The numbers of a row of X for 32 columns: its scale and, for weights with minima, a scaled sum for each of their scales.
template <bool HAS_MIN, int PARTS>
struct Column {
    float scale;
    DEV float sum(int) const { return 0.0f; }
    DEV void copy(const Int8Block* from, bool valid) { cp_async_4(&scale, &from->scale, valid); }
};
template <>
struct alignas(8) Column<true, 1> {
    float scale, whole;
    DEV float sum(int) const { return whole; }
    DEV void copy(const Int8Block* from, bool valid) { cp_async_8(&scale, &from->scale, valid); }
};
template <>
struct alignas(16) Column<true, 2> {
    float scale, unused, halves[2];
    DEV float sum(int part) const { return halves[part]; }
    DEV void copy(const Int8Block* from, bool valid) {
        cp_async_4(&scale, &from->scale, valid);
        cp_async_8(halves, from->scaled_half_sums, valid);
    }
};
typedef Column<Format::HAS_MIN, PARTS> Numbers;
// Numbers of two neighbouring rows of X.
struct alignas(2 * sizeof(Numbers) > 16 ? 16 : 2 * sizeof(Numbers)) TwoNumbers {
    Numbers of[2];
};

// A step of the rows of X. At most 192 bytes a row: `STAGE_ROW` in `plan/int8_many.rs`.
struct alignas(16) Stage {
    // The 16 bytes `unit` of a row lie at unit ^ row % 8: the same of eight rows in different banks.
    u8 codes[TOKENS][STEP];
    TwoNumbers numbers[BLOCKS][TOKENS / 2];
};

// Scales of a warp's rows of weights in a step, by group: at most 2,048 bytes, `WARP_SCALES` in `plan/int8_many.rs`.
typedef ScaleMin Scales[GROUPS][32];

// The steps in the order of a sum: chunks of two steps, those that a warp of `gemm_int8.cu` adds after one another.
struct Order {
    u32 chunks, shares, share, chunk, half;

    DEV u32 step() const { return 2 * chunk + half; }
    DEV bool ends_share() const { return half == 1 && chunk + shares >= chunks; }
    // The last step stays.
    DEV void advance() {
        if (half == 0) {
            half = 1;
        } else if (chunk + shares < chunks) {
            half = 0, chunk += shares;
        } else if (share + 1 < shares) {
            half = 0, chunk = ++share;
        }
    }
};

typedef QuarterRow<Format> Weights;
typedef Weights LaneWeights[FRAGMENTS][2];
// A lane's rows of weights: in each fragment one, and the one 8 below.
typedef Row LaneRows[FRAGMENTS][2];
// Sums of a lane, as `mma` gives them: of lane 4g + t, rows g and g + 8 of weights and rows 2t and 2t + 1 of X.
typedef float Sums[ROW_TILES][FRAGMENTS][4];

// Which piece has columns 16 · `place` of a step.
DEV int piece_at(u32 place) {
    int piece = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) piece = Weights::at(i) == place ? i : piece;
    return piece;
}

// Spans that have the scales of a lane's own row of the 32.
struct Heads {
    Format::Raw raw[Weights::SPANS];

    DEV void load(Row row, u32 step) {
#pragma unroll
        for (int s = 0; s < Weights::SPANS; s++) raw[s] = Weights::load(row, step * Weights::SPANS + s, 0);
    }
    DEV void unpack(Scales& scales) const {
#pragma unroll
        for (u32 group = 0; group < GROUPS; group++) {
            const int piece = piece_at(group * (Format::SCALED / 16));
            Format::Raw own = raw[piece / Format::PIECES];
            if (Format::BLOCK >= STEP) copy_head(own, raw[0]);
            scales[group][here.lane()] = scale_and_min<Format>(Format::scale(own, piece % Format::PIECES));
        }
    }
};

// A lane's parts of the operands of 32 columns, and their scales.
struct Operand {
    u32 codes[FRAGMENTS][4];
    ScaleMin scales[FRAGMENTS][2][PARTS];
};

// The last 32 columns that a span has a part of.
DEV u32 last_block(int span) {
    u32 last = 0;
#pragma unroll
    for (int i = 0; i < Format::PIECES; i++) last = max(last, Weights::at(span * Format::PIECES + i) / 2);
    return last;
}

// Four codes, less the zero unless that is part of the minimum.
DEV u32 centred(u32 codes) {
    static_assert(Format::HAS_MIN || Format::ZERO == 0 || !Format::SIGNED, "codes below 128");
    if (Format::HAS_MIN || Format::ZERO == 0) return codes;
    // No byte borrows from the next.
    return ((codes | 0x80808080u) - Format::ZERO * 0x01010101u) ^ 0x80808080u;
}

// Adds the products of 32 columns with eight rows of X, whose codes are `x`, to their sums.
DEV void add(const Operand& a, const u32 (&x)[2], const TwoNumbers& numbers, float (&sums)[FRAGMENTS][4]) {
    int d[FRAGMENTS][PARTS][4];
#pragma unroll
    for (u32 m = 0; m < FRAGMENTS; m++) {
        if (PARTS == 1) {
            mma_m16n8k32_s8(d[m][0], a.codes[m], x, WHOLE);
        } else {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const u32 half[2] = {a.codes[m][2 * part], a.codes[m][2 * part + 1]};
                mma_m16n8k16_s8(d[m][part], half, x[part], WHOLE);
            }
        }
    }
#pragma unroll
    for (u32 m = 0; m < FRAGMENTS; m++) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const Numbers& of = numbers.of[i % 2];
                add_scaled<Format>(d[m][part][i], a.scales[m][i / 2][part], of.scale, of.sum(part), sums[m][i]);
            }
        }
    }
}

// Multiplies with the rows of X of a step, and loads the weights of step `next` in place of its own.
DEV void multiply(const Stage& stage, const Scales& scales, u32 pairs, const LaneRows& row, u32 next, LaneWeights& w, Sums& sums) {
    const u32 lane = here.lane(), g = lane / 4, t = lane % 4;
    const u8* codes = stage.codes[lane / 16 * 8 + lane % 8];
#pragma unroll
    for (u32 j = 0; j < BLOCKS; j++) {
        Operand a;
#pragma unroll
        for (u32 m = 0; m < FRAGMENTS; m++) {
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
#pragma unroll
                for (u32 half = 0; half < 2; half++) a.codes[m][h + 2 * half] = centred(w[m][h].codes(piece_at(2 * j + half)));
#pragma unroll
                for (int part = 0; part < PARTS; part++) a.scales[m][h][part] = scales[j * PARTS + part][16 * m + 8 * h + g];
#pragma unroll
                for (int s = 0; s < Weights::SPANS; s++)
                    if (last_block(s) == j) w[m][h].load_span(s, row[m][h], next, t);
            }
        }
#pragma unroll
        for (u32 pair = 0; pair < PAIRS; pair++) {
            if (pair >= pairs) break;
            u32 x[4];
            ldmatrix_x4(x, codes + pair * 16 * STEP + 16 * ((2 * j + lane / 8 % 2) ^ lane % 8));
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u32 own[2] = {x[2 * i], x[2 * i + 1]};
                add(a, own, stage.numbers[j][(2 * pair + i) * 4 + t], sums[2 * pair + i]);
            }
        }
    }
}

// Starts to copy steps of the rows of X. A thread copies the same 16 bytes of some rows.
struct Copier {
    Stage* stages;
    const Int8Block* x;
    const u32* x_of;  // each row, or NO_ROW
    u32 x_blocks, pairs;

    DEV const Int8Block* block(u32 token, u32 at, bool valid) const {
        u32 row = x_of[token] == NO_ROW ? 0 : x_of[token];
        return x + u64(row) * x_blocks + (valid ? at : 0);
    }
    DEV void copy(u32 stage, u32 step) const {
        Stage& to = stages[stage];
        u32 line = here.thread_x() / 8, unit = here.thread_x() % 8, at = step * BLOCKS + unit / 2;
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            u32 token = 16 * i + line;
            if (i >= pairs) break;
            const Int8Block* from = block(token, at, at < x_blocks);
            cp_async_16(to.codes[token] + 16 * (unit ^ token % 8), from->q + 4 * (unit % 2), at < x_blocks);
        }
        line = here.thread_x() / BLOCKS, unit = here.thread_x() % BLOCKS, at = step * BLOCKS + unit;
#pragma unroll
        for (u32 i = 0; i < TOKENS * BLOCKS / THREADS; i++) {
            u32 token = i * (THREADS / BLOCKS) + line;
            if (token >= 16 * pairs) break;
            to.numbers[unit][token / 2].of[token % 2].copy(block(token, at, at < x_blocks), at < x_blocks);
        }
    }
};
static_assert(THREADS / 8 == 16, "a copy of all threads takes a pair of tiles");

// Adds the sums of a share of the columns to those of the shares before, which `totals` keeps for each thread; after the last
// share they are the result.
DEV void add_share(float4* totals, bool first, bool last, Sums& sums) {
#pragma unroll
    for (u32 i = 0; i < ROW_TILES * FRAGMENTS; i++) {
        float(&own)[4] = sums[i / FRAGMENTS][i % FRAGMENTS];
        float4& kept = totals[i * THREADS + here.thread_x()];
        float4 total = first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : kept;
        total = make_float4(total.x + own[0], total.y + own[1], total.z + own[2], total.w + own[3]);
        if (!last) kept = total;
        own[0] = last ? total.x : 0.0f;
        own[1] = last ? total.y : 0.0f;
        own[2] = last ? total.z : 0.0f;
        own[3] = last ? total.w : 0.0f;
    }
}

// A product as by `gemm_int8`; so many warps as `p.cut` says share the columns there.
KERNEL_BOUNDED(gemm_int8_tile, THREADS, LEAST_BLOCKS)
(IN(u8, weight, 0), IN(u8, up, 1), IN(Int8Block, x, 2), IN(u32, ids, 3), IN(u32, pairs, 4), IN(u32, tiles, 5),
 IN(u32, tile_count, 6), IN(float, bias, 7), IN(float, up_bias, 8), INOUT(float, y, 9), OUT(float, exact, 10),
 OUT(Int8Block, int8, 11), OUT(u32, bf16, 12), INOUT(u32, flag, 13), PARAMS(ProductParams, p, 14)) {
    DYNAMIC_SHARED(Stage, stages);
    SHARED(u32, x_of, TOKENS);
    SHARED(u32, y_of, TOKENS);
    const u32 g = here.lane() / 4, t = here.lane() % 4, first = here.block_x() * OUTPUTS;
    const u32 chunks = (p.blocks * Format::BLOCK + 2 * STEP - 1) / (2 * STEP);
    float4* totals = reinterpret_cast<float4*>(stages + 2);
    Scales& scales = reinterpret_cast<Scales*>(totals + ROW_TILES * FRAGMENTS * THREADS)[here.warp()];
    // Sums of rows of X by rows of weights, in place of both.
    float* sums_of = reinterpret_cast<float*>(stages);
    if (tiles != nullptr) dependency_wait();
    dependency_launch();
    Rows rows = {ids, pairs, tiles, tile_count, flag};
    Gated out = {y, exact, int8, bf16, p.y_stride, p.outputs};

    auto serve = [&](u32 expert, u32 begin, u32 end) {
        const u32 count = end - begin, tile_pairs = (count + 15) / 16;
        // Row `i` of the 16 of a fragment. Out-of-range rows are clamped to the last.
        auto row_of = [&](u32 m, u32 i) {
            u32 output = first + (GATED ? here.warp() : here.warp() * FRAGMENTS + m) * 16 + i;
            const u8* matrix = (GATED && m == 1 ? up : weight) + expert * p.matrix_bytes;
            return Row{matrix + min(output, p.outputs - 1) * p.row_bytes, p.blocks};
        };
        const Row own = row_of(here.lane() / 16, here.lane() % 16);
        Heads heads;
        heads.load(own, 0);
        LaneRows row;
        LaneWeights w;
#pragma unroll
        for (u32 m = 0; m < FRAGMENTS; m++) {
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                row[m][h] = row_of(m, 8 * h + g);
#pragma unroll
                for (int s = 0; s < Weights::SPANS; s++) w[m][h].load_span(s, row[m][h], 0, t);
            }
        }
        dependency_wait();
        if (here.thread_x() < TOKENS) {
            u32 at = begin + here.thread_x();
            x_of[here.thread_x()] = at < end ? input_row(p, rows, at) : NO_ROW;
            y_of[here.thread_x()] = at < end ? output_row(rows, at) : 0;
        }
        barrier();

        // Without rows of X all are missing; of one that is missing nothing is kept.
        const u32 x_blocks = p.x_rows == 0 ? 0 : (p.blocks * Format::BLOCK + 31) / 32;
        const Copier copier = {stages, x, x_of, x_blocks, tile_pairs};
        Order order = {chunks, p.cut, 0, 0, 0};
        copier.copy(0, 0);
        cp_async_commit();
        Sums sums = {};
        for (u32 i = 0; i < 2 * chunks; i++) {
            cp_async_wait<0>();
            // This step's rows are there for all, and all have used what the next copy overwrites.
            barrier();
            const bool ends_share = order.ends_share(), first_share = order.share == 0, last = i + 1 == 2 * chunks;
            order.advance();
            if (!last) copier.copy((i + 1) % 2, order.step());
            cp_async_commit();
            heads.unpack(scales);
            warp_barrier();
            // At the end the last step again: a branch around the loads would make what follows wait for them.
            heads.load(own, order.step());
            multiply(stages[i % 2], scales, tile_pairs, row, order.step(), w, sums);
            warp_barrier();
            if (ends_share) add_share(totals, first_share, last, sums);
        }
        // All have used the last stage.
        barrier();
#pragma unroll
        for (u32 m = 0; m < FRAGMENTS; m++) {
            u32 column = GATED ? m * OUTPUTS + 16 * here.warp() : 16 * (FRAGMENTS * here.warp() + m);
            float* own = sums_of + 2 * t * SUMS_ROW + column + g;
#pragma unroll
            for (u32 tile = 0; tile < ROW_TILES; tile++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) own[(8 * tile + i % 2) * SUMS_ROW + 8 * (i / 2)] = sums[tile][m][i];
            }
        }
        barrier();
        const u32 column = here.thread_x() % OUTPUTS, output = first + column;
        const float* const biases[2] = {bias, up_bias};
        for (u32 token = here.thread_x() / OUTPUTS; token < count; token += THREADS / OUTPUTS) {
            float* at = sums_of + token * SUMS_ROW + column;
            float product[2] = {at[0], GATED ? at[OUTPUTS] : 0.0f};
            bool there = output < p.outputs;
#pragma unroll
            for (int k = 0; k < 1 + GATED; k++)
                if (biases[k] != nullptr && there) product[k] += biases[k][expert * p.bias_stride + output];
            if (GATED) {
                at[0] = there ? activate(p.epilogue.activation, product[0], product[1]) : 0.0f;
            } else if (there) {
                float result = x_of[token] == NO_ROW ? 0.0f : product[0];
                apply_epilogue(p.epilogue, y + y_of[token] * p.y_stride + output, result);
            }
        }
        if (GATED) {
            barrier();
            for (u32 i = 0; i < OUTPUTS / 32; i++) {
                const Four* from = reinterpret_cast<const Four*>(sums_of) + 8 * i;
                u32 at = here.block_x() * (OUTPUTS / 32) + i;
                out.write(from, SUMS_ROW / 4, count, at, WARPS, [&](u32 token) { return y_of[token]; });
            }
        }
        // All have used the rows and what is in place of the stages.
        barrier();
    };
    auto zero = [&](u32 row) {
        if (GATED) {
            out.zero(reinterpret_cast<Four*>(sums_of), here.block_x() * (OUTPUTS / 32), OUTPUTS / 32, WARPS, row);
        } else {
            u32 stop = min(first + OUTPUTS, p.outputs);
            for (u32 o = first + here.thread_x(); o < stop; o += THREADS) y[row * p.y_stride + o] = 0.0f;
        }
    };
    each_row_chunk(p, rows, serve, zero);
}
#endif
