// One row of activations in shared memory, prepared by the block that multiplies it.
#pragma once
#include "gemv.cuh"
#include "quantise.h"

#if INT8
// Neighbours lie in different banks.
struct SharedAct : Int8Block {
    u32 gap[4];
};
#define SHARED_ACTS(cols) (((cols) + 31) / 32)
#else
typedef float SharedAct;
#define SHARED_ACTS(cols) (((cols) + 3) & ~3u)
#endif

struct SharedActRow {
    const SharedAct* kept;
    u32 cols, count;
    DEV const SharedAct* row(int) const { return kept; }
};

// Elements at to at + 3 of a row of `cols`. Whole warps meet, whose lanes have neighbouring fours.
DEV void keep_four(Four v, u32 at, u32 cols, SharedAct* kept) {
#if INT8
    Quantised value = quantise(v);
    if (at / 32 < SHARED_ACTS(cols)) store_quantised(value, kept + at / 32, at / 4 % 8);
#else
    if (at < cols) *reinterpret_cast<Four*>(kept + at) = v;
#endif
}
