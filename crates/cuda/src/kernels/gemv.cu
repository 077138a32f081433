// Weights times few rows of activations, dense or of experts, where a block's rows of activations are the pairs of a tile of
// `Groups`.
#include "epilogue.h"
#include "gated.cuh"
#include "gemv.cuh"
#include "row_chunks.cuh"

// Rows `first` to `end`, with a bit of `missing` for each that has no row of X and stays zero.
DEV Inputs find_inputs(const ProductParams& p, const Rows& rows, const Element* x, u32 first, u32 end, u32& missing) {
    u32 cols = p.blocks * Format::BLOCK;
    Inputs inputs = {x, cols, INT8 ? (cols + 31) / 32 : cols, end - first, {}};
    missing = 0;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        u32 row = first + t < end ? input_row(p, rows, first + t) : NO_ROW;
        if (row == NO_ROW) missing |= 1u << t;
        // Nothing is made of what is read of a missing one.
        inputs.rows[t] = row == NO_ROW ? 0 : row;
    }
    inputs.touch();
    return inputs;
}

// ---- Kernels. The grid's x counts groups of weight rows.

// Weight rows of a thread group, which share what is read of X. With eight rows of X there are no registers for more.
#define GROUP_ROWS (INT8 && TOKENS <= 4 ? 4 : 2)

// Y = X · Wᵀ + bias.
KERNEL_BOUNDED(matmul, BLOCK_THREADS, LEAST_BLOCKS)
(IN(u8, weight, 0), IN(Element, x, 1), IN(u32, ids, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),
 IN(float, bias, 6), INOUT(float, y, 7), INOUT(u32, flag, 8), PARAMS(ProductParams, p, 9)) {
    SHARED(float, parts, PARTS(GROUP_ROWS * TOKENS));
    dependency_launch();
    // Tiles say which weights are wanted.
    if (tiles != nullptr) dependency_wait();
    ThreadGroup threads = thread_group(p.cut);
    u32 groups = BLOCK_THREADS >> p.cut;
    u32 first = (here.block_x() * groups + (here.thread_x() >> p.cut)) * GROUP_ROWS;
    Rows rows = {ids, pairs, tiles, tile_count, flag};
    auto serve = [&](u32 expert, u32 begin, u32 end) {
        Row w[GROUP_ROWS];
        const u8* matrix = weight + expert * p.matrix_bytes;
#pragma unroll
        for (int r = 0; r < GROUP_ROWS; r++) w[r] = {matrix + min(first + r, p.outputs - 1) * p.row_bytes, p.blocks};
        // Without rows of X all are missing.
        u32 missing = 0xffffffffu;
        float sums[GROUP_ROWS][TOKENS] = {};
        auto find = [&]() {
            dependency_wait();
            return find_inputs(p, rows, x, begin, end, missing);
        };
        if (p.x_rows > 0) multiply<Format>(w, threads, find, sums);
        Totals totals = gather(sums, threads, parts);
        for (u32 i = threads.member; i < GROUP_ROWS * TOKENS; i += threads.size) {
            u32 output = first + i / TOKENS, t = i % TOKENS;
            if (output < p.outputs && begin + t < end) {
                float product = totals.at(i) + (bias == nullptr ? 0.0f : bias[expert * p.bias_stride + output]);
                if (missing >> t & 1) product = 0.0f;
                apply_epilogue(p.epilogue, y + output_row(rows, begin + t) * p.y_stride + output, product);
            }
        }
        meet(threads);
    };
    auto zero = [&](u32 row) {
        u32 begin = here.block_x() * groups * GROUP_ROWS, end = min(begin + groups * GROUP_ROWS, p.outputs);
        for (u32 output = begin + here.thread_x(); output < end; output += BLOCK_THREADS) y[row * p.y_stride + output] = 0.0f;
    };
    each_row_chunk(p, rows, serve, zero);
}

// H = activation(gate · x + bias, up · x + bias), of two weights of one shape and format: as it is, or prepared as
// activations, or both. A block has 32 outputs, which are rounded together.
KERNEL_BOUNDED(gate_up, BLOCK_THREADS, LEAST_BLOCKS)
(IN(u8, gate, 0), IN(u8, up, 1), IN(Element, x, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),
 IN(float, gate_bias, 6), IN(float, up_bias, 7), OUT(float, h, 8), OUT(float, exact, 9), OUT(Int8Block, int8, 10),
 OUT(u32, bf16, 11), PARAMS(ProductParams, p, 12)) {
    SHARED(float, parts, PARTS(2 * GATE_ROWS * TOKENS));
    SHARED(Four, staged, TOKENS * 8);
    if (tiles != nullptr) dependency_wait();
    dependency_launch();
    Rows rows = {nullptr, pairs, tiles, tile_count, nullptr};
    Gated out = {h, exact, int8, bf16, p.y_stride, p.outputs};
    auto serve = [&](u32 expert, u32 begin, u32 end) {
        u32 missing;
        auto find = [&]() {
            dependency_wait();
            return find_inputs(p, rows, x, begin, end, missing);
        };
        const float* biases[2] = {gate_bias, up_bias};
        const u8* weights[2] = {gate, up};
        auto take = [&](u32 t, u32 column, float value) { reinterpret_cast<float*>(staged)[t * 32 + column] = value; };
        gate_and_up(weights, biases, {p.row_bytes, p.matrix_bytes, p.bias_stride, p.outputs, p.blocks}, expert,
                    p.epilogue.activation, find, end - begin, parts, take);
        barrier();
        out.write(staged, 8, end - begin, here.block_x(), BLOCK_THREADS / 32, [&](u32 t) { return output_row(rows, begin + t); });
        barrier();
    };
    auto zero = [&](u32 row) {
        if (here.thread_x() < 8) staged[here.thread_x()] = {};
        barrier();
        out.write(staged, 8, 1, here.block_x(), BLOCK_THREADS / 32, [&](u32) { return row; });
        barrier();
    };
    each_row_chunk(p, rows, serve, zero);
}
