// Which rows of X and Y a block serves, of dense products and of experts.
#pragma once
#include "product.h"
#include "weight.h"

// What the kernels are told of rows; `ProductParams::which` says what of it is there.
struct Rows {
    const GLOBAL u32* ids;
    // The parts of `Groups`.
    const GLOBAL u32* pairs;
    const GLOBAL u32* tiles;
    const GLOBAL u32* tile_count;
    GLOBAL u32* flag;
};

// Rows of Y or places in `pairs`, of one expert.
struct Task {
    u32 expert, first, end;
};

// The grid's y counts tasks: `tokens` rows of Y each, or tiles of experts and one block more, which zeroes what has no
// expert. A block takes every `task_stride`-th.
DEV u32 task_count(const ProductParams p, const Rows rows, u32 tokens) {
    return p.which == EXPERT_PAIRS ? rows.tile_count[0] : (p.y_rows + tokens - 1) / tokens;
}
DEV u32 task_stride(Here here, const ProductParams p) {
    return p.which == EXPERT_PAIRS ? here.grid_y() - 1 : here.grid_y();
}
DEV Task task_of(const ProductParams p, const Rows rows, u32 number, u32 tokens) {
    if (p.which != EXPERT_PAIRS) return {0, number * tokens, min((number + 1) * tokens, p.y_rows)};
    const GLOBAL u32* tile = rows.tiles + u64(3) * number;
    return {tile[0], tile[1], tile[1] + tile[2]};
}

// Zeroes outputs `from` to `to` of the pairs without an expert, which follow those of the last tile.
DEV void zero_pairs(Here here, const ProductParams p, const Rows rows, u32 from, u32 to, GLOBAL float* y) {
    u32 tiles = rows.tile_count[0], begin = 0, width = min(to, p.outputs) - min(from, p.outputs);
    if (tiles > 0) begin = rows.tiles[3 * u64(tiles) - 2] + rows.tiles[3 * u64(tiles) - 1];
    for (u64 i = here.thread_x(); i < u64(p.y_rows - begin) * width; i += here.block_width())
        y[rows.pairs[begin + i / width] * p.y_stride + from + i % width] = 0.0f;
}

// The row of Y for this place.
DEV u32 output_row(const ProductParams p, const Rows rows, u32 at) {
    return p.which == EXPERT_PAIRS ? rows.pairs[at] : at;
}

#define NO_ROW 0xffffffffu
// The row of X for this place, or NO_ROW: then the products are zeros.
DEV u32 input_row(const ProductParams p, const Rows rows, u32 at) {
    if (p.which == EXPERT_PAIRS) return rows.pairs[at] / p.pairs_per_row;
    if (p.which == ALL_ROWS) return at;
    u32 id = rows.ids[at * p.ids_stride];
    if (id < p.x_rows) return id;
    if (id != PADDING) raise(rows.flag, FLAG_MATMUL_ROW, id, at, p.x_rows);
    return NO_ROW;
}

// A weight's parts, whose outputs are side by side.
struct Parts {
    const GLOBAL u8* first;
    const GLOBAL u8* second;
    const GLOBAL u8* third;
};
DEV Row weight_row(const ProductParams p, const Parts parts, u32 expert, u32 output) {
    const GLOBAL u8* base = parts.first;
    u64 row = min(output, p.outputs - 1);
    if (row >= p.third) {
        base = parts.third;
        row -= p.third;
    } else if (row >= p.second) {
        base = parts.second;
        row -= p.second;
    }
    return {base + expert * p.matrix_bytes + row * p.row_bytes, p.blocks};
}

// What is added to an output.
DEV float bias_of(const ProductParams p, const GLOBAL float* bias, u32 expert, u32 output) {
    return p.biased ? bias[expert * p.bias_stride + output] : 0.0f;
}
