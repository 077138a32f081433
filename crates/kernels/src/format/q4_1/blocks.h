// `Q4_1` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q4_1 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs;
        u32 dm;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 20 * span;
        return {load_words<4>(block + 4), load_32(block)};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        return {slice.codes(row.base + plane(row, 4) + 16 * span), load_32(row.base + 4 * span)};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) { nibbles(raw.qs, piece, words); }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        scale = half_of(raw.dm);
        min = -half_of(raw.dm >> 16);
    }
};
