// What `blocks.h` of the formats with grids share. A point is a nibble for each weight, weight i at bit 4 · i: a digit of
// three bits, to which bit 3 adds the sign. See `grid.rs`.
#pragma once
#include "weight.h"

// The entries of a table of 16 bytes for four nibbles, of which each takes its highest bit from four `signs`.
DEV u32 signed_four(uint4 table, u32 nibbles, u32 signs) {
    // Bits 0, 1, 2 and 3 to bits 0, 1, 8 and 9, and those to 3, 7, 11 and 15: no copies meet.
    u32 pairs = signs * 0x41u & 0x303u;
    return look_up_four(table, (nibbles & 0x7777u) | (pairs * 0x48u & 0x8888u));
}

// Seven sign bits, and an eighth that makes the number of ones even.
DEV u32 even_signs(u32 seven) { return seven | (count_ones(seven) & 1) << 7; }

// 2 · n + 1, of the lowest bits.
DEV float odd_scale(u32 bits, u32 mask) { return static_cast<float>(2 * (bits & mask) + 1); }

// Half j of a point of eight weights.
DEV u32 half_point(u32 point, u32 j) { return point >> 16 * (j % 2); }

// The codes of IQ2: ±8, ±25, ±43.
DEV uint4 iq2_values() { return make_uint4(0x002b1908u, 0u, 0x00d5e7f8u, 0u); }
// Of IQ1 in eighths: −7, 1, 9, and −9, −1, 7 where an eighth is subtracted.
DEV uint4 iq1_values() { return make_uint4(0x000901f9u, 0u, 0x0007fff7u, 0u); }
