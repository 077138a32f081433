// The parameters of all kernels that multiply.
#pragma once
#include "epilogue.h"

// Which rows of X become which of Y: `Which` in `product.rs`.
enum RowSelection {
    // Row i becomes row i.
    ALL_ROWS,
    // Row ids[i] becomes row i.
    ROW_IDS,
    // Row p / pairs_per_row becomes row p, where p is a pair of `Groups`.
    EXPERT_PAIRS,
};

// Mirrors `ProductParams` in `product.rs`.
struct ProductParams {
    // Bytes of a weight row and of an expert's matrix.
    u64 row_bytes, matrix_bytes;
    // Elements from a row of Y to the next, and from a row id to the next.
    u64 y_stride, ids_stride;
    // Elements of the bias from an expert to the next.
    u64 bias_stride;
    // Outputs, and blocks of the format in a row.
    u32 outputs, blocks;
    u32 x_rows, y_rows;
    // Threads of a group, as a power of two (`gemv.cu`, `gemv.metal`); a block's outputs by 16 (`gemm_int8.cu`); or the
    // warps that share columns there (`gemm_int8_tile.cu`).
    u32 cut;
    // Pairs of experts that share a row of X.
    u32 pairs_per_row;
    Epilogue epilogue;
    // A RowSelection, and whether biases are bound, because Metal does not guarantee that an unbound argument is null.
    u32 which, biased;
    // Where the outputs of a second and a third weight begin, or the end: Metal does not join weights in memory.
    u32 second, third, padding;
};
