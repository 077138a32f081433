// What `blocks.h` of ik_llama.cpp's formats share: see `shifted.rs`.
#pragma once
#include "weight.h"

// Four values of a table, each larger by its byte of `shift`. No sum is above 127.
DEV u32 shifted(u32 values, u32 shift) { return ((values ^ 0x80808080u) + shift) ^ 0x80808080u; }
// A table for `add_shift`: its values plus 128. Tables are the same for all rows of weights, so they need no registers of each.
DEV uint4 biased(uint4 table) {
    return make_uint4(table.x ^ 0x80808080u, table.y ^ 0x80808080u, table.z ^ 0x80808080u, table.w ^ 0x80808080u);
}
// Values of a biased table, plus a shift.
DEV void add_shift(u32 shift, THREAD u32 (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = (words[i] + shift) ^ 0x80808080u;
}

DEV uint4 shift_right(uint4 words, u32 by) {
    return make_uint4(words.x >> by, words.y >> by, words.z >> by, words.w >> by);
}

// Four bytes below 16 as nibbles.
DEV u32 as_nibbles(u32 bytes) {
    u32 pairs = bytes | bytes >> 4;
    return (pairs & 0xff) | (pairs >> 8 & 0xff00);
}

// The bytes of a table of eight, in two words, for four indices in as many bytes.
DEV u32 look_up_eight(u32 low, u32 high, u32 indices) { return select_bytes(low, high, as_nibbles(indices)); }

// The values of codes of five bits plus a shift: of the upper half of the table where bit `piece` of a byte of `fifth` is set.
DEV void look_up_five(uint4 qs, uint4 fifth, int piece, u32 shift, THREAD u32 (&words)[4]) {
    // −126, −114, −103, −92, −83, −74, −65, −57, −50, −43, −36, −30, −24, −18, −12, −6,
    uint4 low = biased(make_uint4(0xa4998e82u, 0xc7bfb6adu, 0xe2dcd5ceu, 0xfaf4eee8u));
    // −1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121.
    uint4 high = biased(make_uint4(0x110b05ffu, 0x2b241d17u, 0x4d443b33u, 0x796d6157u));
    u32 bits[4];
    nibbles(qs, piece, words);
    fields(fifth, piece, 0x01010101u, bits);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // Not `look_up`, which finds both nibbles of each byte at once: those of the other piece would take registers.
        u32 four = as_nibbles(words[i]), lower = look_up_four(low, four);
        words[i] = lower ^ ((lower ^ look_up_four(high, four)) & bits[i] * 255);
    }
    add_shift(shift, words);
}

// A scale of an f16 and an integer.
DEV float integer_scale(u32 d, u32 bits, int zero) {
    return rounded_product(half_of(d), static_cast<float>(static_cast<int>(bits) - zero));
}

// What two groups need of their block in one word, because registers are few: an f16, and for each group a byte, whose
// lowest bits are its integer scale. Bit 6 selects the shifted table, if the format has one.
DEV u32 pack(u32 d, u32 first, u32 second) { return (d & 0xffff) | first << 16 | second << 24; }
DEV u32 packed_byte(u32 packed, int group) { return packed >> (16 + 8 * group) & 255; }

// Of the first 16 bytes of `IQ4_K` and `IQ5_K`: scale and bit of group t of 16.
DEV u32 group_byte(uint4 head, u32 t) {
    u32 low = (t < 8 ? head.z : head.w) >> 4 * (t % 8) & 15;
    return low | (head.y >> 2 * t & 3) << 4 | (head.x >> (16 + t) & 1) << 6;
}
DEV u32 is_shifted(u32 packed, int group) { return packed_byte(packed, group) >> 6 & 1; }
DEV float scale_of(u32 packed, int group) { return integer_scale(packed, packed_byte(packed, group) & 63, 32); }

// Of `IQ4_KS` and `IQ5_KS`: the byte of group g of 8, and its scale.
DEV u32 scale_byte(uint2 scales, u32 g) { return (g < 4 ? scales.x : scales.y) >> 8 * (g % 4) & 255; }
DEV float odd_scale(u32 d, u32 byte) {
    return rounded_product(float_of(d), static_cast<float>(static_cast<int>(byte & 254) - 127));
}
