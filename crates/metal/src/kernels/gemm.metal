// Weights times many rows of activations, dense or grouped by expert: tiles of 64 outputs and 32 rows of X on simdgroup
// matrices. The grid's x counts groups of outputs, y tasks (`tasks.h`).
//
// All is multiplied in f32, weights as decoding gives them. On the M1 a product in f16 takes as long as one in f32; no
// activations overflow, and only sums are rounded. f32 costs twice the threadgroup memory, of which 12 KiB are used.
//
// A step takes 32 columns: each thread unpacks 16 of a weight row and copies 8 of a row of X to threadgroup memory, where
// they lie in blocks of 8 × 8, those of X transposed. Then each simdgroup multiplies 16 outputs with all rows of X.
#include "format.h"
#include "tasks.h"

typedef FORMAT Format;

#define BLOCK_THREADS 128
#define TILE_OUTPUTS 64
#define TILE_ROWS 32
// Columns of a step, and the blocks in which they lie.
#define STEP 32
#define BLOCKS (STEP / 8)
// From the first block of 8 columns to the next eight's, in floats. Of X eight more: then a simdgroup, which writes 8 rows of
// 4 × 8 columns, writes to different banks.
#define WEIGHT_COLUMNS (TILE_OUTPUTS * 8)
#define X_COLUMNS (TILE_ROWS * 8 + 8)

// 16 columns of a weight row, the first or the second half (`side`) of each step.
template <class F, bool IS_FLOAT>
struct Slices {
    typename F::Raw raw;
    // Neighbouring spans do not always share a step: some formats' pieces are 32 columns apart.
    static DEV bool apart() { return F::PIECES > 1 && F::at(1, 0) == 1; }
    DEV void load(Row row, u32 step, u32 side, THREAD float (&out)[16]) {
        if (apart()) {
            if (step % F::PIECES == 0) raw = F::load(row, 2 * (step / F::PIECES) + side);
            values<F>(raw, int(step % F::PIECES), out);
        } else {
            raw = F::load(row, (2 * step + side) / F::PIECES);
            values<F>(raw, int((2 * step + side) % F::PIECES), out);
        }
    }
};
template <class F>
struct Slices<F, true> {
    DEV void load(Row row, u32 step, u32 side, THREAD float (&out)[16]) { float_values<F>(row, 2 * step + side, out); }
};

// One tile: outputs from `output` on. All threads of the block meet.
template <bool GATED>
DEV void multiply_tile(Here here, const Weights weights, const GLOBAL float* x, const Rows rows, const Task task, u32 output,
                       GLOBAL float* y, const ProductParams p, GROUP float* ws, GROUP float* xs) {
    constexpr u32 OUTPUTS = GATED ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    u32 count = task.end - task.first, cols = p.blocks * Format::BLOCK;
    // This thread's part of the weights,
    u32 own_row = here.thread_x() / 2, side = here.thread_x() % 2;
    u32 own_output = output + own_row % OUTPUTS;
    Row row = GATED ? gated_row(p, weights, own_row >= OUTPUTS, task.expert, own_output)
                    : weight_row(p, weights.weight, task.expert, own_output);
    GROUP float* w_to = ws + 2 * side * WEIGHT_COLUMNS + own_row * 8;
    // and of X.
    u32 x_row = here.thread_x() / BLOCKS, x_block = here.thread_x() % BLOCKS;
    u32 from = x_row < count ? input_row(p, rows, task.first + x_row) : NO_ROW;
    const GLOBAL float* x_from = x + (from == NO_ROW ? 0 : u64(from) * cols);
    GROUP float* x_to = xs + x_block * X_COLUMNS + x_row / 8 * 64 + x_row % 8;

    simdgroup_float8x8 sums[2][TILE_ROWS / 8];
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < TILE_ROWS / 8; j++) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    Slices<Format, Format::IS_FLOAT> slices;
    for (u32 step = 0; step * STEP < cols; step++) {
        float w[16];
        slices.load(row, step, side, w);
        u32 column = step * STEP + x_block * 8, x_cols = from == NO_ROW ? 0 : cols;
        float4 low = load_columns(x_from, column, x_cols), high = load_columns(x_from, column + 4, x_cols);
        // All threads have read the step before.
        barrier();
#pragma unroll
        for (int i = 0; i < 16; i++) w_to[i / 8 * WEIGHT_COLUMNS + i % 8] = w[i];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x_to[8 * i] = low[i];
            x_to[8 * i + 32] = high[i];
        }
        barrier();
