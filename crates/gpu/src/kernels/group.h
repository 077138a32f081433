// Sorts the (token, slot) pairs by expert, ascending within an expert: a counting sort. Each warp counts the experts of a range
// of pairs in its own table; the counts become positions, which each warp gives to its pairs in order, so the result does not
// depend on the order of threads. Pairs without an expert come last: matrix operations zero their rows.
#pragma once
#include "reduce.h"

#include "GroupParams"

#define MAX_EXPERTS 1024

// The pairs of this warp, a part of the block's.
struct PairRange {
    u32 first, end;
};
DEV PairRange group_range(Here here, const GroupParams p) {
    u32 start = here.block_x() * p.chunk, stop = (u32)smaller((u64)p.pairs, (u64)start + p.chunk);
    u32 each = ((stop - start + p.tables - 1) / p.tables + 31) & ~31u;
    u64 first = smaller((u64)start + (u64)here.warp() * each, (u64)stop);
    if (here.warp() >= p.tables) first = stop;
    return {(u32)first, (u32)smaller(first + each, (u64)stop)};
}

DEV u32 group_id(const GLOBAL u32* ids, u32 pair, const GroupParams p) {
    u64 at = p.ids_stride == p.top_k ? (u64)pair : pair / p.top_k * p.ids_stride + pair % p.top_k;
    return ids[at];
}

// The column of an id. Ids before the first expert wrap, so these, ids after the last, and padding are in the last column.
DEV u32 group_column(u32 id, const GroupParams p) { return min(id - p.first, p.experts); }

// Columns of a table: one for each expert, and one for pairs without.
DEV u32 group_columns(const GroupParams p) { return p.experts + 1; }

// Counts each warp's experts. An id that is no expert's raises the flag and counts as none.
DEV void group_count(Here here, const GLOBAL u32* ids, GROUP u32* tables, GLOBAL u32* flag, const GroupParams p) {
    for (u32 i = here.thread_x(); i < p.tables * group_columns(p); i += here.block_width()) tables[i] = 0;
    barrier();
    PairRange mine = group_range(here, p);
    for (u32 pair = mine.first + here.lane(); pair < mine.end; pair += 32) {
        u32 id = group_id(ids, pair, p);
        add_atomic(&tables[here.warp() * group_columns(p) + group_column(id, p)], 1u);
        if (id >= p.all && id != PADDING && flag) raise(flag, FLAG_EXPERT, id, pair, p.all);
    }
    barrier();
}

// An expert's count over all warps.
DEV u32 group_total(const GROUP u32* tables, u32 expert, const GroupParams p) {
    u32 total = 0;
    for (u32 w = 0; w < p.tables; w++) total += tables[w * group_columns(p) + expert];
    return total;
}

// Counts in a column become positions from `start` on.
DEV void group_places(GROUP u32* tables, u32 column, u32 start, const GroupParams p) {
    for (u32 w = 0; w < p.tables; w++) {
        u32 count = tables[w * group_columns(p) + column];
        tables[w * group_columns(p) + column] = start;
        start += count;
    }
}

// Writes each pair at its position.
DEV void group_scatter(Here here, const GLOBAL u32* ids, GROUP u32* tables, GLOBAL u32* pairs, const GroupParams p) {
    PairRange mine = group_range(here, p);
    for (u32 base = mine.first; base < mine.end; base += 32) {
        u32 pair = base + here.lane();
        bool inside = pair < mine.end;
        u32 column = inside ? group_column(group_id(ids, pair, p), p) : PADDING;
        u32 same = warp_same(column), before = same & ((1u << here.lane()) - 1);
        GROUP u32* place = &tables[here.warp() * group_columns(p) + (inside ? column : 0)];
        if (inside) pairs[*place + count_ones(before)] = pair;
        warp_barrier();
        if (inside && before == 0) *place += count_ones(same);
        warp_barrier();
    }
}

// Where the pairs of this thread's expert begin, and the number of all pairs.
struct Starts {
    u32 pair, pairs;
};
// Writes the count of this thread's expert and the beginning of its pairs and tiles; the last expert's thread also the ends.
// `scratch` has 32 places, `first_pair` and `first_tile` one more than experts.
DEV Starts group_starts(Here here, u32 count, GLOBAL u32* counts, GLOBAL u32* tile_count, GROUP u64* scratch,
                        GROUP u32* first_pair, GROUP u32* first_tile, const GroupParams p) {
    u64 both = (u64)count << 32 | (count + p.tile_rows - 1) / p.tile_rows;
    RunningSum sum = block_running_sum(here, both, scratch);
    u64 before = sum.upto - both;
    u32 expert = here.thread_x();
    if (expert < p.experts) {
        counts[expert] = count;
        first_pair[expert] = (u32)(before >> 32);
        first_tile[expert] = (u32)before;
        if (expert + 1 == p.experts) {
            first_pair[p.experts] = (u32)(sum.total >> 32);
            first_tile[p.experts] = tile_count[0] = (u32)sum.total;
        }
    }
    return {(u32)(before >> 32), (u32)(sum.total >> 32)};
}

// Cuts the experts into tiles. `first_pair` and `first_tile` have a place for each expert and one more for the end.
DEV void group_tiles(Here here, const GROUP u32* first_pair, const GROUP u32* first_tile, GLOBAL u32* tiles,
                     const GroupParams p) {
    for (u32 tile = here.thread_x(); tile < first_tile[p.experts]; tile += here.block_width()) {
        // The last expert whose tiles begin here or before.
        u32 expert = 0;
        for (u32 step = MAX_EXPERTS / 2; step > 0; step /= 2)
            if (expert + step < p.experts && first_tile[expert + step] <= tile) expert += step;
        u32 first = first_pair[expert] + (tile - first_tile[expert]) * p.tile_rows;
        tiles[3 * (u64)tile] = expert;
        tiles[3 * (u64)tile + 1] = first;
        tiles[3 * (u64)tile + 2] = min(first_pair[expert + 1] - first, p.tile_rows);
    }
}

