// `IQ4_NL` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

// The value of each code: −127, −104, −83, −65, −49, −35, −22, −10, 1, 13, 25, 38, 53, 69, 89, 113.
DEV uint4 iq4_values() { return make_uint4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u); }

struct IQ4_NL {
    MEMBER int BLOCK = 32, SCALED = 32, SPANS = 1, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        u32 d;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 18 * span;
        return {load_words<2>(block + 2), load_16(block)};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        return {slice.codes(row.base + plane(row, 2) + 16 * span), load_16(row.base + 2 * span)};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(iq4_values(), raw.qs, piece, words);
    }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        scale = half_of(raw.d);
        min = 0.0f;
    }
};
