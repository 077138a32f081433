// Which rows of X and Y a block serves, of dense products and of experts.
#pragma once
#include "product.h"

// Selections of rows; null if there is none.
struct Rows {
    // Which rows of X, or all.
    const u32* ids;
    // The parts of `Groups`.
    const u32 *pairs, *tiles, *tile_count;
    u32* flag;
};

// A pair for experts, else a row of Y.
DEV u32 output_row(const Rows& rows, u32 at) { return rows.tiles == nullptr ? at : rows.pairs[at]; }

#define NO_ROW 0xffffffffu
// The row of X for this pair or row of Y, or NO_ROW.
DEV u32 input_row(const ProductParams& p, const Rows& rows, u32 at) {
    if (rows.tiles != nullptr) return rows.pairs[at] / p.pairs_per_row;
    if (rows.ids == nullptr) return at;
    u32 id = rows.ids[at * p.ids_stride];
    if (id < p.x_rows) return id;
    if (id != PADDING) raise(rows.flag, FLAG_MATMUL_ROW, id, at, p.x_rows);
    return NO_ROW;
}

// Calls `serve(expert, first, end)` for chunks of at most TOKENS rows, and `zero(row)` for rows of Y without an expert.
// The grid's y counts chunks, or tiles at most and one more.
template <class Serve, class Zero>
DEV void each_row_chunk(const ProductParams& p, const Rows& rows, Serve serve, Zero zero) {
    bool experts = rows.tiles != nullptr;
    u32 tasks = experts ? *rows.tile_count : (p.y_rows + TOKENS - 1) / TOKENS;
    u32 stride = here.grid_y() - (experts ? 1 : 0);
    u32 busy = min(tasks, stride);
    if (experts && here.block_y() >= busy) {
        // Pairs without an expert follow those of the last tile. The blocks without a task share them.
        const u32* last = rows.tiles + 3 * (u64(tasks) - 1);
        u32 first = tasks == 0 ? 0 : last[1] + last[2];
        for (u32 i = first + here.block_y() - busy; i < p.y_rows; i += here.grid_y() - busy) zero(rows.pairs[i]);
        return;
    }
    for (u32 task = here.block_y(); task < tasks; task += stride) {
        u32 expert = 0, first = task * TOKENS, end = min(first + TOKENS, p.y_rows);
        if (experts) {
            const u32* tile = rows.tiles + u64(3) * task;
            expert = tile[0];
            first = tile[1];
            end = first + tile[2];
        }
        for (; first < end; first += TOKENS) serve(expert, first, min(first + TOKENS, end));
    }
}