#ifdef __METAL_VERSION__
// Grids of 1, 2, … groups of outputs and a task for each tile and one more: launches that ask memory for their grid.
// `GRIDS` in `gpu/metal/moe.rs`.
#define GRIDS 64
DEV void group_grids(Here here, GLOBAL u32* tile_count, u32 tiles) {
    for (u32 i = here.thread_x(); i < GRIDS; i += here.block_width()) {
        tile_count[1 + 3 * i] = i + 1;
        tile_count[2 + 3 * i] = tiles + 1;
        tile_count[3 + 3 * i] = 1;
    }
}
#else
DEV void group_grids(Here, GLOBAL u32*, u32) {}
#endif

// All in one block, of at least as many threads as experts.
DEV void group_block(Here here, const GLOBAL u32* ids, GLOBAL u32* counts, GLOBAL u32* pairs, GLOBAL u32* tiles,
                     GLOBAL u32* tile_count, GLOBAL u32* flag, GROUP u32* tables, GROUP u64* scratch,
                     GROUP u32* first_pair, GROUP u32* first_tile, const GroupParams p) {
    group_count(here, ids, tables, flag, p);
    u32 expert = here.thread_x(), count = expert < p.experts ? group_total(tables, expert, p) : 0;
    Starts starts = group_starts(here, count, counts, tile_count, scratch, first_pair, first_tile, p);
    if (expert < p.experts) group_places(tables, expert, starts.pair, p);
    if (expert + 1 == p.experts) group_places(tables, p.experts, starts.pairs, p);
    barrier();
    group_tiles(here, first_pair, first_tile, tiles, p);
    group_grids(here, tile_count, first_tile[p.experts]);
    group_scatter(here, ids, tables, pairs, p);
}

KERNEL(group)
(IN(u32, ids, 0), OUT(u32, counts, 1), OUT(u32, pairs, 2), OUT(u32, tiles, 3), OUT(u32, tile_count, 4),
 INOUT(u32, flag, 5), PARAMS(GroupParams, p, 6)) {
    HERE;
    DYNAMIC_SHARED(u32, tables);
    SHARED(u64, scratch, 32);
    SHARED(u32, first_pair, MAX_EXPERTS + 1);
    SHARED(u32, first_tile, MAX_EXPERTS + 1);
    dependency_launch();
    dependency_wait();
    group_block(here, ids, counts, pairs, tiles, tile_count, flag, tables, scratch, first_pair, first_tile, p);
}

// The same of many pairs: each block counts a chunk, one block adds up, each block writes its chunk.
KERNEL(group_counts)
(IN(u32, ids, 0), OUT(u32, chunks, 1), INOUT(u32, flag, 2), PARAMS(GroupParams, p, 3)) {
    HERE;
    DYNAMIC_SHARED(u32, tables);
    dependency_launch();
    dependency_wait();
    group_count(here, ids, tables, flag, p);
    for (u32 column = here.thread_x(); column < group_columns(p); column += here.block_width())
        chunks[(u64)here.block_x() * group_columns(p) + column] = group_total(tables, column, p);
}

// Counts of a column in each chunk become positions from `place` on.
DEV void group_chunk_places(GLOBAL u32* chunks, u32 column, u32 place, const GroupParams p) {
    u32 number = (p.pairs + p.chunk - 1) / p.chunk;
#pragma unroll 8
    for (u32 chunk = 0; chunk < number; chunk++) {
        u64 at = (u64)chunk * group_columns(p) + column;
        u32 count = chunks[at];
        chunks[at] = place;
        place += count;
    }
}

// `chunks`: counts of each expert in each chunk become positions. One block with at least as many threads as experts.
KERNEL(group_sums)
(INOUT(u32, chunks, 0), OUT(u32, counts, 1), OUT(u32, tiles, 2), OUT(u32, tile_count, 3), PARAMS(GroupParams, p, 4)) {
    HERE;
    SHARED(u64, scratch, 32);
    SHARED(u32, first_pair, MAX_EXPERTS + 1);
    SHARED(u32, first_tile, MAX_EXPERTS + 1);
    dependency_launch();
    dependency_wait();
    u32 expert = here.thread_x(), count = 0;
    u32 number = (p.pairs + p.chunk - 1) / p.chunk;
    if (expert < p.experts) {
#pragma unroll 8
        for (u32 chunk = 0; chunk < number; chunk++) count += chunks[(u64)chunk * group_columns(p) + expert];
    }
    Starts starts = group_starts(here, count, counts, tile_count, scratch, first_pair, first_tile, p);
    if (expert + 1 == p.experts) group_chunk_places(chunks, p.experts, starts.pairs, p);
    if (expert < p.experts) group_chunk_places(chunks, expert, starts.pair, p);
    barrier();
    group_tiles(here, first_pair, first_tile, tiles, p);
    group_grids(here, tile_count, first_tile[p.experts]);
}

KERNEL(group_pairs)
(IN(u32, ids, 0), IN(u32, chunks, 1), OUT(u32, pairs, 2), PARAMS(GroupParams, p, 3)) {
    HERE;
    DYNAMIC_SHARED(u32, tables);
    dependency_launch();
    dependency_wait();
    group_count(here, ids, tables, nullptr, p);
    for (u32 column = here.thread_x(); column < group_columns(p); column += here.block_width())
        group_places(tables, column, chunks[(u64)here.block_x() * group_columns(p) + column], p);
    barrier();
    group_scatter(here, ids, tables, pairs, p);
}
