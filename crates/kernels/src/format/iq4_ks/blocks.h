// `IQ4_KS` on a GPU: a span is a group of 32. See `mod.rs`.
#pragma once
#include "format/iq4_nl/blocks.h"
#include "format/shifted.h"

struct IQ4_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        // The scale of the row, and the byte of the group.
        u32 d, scale;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<140, SPANS> block = {row, span};
        auto d = block.next<4>(0);
        auto scales = block.next<8>(4);
        return {slice.codes(block.next<16, 1>(12)), d.word(), scale_byte(scales.two_words(), span % 8)};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(biased(iq4_values()), raw.qs, piece, words);
        add_shift((raw.scale & 1) * 0x04040404u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {odd_scale(raw.d, raw.scale), 0.0f}; }
};
