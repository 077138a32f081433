// Rows of activations in the order of experts' pairs, so that a copy of `gemm_wgmma.cu` brings eight neighbours at once.
#include "device.h"

#include "GatherPairsParams"

// Row i of Y becomes that of pair `pairs[i]`, a block for each row.
KERNEL(gather_pairs)
(IN(uint4, x, 0), IN(u32, pairs, 1), OUT(uint4, y, 2), PARAMS(GatherPairsParams, p, 3)) {
    dependency_launch();
    dependency_wait();
    const u64 row = here.block_x(), from = pairs[row] / p.pairs_per_row;
    for (u32 i = here.thread_x(); i < p.units; i += here.block_width()) y[row * p.y_stride + i] = x[from * p.units + i];
}
