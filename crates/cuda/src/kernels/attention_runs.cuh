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

// The part of a long run that is in the tile: tokens `begin..end` of the neighbours, but for those that see more than the table's
// context; the kernel of splits zeroes their output. Rows of other runs are not live.
struct Run {
    const Tile& tile;
    const u32 *near_positions, *near_lasts;
    u32 begin, end, first_position, last_position;
    u32 context;  // positions of the table
    // The last position that all of its tokens see, and that one of them sees.
    u32 all_last, last;

    DEV u32 token_of(u32 row) const { return row / tile.heads; }
    DEV bool live(u32 row) const {
        u32 i = LONG_RUN + token_of(row);
        return i >= begin && i < end && near_lasts[i] < context;
    }
    DEV u32 position(u32 row) const { return near_positions[LONG_RUN + token_of(row)]; }
    DEV u32 last_of(u32 row) const { return near_lasts[LONG_RUN + token_of(row)]; }
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

// Slots and positions of the tile's tokens and the last positions that they see, in shared memory, after those of LONG_RUN tokens before it and before those of as
// many after it: they decide whether a run is long.
struct Neighbours {
    u32 *slots, *positions, *lasts;

    DEV void load(
        const AttentionParams& p, const Tile& tile, const u32* all_slots, const u32* all_positions, const u32* ends
    ) const {
        for (u32 i = here.thread_x(); i < tile.tokens + 2 * LONG_RUN; i += THREADS) {
            u32 token = tile.first + i;
            bool inside = token >= LONG_RUN && token - LONG_RUN < p.tokens;
            slots[i] = inside ? all_slots[token - LONG_RUN] : PADDING;
            positions[i] = inside ? all_positions[token - LONG_RUN] : 0;
            lasts[i] = inside ? last_seen(all_positions, ends, token - LONG_RUN) : 0;
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
    DEV Run run(const AttentionParams& p, const Tile& tile, u32 begin, u32 end, bool with_ends) const {
        u32 context = p.context_columns * KV_BLOCK;
        u32 first = positions[begin], last = min(first + (end - begin), context) - 1;
        Run run = {tile, positions, lasts, begin, end, first, last, context, first, last};
        if (!with_ends) return run;
        run.all_last = context - 1;
        run.last = first;
        for (u32 i = begin; i < end; i++) {
            if (lasts[i] >= context) continue;
            run.all_last = min(run.all_last, lasts[i]);
            run.last = max(run.last, lasts[i]);
        }
        return run;
    }
};
