// `Q5_0` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q5_0 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 16;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        u32 qh, d;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 22 * span;
        return {load_words<2>(block + 6), load_word<2>(block + 2), load_16(block)};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        const GLOBAL u8* qh = row.base + plane(row, 2);
        return {slice.codes(qh + plane(row, 4) + 16 * span), slice.bits(load_32(qh + 4 * span)),
                load_16(row.base + 2 * span)};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        fifth_bits(raw.qh >> 16 * piece, words);
    }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        scale = half_of(raw.d);
        min = 0.0f;
    }
};
