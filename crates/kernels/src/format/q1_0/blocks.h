// `Q1_0` on a GPU: a span is half a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q1_0 {
    MEMBER int BLOCK = 128, SCALED = 32, SPANS = 2, PIECES = 4, ZERO = 1;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false, FEW_REGISTERS = true;
    struct Raw {
        u32 low, high, d;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<18, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto bits = block.next<8, 1>(2);
        uint2 qs = bits.two_words();
        return {slice.bits(qs.x), slice.bits(qs.y), d.word_16()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 bits = (piece < 2 ? raw.low : raw.high) >> 16 * (piece % 2);
#pragma unroll
        for (int j = 0; j < 4; j++) words[j] = single_bits(bits >> 4 * j, 1);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
