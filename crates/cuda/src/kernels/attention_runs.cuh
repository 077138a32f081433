// Pieces of the kernels of long runs: the tokens and heads of a thread block, and the long runs among them. THREADS and ROWS:
// of a thread block.
#pragma once
#include "attention.cuh"

#define MAX_TILE_TOKENS ROWS

// A thread block's part of the batch: tokens from `first` on, and query heads of one KV head. Tiles from the end of the
// batch come first: in a prompt they see most.
struct Tile {
    u32 kv_head, head_first, heads;
    u32 first, tokens, present;  // `present`: tokens that are in the batch
};

DEV Tile tile_of(const AttentionParams& p) {
    u32 group = p.group, chunks = (group + ROWS - 1) / ROWS;
    u32 chunk = here.block_x() % chunks, kv_head = here.block_x() / chunks % p.kv_heads;
    u32 head_first = kv_head * group + chunk * ROWS;
    u32 heads = group - chunk * ROWS < ROWS ? group - chunk * ROWS : ROWS;
    u32 tokens = group < ROWS ? ROWS / group : 1;
    u32 count = (p.tokens + tokens - 1) / tokens;
    u32 first = (count - 1 - here.block_x() / chunks / p.kv_heads) * tokens;
    return {kv_head, head_first, heads, first, tokens, p.tokens - first < tokens ? p.tokens - first : tokens};
}

// The part of a long run that is in the tile: tokens `begin..end` of the neighbours, but for those that are out of the table's
// context, which are the last ones; their output is zero already. Rows of other runs are not live.
struct Run {
    const Tile& tile;
    const u32* near_positions;
    u32 begin, end, first_position, last_position;

    DEV u32 token_of(u32 row) const { return row / tile.heads; }
    DEV bool live(u32 row) const {
        u32 i = LONG_RUN + token_of(row);
        return i >= begin && i < end && near_positions[i] <= last_position;
    }
    DEV u32 position(u32 row) const { return near_positions[LONG_RUN + token_of(row)]; }
    // By the block's first threads.
    template <class Result>
    DEV void write_zeros(const AttentionParams& p, Result* out, u32 threads) const {
        u32 width = tile.heads * p.value_width;
        for (u32 i = here.thread_x(); i < (last_position - first_position + 1) * width; i += threads) {
            u32 token = tile.first + begin - LONG_RUN + i / width;
            out[token * p.out_stride + u64(tile.head_first) * p.value_width + i % width] = 0;
        }
    }
};

// Slots and positions of the tile's tokens, in shared memory, after those of LONG_RUN tokens before it and before those of as
// many after it: they decide whether a run is long.
struct Neighbours {
    u32 *slots, *positions;

    DEV void load(const AttentionParams& p, const Tile& tile, const u32* all_slots, const u32* all_positions) const {
        for (u32 i = here.thread_x(); i < tile.tokens + 2 * LONG_RUN; i += THREADS) {
            u32 token = tile.first + i;
            bool inside = token >= LONG_RUN && token - LONG_RUN < p.tokens;
            slots[i] = inside ? all_slots[token - LONG_RUN] : PADDING;
            positions[i] = inside ? all_positions[token - LONG_RUN] : 0;
        }
        barrier();
    }
    // Whether token i comes right after the one before it.
    DEV bool joined(u32 i) const { return follows(slots[i - 1], positions[i - 1], slots[i], positions[i]); }
    DEV u32 run_end(u32 begin, u32 last) const {
        u32 end = begin + 1;
        while (end < last && joined(end)) end++;
        return end;
    }
    DEV bool long_run(u32 begin, u32 end) const {
        u32 length = end - begin;
        for (u32 i = begin; length < LONG_RUN && joined(i); i--) length++;
        for (u32 i = end; length < LONG_RUN && joined(i); i++) length++;
        return length >= LONG_RUN;
    }
    // Whether the kernel takes the run `begin..end`, of which more may lie outside of the tile.
    DEV bool serves(const AttentionParams& p, u32 begin, u32 end) const {
        u32 slot = slots[begin];
        if (slot == PADDING || slot >= p.table_rows) return false;
        return long_run(begin, end) && positions[begin] / KV_BLOCK < p.context_columns;
    }
    DEV Run run(const AttentionParams& p, const Tile& tile, u32 begin, u32 end) const {
        u32 first = positions[begin], last = first + (end - begin) - 1;
        if (last / KV_BLOCK >= p.context_columns) last = p.context_columns * KV_BLOCK - 1;
        return {tile, positions, begin, end, first, last};
    }
};
