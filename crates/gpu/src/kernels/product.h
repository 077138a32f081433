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

#include "ProductParams"
