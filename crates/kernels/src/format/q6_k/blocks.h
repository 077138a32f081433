// `Q6_K` on a GPU. See `mod.rs`. A span is 16 columns of each of the four 32s of half a block.
#pragma once
#include "weight.h"

struct Q6_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 32;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false;
    struct Raw {
        // Low bits of the first and third 32 and of the second and fourth; high bits of all.
        uint4 even, odd, high;
        // The scales of the half block.
        uint2 scales;
        u32 d;
        // Which 16 of the 32.
        u32 side;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
#ifdef MAPPED_ROWS
        u32 part = span / 2 % 2, side = span % 2;
        Field<210, 4> low = {row.base, span, 64 * part + 16 * side}, high = {row.base, span, 128 + 32 * part + 16 * side};
        Field<210, 4> scales = {row.base, span, 192 + 8 * part}, d = {row.base, span, 208};
        return {slice.codes(low), slice.codes(low.further(32)), slice.codes(high), scales.two_words(), d.word_16(), side};
#else
        u32 block = span / 4, part = span / 2 % 2, side = span % 2;
        const GLOBAL u8* d = row.base + plane(row, 16);
        // The first half's low bits and high bits, then the second's.
        const GLOBAL u8* low = d + plane(row, 2) + part * (plane(row, 64) + plane(row, 32));
        const GLOBAL u8* high = low + plane(row, 64) + 32 * block + 16 * side;
        low += 64 * block + 16 * side;
        return {slice.codes(low), slice.codes(low + 32), slice.codes(high),
                load_64(row.base + 8 * (span / 2)), load_16(d + before_plane(row, 2) + 2 * block), side};
#endif
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(piece % 2 == 0 ? raw.even : raw.odd, piece / 2, words);
        add_fields(raw.high, 2 * piece, 0x03030303u, 4, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        u32 byte = (piece < 2 ? raw.scales.x : raw.scales.y) >> (16 * (piece % 2) + 8 * raw.side);
        return {rounded_product(half_of(raw.d), static_cast<float>(static_cast<i8>(byte))), 0.0f};
    }
};
