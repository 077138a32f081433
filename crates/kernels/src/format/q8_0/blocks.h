// `Q8_0` on a GPU: a span is half a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q8_0 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 2, PIECES = 1, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs;
        u32 d;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<34, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        return {slice.codes(block.next<16, 1>(2)), d.word_16()};
    }
    static DEV u32 at(u32 span, int) { return span; }
    static DEV void codes(const THREAD Raw& raw, int, THREAD u32 (&words)[4]) { fields(raw.qs, 0, 0xffffffffu, words); }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