#pragma unroll
        for (int k = 0; k < BLOCKS; k++) {
            simdgroup_float8x8 a[2], b;
#pragma unroll
            for (int i = 0; i < 2; i++) simdgroup_load(a[i], ws + k * WEIGHT_COLUMNS + (2 * here.warp() + i) * 64, 8);
#pragma unroll
            for (u32 j = 0; j < TILE_ROWS / 8; j++) {
                if (8 * j >= count) continue;
                simdgroup_load(b, xs + k * X_COLUMNS + j * 64, 8);
#pragma unroll
                for (int i = 0; i < 2; i++) simdgroup_multiply_accumulate(sums[i][j], a[i], b, sums[i][j]);
            }
        }
    }
    barrier();
    // The tile by rows of Y, in the place of the weights.
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < TILE_ROWS / 8; j++)
            simdgroup_store(sums[i][j], ws + j * 8 * TILE_OUTPUTS + (2 * here.warp() + i) * 8, TILE_OUTPUTS, ulong2(0), true);
    }
    barrier();
    for (u32 i = here.thread_x(); i < count * OUTPUTS; i += BLOCK_THREADS) {
        u32 place = task.first + i / OUTPUTS, o = output + i % OUTPUTS;
        if (o >= p.outputs) continue;
        const GROUP float* product = ws + i / OUTPUTS * TILE_OUTPUTS + i % OUTPUTS;
        GLOBAL float* to = y + output_row(p, rows, place) * p.y_stride + o;
        float first = product[0] + bias_of(p, weights.bias, task.expert, o);
        if (GATED) {
            *to = activate(p.epilogue.activation, first, product[OUTPUTS] + bias_of(p, weights.up_bias, task.expert, o));
        } else {
            bool missing = p.which == ROW_IDS && input_row(p, rows, place) == NO_ROW;
            apply_epilogue(p.epilogue, to, missing ? 0.0f : first);
        }
    }
}

// The block's tiles.
template <bool GATED>
DEV void multiply_tiles(Here here, const Weights weights, const GLOBAL float* x, const Rows rows, GLOBAL float* y,
                        const ProductParams p, GROUP float* ws, GROUP float* xs) {
    constexpr u32 OUTPUTS = GATED ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    u32 count = task_count(p, rows, TILE_ROWS), stride = task_stride(here, p);
    for (u32 block = here.block_x(); block * OUTPUTS < p.outputs; block += here.grid_x()) {
        if (here.block_y() == stride) {
            zero_pairs(here, p, rows, block * OUTPUTS, (block + 1) * OUTPUTS, y);
            continue;
        }
        for (u32 number = here.block_y(); number < count; number += stride) {
            const Task task = task_of(p, rows, number, TILE_ROWS);
            multiply_tile<GATED>(here, weights, x, rows, task, block * OUTPUTS, y, p, ws, xs);
        }
    }
}

KERNEL_BOUNDED(matmul, BLOCK_THREADS, 1)
MATMUL_ARGUMENTS {
    HERE;
    SHARED(float, ws, BLOCKS * WEIGHT_COLUMNS);
    SHARED(float, xs, BLOCKS * X_COLUMNS);
    multiply_tiles<false>(here, MATMUL_OPERANDS, ws, xs);
}

KERNEL_BOUNDED(gate_up, BLOCK_THREADS, 1)
GATE_UP_ARGUMENTS {
    HERE;
    SHARED(float, ws, BLOCKS * WEIGHT_COLUMNS);
    SHARED(float, xs, BLOCKS * X_COLUMNS);
    multiply_tiles<true>(here, GATE_UP_OPERANDS, ws, xs);
}
