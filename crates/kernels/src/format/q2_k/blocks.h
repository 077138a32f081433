// `Q2_K` on a GPU. See `mod.rs`. A span is 16 bytes of `qs`: 16 columns of each of the four 32s of half a block.
#pragma once
#include "weight.h"

struct Q2_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 0, MIDDLE = 2;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs;
        // The scales of the half block.
        uint2 scales;
        u32 d;
        // Which 16 of the 32.
        u32 side;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<84, SPANS> block = {row, span};
        auto scales = block.next<8, 2>(0);
        auto qs = block.next<16, 1>(16);
        auto d = block.next<4>(80);
        return {slice.codes(qs), scales.two_words(), d.word(), span % 2};
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        fields(raw.qs, 2 * piece, 0x03030303u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        u32 byte = (piece < 2 ? raw.scales.x : raw.scales.y) >> (16 * (piece % 2) + 8 * raw.side);
        return {rounded_product(half_of(raw.d), static_cast<float>(byte & 15)),
                rounded_product(half_of(raw.d >> 16), static_cast<float>(byte >> 4 & 15))};
    }
};
