// Adds what blocks found that shared the columns of a product (`gemm.cu`, `gemm_wgmma.cu`), in the order of the columns:
// Y = epilogue(sum + bias). A thread has four outputs. The grid's x counts blocks of outputs, y rows of Y.
#include "epilogue.h"
#include "reduce.h"

#define THREADS 128

#include "GemmSumParams"

KERNEL_BOUNDED(gemm_sum, THREADS, 8)
(IN(float, shares, 0), IN(float, bias, 1), INOUT(float, y, 2), PARAMS(GemmSumParams, p, 3)) {
    dependency_launch();
    u32 row = here.block_y(), output = 4 * (here.block_x() * THREADS + here.thread_x());
    if (output >= p.outputs) return;
    // No kernel writes biases.
    Four add = {};
    if (bias != nullptr) add = load_four(bias + output, p.outputs - output, false);
    dependency_wait();
    u64 share_size = u64(p.rows) * p.outputs;
    const float* from = shares + u64(row) * p.outputs + output;
    Four total = {};
#pragma unroll 8
    for (u32 i = 0; i < p.shares; i++) {
        Four share = load_four(from + i * share_size, p.outputs - output, p.aligned);
#pragma unroll
        for (u32 k = 0; k < 4; k++) total.at[k] += share.at[k];
    }
    float* to = y + row * p.y_stride + output;
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        if (output + k < p.outputs) apply_epilogue(p.epilogue, to + k, total.at[k] + add.at[k]);
}
