// Gate and up of an MLP with their activation.
#pragma once
#include "activation.h"
#include "gated_out.cuh"
#include "gemv.cuh"

// Rows of each of the two weights of a thread group, and its threads, as a power of two. With eight rows of X there are no
// registers for more; of exact ones, the order of a sum must not depend on how many there are.
#if INT8 && TOKENS <= 4
#define GATE_ROWS 2
#define GATE_THREADS_LOG2 (BLOCK_THREADS == 512 ? 5 : BLOCK_THREADS == 256 ? 4 : 3)
#else
#define GATE_ROWS 1
#define GATE_THREADS_LOG2 (BLOCK_THREADS == 512 ? 4 : BLOCK_THREADS == 256 ? 3 : 2)
#endif
#define GATE_OUTPUTS ((BLOCK_THREADS >> GATE_THREADS_LOG2) * GATE_ROWS)

// Where the weights' rows are.
struct GatedShape {
    // Bytes of a row and of an expert's matrix, and elements of a bias from an expert to the next.
    u64 row_bytes, matrix_bytes, bias_stride;
    u32 outputs, blocks;
};

// Calls `take(row, column, value)` for the block's outputs of `count` rows of X, also with zeros for those that are not
// there; columns count from the block's first. All threads meet.
template <class Find, class Take>
DEV void gate_and_up(const u8* const (&weights)[2], const float* const (&biases)[2], GatedShape shape, u32 expert,
                     Activation activation, Find find, u32 count, float* parts, Take take) {
    ThreadGroup threads = thread_group(GATE_THREADS_LOG2);
    u32 column = (here.thread_x() >> GATE_THREADS_LOG2) * GATE_ROWS, first = here.block_x() * GATE_OUTPUTS + column;
    Row w[2 * GATE_ROWS];
#pragma unroll
    for (int r = 0; r < 2 * GATE_ROWS; r++) {
        u64 at = expert * shape.matrix_bytes + min(first + r / 2, shape.outputs - 1) * shape.row_bytes;
        w[r] = {weights[r % 2] + at, shape.blocks};
    }
    float sums[2 * GATE_ROWS][TOKENS] = {};
    multiply<Format>(w, threads, find, sums);
    Totals totals = gather(sums, threads, parts);
    for (u32 i = threads.member; i < GATE_ROWS * TOKENS; i += threads.size) {
        u32 r = i / TOKENS, t = i % TOKENS, output = first + r;
        float value = 0.0f;
        if (output < shape.outputs && t < count) {
            float add[2];
            for (int k = 0; k < 2; k++)
                add[k] = biases[k] == nullptr ? 0.0f : biases[k][expert * shape.bias_stride + output];
            value = activate(activation, totals.at(2 * r * TOKENS + t) + add[0], totals.at((2 * r + 1) * TOKENS + t) + add[1]);
        }
        take(t, column + r, value);
    }
}

static_assert(GATE_OUTPUTS == 32, "what is rounded together");
