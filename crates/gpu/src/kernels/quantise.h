// Rows as activations: see `act.rs`.
#pragma once
#include "act.h"
#include "reduce.h"

// What a kernel writes: representations of fast activations (`storage.rs`), exact ones beside them, and the rows themselves.
enum ActPart { PART_EXACT = 1, PART_INT8 = 2, PART_BF16 = 4, PART_OTHER = 8, PART_NORMED = 16 };

// The lane's four of 32 neighbouring elements as int8.
struct Quantised {
    u32 word;
    float scale;
    // Sums of the numbers of this half of the 32 and of the other.
    i32 sum, other;
};

// By 8 lanes with four each, a collective of the whole warp.
DEV Quantised quantise(Four v) {
    float wild = 0.0f, largest = 0.0f;
    for (u32 i = 0; i < 4; i++) {
        wild = v.at[i] * 0.0f == 0.0f ? wild : 1.0f;
        largest = fmaxf(largest, fabsf(v.at[i]));
    }
    for (int mask = 4; mask > 0; mask /= 2) {
        wild = fmaxf(wild, shuffle_xor(wild, mask));
        largest = fmaxf(largest, shuffle_xor(largest, mask));
    }
    // A block that is not finite gets a NaN as its scale: it must show in the output, not vanish.
    bool finite = wild == 0.0f;
    Quantised result = {0, finite ? largest / 127.0f : float_of(0x7fc00000u), 0, 0};
    // A block of denormals has no inverse in f32; it quantises to zeros.
    float inverse = finite && largest > 1e-36f ? 127.0f / largest : 0.0f;
    for (u32 i = 0; i < 4; i++) {
        i32 q = finite ? nearest_int(rounded_product(v.at[i], inverse)) : 0;
        result.word |= ((u32)q & 0xff) << 8 * i;
        result.sum += q;
    }
    for (int mask = 2; mask > 0; mask /= 2) result.sum += shuffle_xor(result.sum, mask);
    result.other = shuffle_xor(result.sum, 4);
    return result;
}

// The part of a block that lane number `part` of its eight writes.
template <class Pointer>
DEV void store_quantised(Quantised value, Pointer block, u32 part) {
    block->q[part] = value.word;
    if (part % 4 == 0) {
        block->half_sums[part / 4] = value.sum;
        block->scaled_half_sums[part / 4] = rounded_product(value.scale, (float)value.sum);
        block->padding[part / 4] = 0;
    }
    if (part == 0) {
        block->scale = value.scale;
        block->sum = rounded_product(value.scale, (float)(value.sum + value.other));
    }
}

// The part of 32 neighbouring elements as bfloat16 that lane number `part` of their eight writes. For CUDA's tensor cores the
// even ones of 16 columns come before the odd ones (`Act` in `act.rs`).
DEV void store_bf16(Four v, GLOBAL u32* bf16, u32 part) {
    u32 pair = part / 4 * 8 + part % 4;
    bf16[pair] = pack_bf16(v.at[0], v.at[2]);
    bf16[pair + 4] = pack_bf16(v.at[1], v.at[3]);
}

// 32 neighbouring elements as int8 and as bfloat16, by 8 lanes with four each, of which this is number `part`. A
// collective of the whole warp; lanes without a block have `live` false.
DEV void quantise_four(Four v, GLOBAL Int8Block* block, GLOBAL u32* bf16, u32 part, bool live) {
    Quantised value = quantise(v);
    if (!live) return;
    store_bf16(v, bf16, part);
    store_quantised(value, block, part);
}

// The same as int8, as bfloat16, or both: what is in `parts`.
DEV void quantise_parts(u32 parts, Four v, GLOBAL Int8Block* block, GLOBAL u32* bf16, u32 part, bool live) {
    if (live && parts & PART_BF16) store_bf16(v, bf16, part);
    if (!(parts & PART_INT8)) return;
    Quantised value = quantise(v);
    if (live) store_quantised(value, block, part);
}
