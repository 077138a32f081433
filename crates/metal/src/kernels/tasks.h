// Which rows of X and Y a block serves, of dense products and of experts.
#pragma once
#include "product.h"
#include "weight.h"

// Row ids, and the lists of `Groups`; `ProductParams::which` says which are bound.
struct Rows {
    const GLOBAL u32* ids;
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

// Four elements of a row of X from `column` on: zeros past its end. Rows of whole fours are aligned.
DEV float4 load_columns(const GLOBAL float* row, u32 column, u32 cols) {
    float4 four = float4(0.0f);
    if (cols % 4 == 0) {
        if (column < cols) four = *reinterpret_cast<const GLOBAL float4*>(row + column);
        return four;
    }
    for (u32 i = 0; i < 4; i++) {
        if (column + i < cols) four[i] = row[column + i];
    }
    return four;
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

// The number that is added to an output.
DEV float bias_of(const ProductParams p, const GLOBAL float* bias, u32 expert, u32 output) {
    return p.biased ? bias[expert * p.bias_stride + output] : 0.0f;
}

// A weight; or gate and up.
struct Weights {
    Parts weight;
    const GLOBAL u8* up;
    const GLOBAL float* bias;
    const GLOBAL float* up_bias;
};
// The row of gate, or of up.
DEV Row gated_row(const ProductParams p, const Weights weights, bool up, u32 expert, u32 output) {
    const GLOBAL u8* base = up ? weights.up : weights.weight.first;
    return weight_row(p, {base, base, base}, expert, output);
}

// Arguments of the kernels that multiply; and their operands: Weights, x, Rows, y and p.
#define MATMUL_ARGUMENTS                                                                                                 \
    (IN(u8, weight, 0), IN(u8, second, 1), IN(u8, third, 2), IN(float, x, 3), IN(u32, ids, 4), IN(u32, pairs, 5),        \
     IN(u32, tiles, 6), IN(u32, tile_count, 7), IN(float, bias, 8), INOUT(float, y, 9), INOUT(u32, flag, 10),            \
     PARAMS(ProductParams, p, 11))
#define MATMUL_OPERANDS {{weight, second, third}, weight, bias, bias}, x, {ids, pairs, tiles, tile_count, flag}, y, p
#define GATE_UP_ARGUMENTS                                                                                                \
    (IN(u8, gate, 0), IN(u8, up, 1), IN(float, x, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),      \
     IN(float, gate_bias, 6), IN(float, up_bias, 7), OUT(float, h, 8), PARAMS(ProductParams, p, 9))
#define GATE_UP_OPERANDS                                                                                                 \
    {{gate, gate, gate}, up, gate_bias, up_bias}, x, {pairs, pairs, tiles, tile_count, nullptr}, h, p
