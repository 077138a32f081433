// `Q5_1` on a GPU: a span is a block. See `mod.rs`. `d`, `m` and `qh` are one plane of 8 bytes.
#pragma once
#include "weight.h"

struct Q5_1 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0, MIDDLE = 16;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs;
        uint2 head;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<24, SPANS> block = {row, span};
        auto head = block.next<8>(0);
        Raw raw = {slice.codes(block.next<16>(8)), head.two_words()};
        raw.head.y = slice.bits(raw.head.y);
        return raw;
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        fifth_bits(raw.head.y >> 16 * piece, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.head.x), -half_of(raw.head.x >> 16)}; }
};
