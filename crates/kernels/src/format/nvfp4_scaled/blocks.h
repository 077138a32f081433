// `NVFP4` with the scale of its tensor on a GPU: a span is a block of 64 elements. See `mod.rs`. The scales are one plane of
// 8 bytes.
#pragma once
#include "format/nvfp4/blocks.h"

struct NVFP4_SCALED {
    MEMBER int BLOCK = 64, SCALED = 16, SPANS = 1, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        NVFP4::Raw block;
        u32 outer;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<40, SPANS> block = {row, span};
        auto head = block.next<8>(0);
        auto low = block.next<16>(8);
        uint2 scales = head.two_words();
        auto high = block.next<16>(24);
        return {{low.four_words(), high.four_words(), scales.y, slice.first()}, scales.x};
    }
    static DEV u32 at(u32 span, int piece) { return NVFP4::at(span, piece); }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) { NVFP4::codes(raw.block, piece, words); }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(float_of(raw.outer), NVFP4::scale(raw.block, piece).scale), 0.0f};
    }
};
