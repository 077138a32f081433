// E4M3 floats with a scale on a GPU: a span is a block of 64 elements, four pieces of 16. See `mod.rs`.
#pragma once
#include "weight.h"

struct FP8_64 {
    MEMBER int BLOCK = 64, SCALED = 32, SPANS = 1, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false, FEW_REGISTERS = false;
    MEMBER int BYTES = 68;
    struct Raw {
        uint4 planes[4];
        u32 scale;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<BYTES, SPANS> block = {row, span};
        Raw raw;
        auto scale = block.template next<4>(0);
        raw.scale = scale.word();
#pragma unroll
        for (int i = 0; i < 4; i++) raw.planes[i] = slice.codes(block.template next<16>(4 + 16 * i));
        return raw;
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        fields(raw.planes[piece], 0, 0xffffffffu, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {float_of(raw.scale), 0.0f}; }
};

template <>
struct IsE4m3<FP8_64> {
    MEMBER bool VALUE = true;
};
