// `IQ4_NL` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

// The value of each code: −127, −104, −83, −65, −49, −35, −22, −10, 1, 13, 25, 38, 53, 69, 89, 113.
DEV uint4 iq4_values() { return make_uint4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u); }

struct IQ4_NL {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        u32 d;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<18, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        return {slice.codes(block.next<16>(2)), d.word_16()};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(iq4_values(), raw.qs, piece, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
