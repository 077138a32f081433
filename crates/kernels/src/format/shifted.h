// What `blocks.h` of ik_llama.cpp's formats share: see `shifted.rs`.
#pragma once
#include "weight.h"

// Four values of a table, each larger by its byte of `shift`. No sum is above 127.
DEV u32 shifted(u32 values, u32 shift) { return ((values ^ 0x80808080u) + shift) ^ 0x80808080u; }
DEV uint4 shifted(uint4 table, u32 shift) {
    return make_uint4(shifted(table.x, shift), shifted(table.y, shift), shifted(table.z, shift), shifted(table.w, shift));
}

// The bytes of a table of eight, in two words, for four indices in as many bytes.
DEV u32 look_up_eight(u32 low, u32 high, u32 indices) {
    u32 pairs = indices | indices >> 4;
    return select_bytes(low, high, (pairs & 0xff) | (pairs >> 8 & 0xff00));
}

// The values of codes of five bits, without their shift: the upper half of the table where bit `at` of a byte of `fifth` is set.
DEV void look_up_five(uint4 qs, uint4 fifth, int piece, int at, u32 shift, THREAD u32 (&words)[4]) {
    // −126, −114, −103, −92, −83, −74, −65, −57, −50, −43, −36, −30, −24, −18, −12, −6,
    uint4 low = make_uint4(0xa4998e82u, 0xc7bfb6adu, 0xe2dcd5ceu, 0xfaf4eee8u);
    // −1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121.
    uint4 high = make_uint4(0x110b05ffu, 0x2b241d17u, 0x4d443b33u, 0x796d6157u);
    u32 upper[4], bits[4];
    look_up(shifted(low, shift), qs, piece, words);
    look_up(shifted(high, shift), qs, piece, upper);
    fields(fifth, at, 0x01010101u, bits);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] ^= (words[i] ^ upper[i]) & bits[i] * 255;
}

// A scale of an f16 and an integer.
DEV float integer_scale(u32 d, u32 bits, int zero) {
    return rounded_product(half_of(d), static_cast<float>(static_cast<int>(bits) - zero));
}

// Of the first 16 bytes of `IQ4_K` and `IQ5_K`: 1 if group t of 16 has the shifted table, and its scale.
DEV u32 is_shifted(uint4 head, u32 t) { return head.x >> (16 + t) & 1; }
DEV float scale_of(uint4 head, u32 t) {
    u32 low = (t < 8 ? head.z : head.w) >> 4 * (t % 8) & 15;
    return integer_scale(head.x, low | (head.y >> 2 * t & 3) << 4, 32);
}

// Of `IQ4_KS` and `IQ5_KS`: the byte of group g of 8, and its scale.
DEV u32 scale_byte(uint2 scales, u32 g) { return (g < 4 ? scales.x : scales.y) >> 8 * (g % 4) & 255; }
DEV float odd_scale(u32 d, u32 byte) {
    return rounded_product(float_of(d), static_cast<float>(static_cast<int>(byte & 254) - 127));
}
