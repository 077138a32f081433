// `Q2_K` on a GPU. See `mod.rs`. A span is 16 bytes of `qs`: 16 columns of each of the four 32s of half a block.
#pragma once
#include "weight.h"

struct Q2_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs;
        // The scales of the half block.
        uint2 scales;
        u32 d;
        // Which 16 of the 32.
        u32 side;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 84 * (span / 4);
        return {load_words<4>(block + 16 + 16 * (span % 4)), load_words_2<4>(block + 8 * (span / 2 % 2)),
                load_32(block + 80), span % 2};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        const GLOBAL u8* qs = row.base + plane(row, 16);
        const GLOBAL u8* d = qs + plane(row, 64);
        return {slice.codes(qs + 16 * span), load_64(row.base + 8 * (span / 2)),
                load_32(d + 4 * (span / 4)), span % 2};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        fields(raw.qs, 2 * piece, 0x03030303u, words);
    }
    static DEV void scale(const THREAD Raw& raw, int piece, THREAD float& scale, THREAD float& min) {
        u32 byte = (piece < 2 ? raw.scales.x : raw.scales.y) >> (16 * (piece % 2) + 8 * raw.side);
        scale = rounded_product(half_of(raw.d), static_cast<float>(byte & 15));
        min = rounded_product(half_of(raw.d >> 16), static_cast<float>(byte >> 4 & 15));
    }
};
