// Activations as matrix operations read them: see `act.rs`. Eight lanes take 32 elements of a row, four each.
#include "quantise.h"

// Twin of `QuantiseParams` in `gpu/cuda/matmul.rs`.
struct QuantiseParams {
    // Elements from a row of X to the next.
    u64 x_stride;
    u32 rows, cols;
    // Rows of X and of the copy can be read by four elements.
    u32 wide, padding;
};

KERNEL(quantise)(IN(float, x, 0), OUT(float, exact, 1), OUT(Int8Block, int8, 2), OUT(u32, bf16, 3),
                 PARAMS(QuantiseParams, p, 4)) {
    dependency_launch();
    dependency_wait();
    u32 blocks = (p.cols + 31) / 32, part = here.lane() % 8;
    u64 at = (u64(here.block_x()) * here.block_width() + here.thread_x()) / 8;
    // The lanes meet in `quantise_four`.
    bool live = at < u64(p.rows) * blocks;
    u64 row = live ? at / blocks : 0;
    u32 column = live ? u32(at % blocks) * 32 + 4 * part : p.cols;
    u64 left = column < p.cols ? p.cols - column : 0;
    Four v = load_four(x + row * p.x_stride + column, left, p.wide && left > 0);
    store_four(exact + row * p.cols + column, v, left, p.wide && left > 0);
    if (int8) quantise_four(v, int8 + at, bf16 + 16 * at, part, live);
}
