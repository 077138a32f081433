// `MXFP4` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct MXFP4 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        u32 e;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<17, SPANS> block = {row, span};
        auto e = block.next<1>(0);
        return {slice.codes(block.next<16>(1)), e.byte()};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        // Twice the value of each code: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
        look_up(make_uint4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu), raw.qs, piece, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) {
        // 2^(e − 128): subnormal for e < 2.
        return {float_of(raw.e < 2 ? 0x00200000u << raw.e : (raw.e - 1) << 23), 0.0f};
    }
};
