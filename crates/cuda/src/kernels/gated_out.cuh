// Where the outputs of a gate and an up weight go, as they are and as activations.
#pragma once
#include "quantise.h"

// Outputs that are not read are null.
struct Gated {
    float* h;
    // The parts of `Act`.
    float* exact;
    Int8Block* int8;
    u32* bf16;
    u64 h_stride;
    u32 outputs;

    // 32 outputs from 32 · `block` on of `count` rows, which lie in `staged`, a row every `pitch` fours; `row_of` says
    // where they go. By all of the block's `warps`.
    template <class RowOf>
    DEV void write(const Four* staged, u32 pitch, u32 count, u32 block, u32 warps, RowOf row_of) const {
        u32 part = here.thread_x() % 8, column = block * 32 + 4 * part, blocks = (outputs + 31) / 32;
        u64 left = column < outputs ? outputs - column : 0;
        // A warp has four rows.
        for (u32 first = here.warp() * 4; first < count; first += warps * 4) {
            u32 t = first + here.lane() / 8;
            bool live = t < count && block < blocks;
            Four v = staged[(live ? t : 0) * pitch + part];
            u64 row = live ? row_of(t) : 0, inside = live ? left : 0;
            if (h) store_four(h + row * h_stride + column, v, inside, false);
            if (exact) store_four(exact + row * outputs + column, v, inside, outputs % 4 == 0 && inside > 0);
            u64 at = row * blocks + block;
            if (int8) quantise_four(v, int8 + at, bf16 + 16 * at, part, live);
        }
    }
    // Zeros for `blocks` times 32 outputs of a row, by way of 32 floats in `staged`.
    DEV void zero(Four* staged, u32 first_block, u32 blocks, u32 warps, u32 row) const {
        if (here.thread_x() < 8) staged[here.thread_x()] = {};
        barrier();
        for (u32 i = 0; i < blocks; i++) write(staged, 8, 1, first_block + i, warps, [&](u32) { return row; });
        barrier();
    }
};
