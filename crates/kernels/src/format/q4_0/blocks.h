// `Q4_0` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q4_0 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 8;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false, FEW_REGISTERS = true;
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
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) { nibbles(raw.qs, piece, words); }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
