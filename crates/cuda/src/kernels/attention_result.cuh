// Results of the kernels of long runs: f32, or with ROUNDED activations in bfloat16.
#pragma once
#include "attention.cuh"

#if ROUNDED
// Activations: a head is whole blocks of them.
typedef u16 Result;

// Writes 16 columns of a row as activations. A lane has columns `pair`, + 1, + 8 and + 9 of them. Their places are those of the
// even ones of all four lanes of the row, then of the odd ones, and a lane writes four places.
DEV void write_columns(u16* to, bool live, const float (&own)[4]) {
    const u32 lane = here.lane() % 4;
    const bool odd = lane & 1, upper = lane & 2;
    // The four lanes' numbers are transposed: halves of two words, then words.
    const u32 first = pack_bf16(own[0], own[1]), second = pack_bf16(own[2], own[3]);
    const u32 kept = odd ? second : first, got = shuffle_xor(odd ? first : second, 1);
    const u32 left = odd ? got : kept, right = odd ? kept : got;
    const u32 even_columns = __byte_perm(left, right, 0x5410), odd_columns = __byte_perm(left, right, 0x7632);
    const u32 mine = upper ? odd_columns : even_columns, other = shuffle_xor(upper ? even_columns : odd_columns, 2);
    if (live) *reinterpret_cast<uint2*>(to + 4 * lane) = upper ? uint2{other, mine} : uint2{mine, other};
}
#else
typedef float Result;
#endif
