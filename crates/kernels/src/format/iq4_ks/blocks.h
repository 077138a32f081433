// `IQ4_KS` on a GPU: a span is a group of 32. See `mod.rs`.
#pragma once
#include "format/iq4_nl/blocks.h"
#include "format/shifted.h"

struct IQ4_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        uint2 scales;
        u32 d;
        // Which group of the block.
        u32 group;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<140, SPANS> block = {row, span};
        auto d = block.next<4>(0);
        auto scales = block.next<8>(4);
        return {slice.codes(block.next<16, 1>(12)), scales.two_words(), d.word(), span % 8};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 shift = (scale_byte(raw.scales, raw.group) & 1) * 0x04040404u;
        look_up(shifted(iq4_values(), shift), raw.qs, piece, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) {
        return {odd_scale(raw.d, scale_byte(raw.scales, raw.group)), 0.0f};
    }
};

DEV void copy_head(THREAD IQ4_KS::Raw& raw, const THREAD IQ4_KS::Raw& other) {
    raw.scales = other.scales;
    raw.d = other.d;
}
