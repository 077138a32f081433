// The KV cache's layout, and writes to it.
#pragma once
#include "device.h"

#define KV_BLOCK 16u
#define GROUP_SIZE 32u

#include "WriteParams"

#ifdef CELLS_Q8_0
typedef i8 Cell;
#else
typedef u16 Cell;
#endif

// Writes a group of up to 32 elements, one for each lane. `row` is that of the cache: (block, head, token).
DEV void put(Here here, GLOBAL Cell* cells, GLOBAL u16* scales, u64 row, u32 width, u32 stride, u32 group, float x) {
    u32 i = group * GROUP_SIZE + here.lane();
#ifdef CELLS_Q8_0
    // The same codes as `Q8_0::encode`: the scale rounded to a finite f16, codes by division, NaN to the lowest code.
    float largest = warp_max(fabsf(x) > 0.0f ? fabsf(x) : 0.0f);
    u16 scale = float_to_half(fminf(rounded_quotient(largest, 127.0f), 65504.0f));
    float unit = half_to_float(scale);
    float code = unit == 0.0f ? x * 0.0f : rintf(rounded_quotient(x, unit));
    if (i < width) cells[row * stride + i] = Cell(int(fminf(fmaxf(code, -127.0f), 127.0f)));
    if (here.lane() == 0) scales[row * ((width + GROUP_SIZE - 1) / GROUP_SIZE) + group] = scale;
#else
    (void)scales;
    if (i < width) cells[row * stride + i] = float_to_half(x);
#endif
}

// The block of the cache that a token's key and value go to. False for padding, and for ids out of range, which raise the
// flag.
DEV bool block_of(const WriteParams p, const GLOBAL u32* slots, const GLOBAL u32* positions, const GLOBAL u32* table,
                  u32 token, GLOBAL u32* flag, THREAD u32& block) {
    u32 slot = slots[token], position = positions[token];
    if (slot == PADDING) return false;
    u32 column = position / KV_BLOCK;
    if (slot >= p.table_rows) {
        raise(flag, FLAG_SLOT, slot, token, p.table_rows);
        return false;
    }
    if (column >= p.table_cols) {
        raise(flag, FLAG_POSITION, position, token, p.table_cols * KV_BLOCK);
        return false;
    }
    u64 entry = u64(slot) * p.table_cols + column;
    block = table[entry];
    if (block >= p.blocks) {
        raise(flag, FLAG_BLOCK, block, u32(entry), p.blocks);
        return false;
    }
    return true;
}
