// The largest of each row: first of each segment of it, by a block each, then of the segments.
#pragma once
#include "order.h"

// Elements of a segment.
#define SEGMENT 2048

#include "ArgmaxParams"

// Value and column as one number: the greater of two is that of the larger value, and of the smaller column on a tie.
// None is 0. A value that is not finite makes the row's greatest NOT_FINITE, whose column is PADDING.
DEV u64 candidate(float value, u32 column) { return (u64)order_of(value) << 32 | ~column; }
#define NOT_FINITE 0xffffffff00000000ul
DEV u32 candidate_column(u64 candidate) { return ~(u32)candidate; }
DEV u32 candidate_order(u64 candidate) { return (u32)(candidate >> 32); }

KERNEL(argmax_segments)
(IN(float, x, 0), OUT(u64, best, 1), PARAMS(ArgmaxParams, p, 2)) {
    HERE;
    SHARED(u64, scratch, 32);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() / p.segments, segment = here.block_x() % p.segments;
    u64 mine = 0;
#pragma unroll 8
    for (u32 i = here.thread_x(); i < SEGMENT; i += here.block_width()) {
        u64 column = (u64)segment * SEGMENT + i;
        if (column >= p.cols) continue;
        float value = x[row * p.x_stride + column];
        mine = larger(mine, finite(value) ? candidate(value, (u32)column) : NOT_FINITE);
    }
    mine = block_largest(here, mine, scratch);
    if (here.thread_x() == 0) best[here.block_x()] = mine;
}

// The best of a row's segments, by a warp.
DEV u64 row_best(Here here, const GLOBAL u64* best, u32 row, u32 segments) {
    u64 mine = 0;
    for (u32 i = here.lane(); i < segments; i += 32) mine = larger(mine, best[(u64)row * segments + i]);
    return warp_largest(mine);
}

KERNEL(argmax_rows)
(IN(u64, best, 0), OUT(u32, out, 1), PARAMS(ArgmaxParams, p, 2)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() * (here.block_width() / 32) + here.warp();
    if (row >= p.rows) return;
    u64 found = row_best(here, best, row, p.segments);
    if (here.lane() == 0) out[row * p.out_stride] = candidate_column(found);
}
