// Rows of activations in another order, so that a copy of `gemm_wgmma.cu` brings eight neighbours at once.
#include "device.h"

#include "GatherRowsParams"

// Row i of Y becomes row `ids[i]` / `ids_per_row` of X, or zeros where there is none; a block for each row.
KERNEL(gather_rows)
(IN(uint4, x, 0), IN(u32, ids, 1), OUT(uint4, y, 2), PARAMS(GatherRowsParams, p, 3)) {
    dependency_launch();
    dependency_wait();
    const u64 row = here.block_x(), from = ids[row * p.ids_stride] / p.ids_per_row;
    for (u32 i = here.thread_x(); i < p.units; i += here.block_width()) {
        y[row * p.y_stride + i] = from < p.x_rows ? x[from * p.units + i] : make_uint4(0, 0, 0, 0);
    }
}
