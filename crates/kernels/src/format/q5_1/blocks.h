// `Q5_1` on a GPU: a span is a block. See `mod.rs`. `d`, `m` and `qh` are one plane of 8 bytes.
#pragma once
#include "weight.h"

struct Q5_1 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs;
        uint2 head;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 24 * span;
        return {load_words<8>(block + 8), load_64(block)};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Raw raw = {slice.codes(row.base + plane(row, 8) + 16 * span), load_64(row.base + 8 * span)};
        raw.head.y = slice.bits(raw.head.y);
        return raw;
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        fifth_bits(raw.head.y >> 16 * piece, words);
    }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        scale = half_of(raw.head.x);
        min = -half_of(raw.head.x >> 16);
    }
};
