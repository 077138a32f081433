// `Q8_0` on a GPU: a span is half a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q8_0 {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 2, PIECES = 1, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        u32 d;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 34 * (span / 2);
        return {load_words<2>(block + 2 + 16 * (span % 2)), load_16(block)};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        return {slice.codes(row.base + plane(row, 2) + 16 * span), load_16(row.base + 2 * (span / 2))};
    }
#endif
    static DEV u32 at(u32 span, int) { return span; }
    static DEV void codes(const THREAD Raw& raw, int, THREAD u32 (&words)[4]) { fields(raw.qs, 0, 0xffffffffu, words); }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        scale = half_of(raw.d);
        min = 0.0f;
    }
};
