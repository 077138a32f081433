// `Q4_1` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q4_1 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0, MIDDLE = 8;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs;
        u32 dm;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<20, SPANS> block = {row, span};
        auto dm = block.next<4>(0);
        return {slice.codes(block.next<16>(4)), dm.word()};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) { nibbles(raw.qs, piece, words); }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.dm), -half_of(raw.dm >> 16)}; }
};
