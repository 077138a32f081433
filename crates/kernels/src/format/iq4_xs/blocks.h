// `IQ4_XS` on a GPU: a span is a group of 32. See `mod.rs`. `d` and the scales are one plane of 8 bytes.
#pragma once
#include "format/iq4_nl/blocks.h"

struct IQ4_XS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        uint2 head;
        // Which group of the block.
        u32 group;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 136 * (span / 8);
        return {load_words<8>(block + 8 + 16 * (span % 8)), load_64(block), span % 8};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        return {slice.codes(row.base + plane(row, 8) + 16 * span), load_64(row.base + 8 * (span / 8)),
                span % 8};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(iq4_values(), raw.qs, piece, words);
    }
    static DEV void scale(const THREAD Raw& raw, int, THREAD float& scale, THREAD float& min) {
        u32 low = raw.head.y >> 4 * raw.group & 15, high = raw.head.x >> (16 + 2 * raw.group) & 3;
        scale = rounded_product(half_of(raw.head.x), static_cast<float>(static_cast<int>(low | high << 4) - 32));
        min = 0.0f;
    }
};

DEV void copy_head(THREAD IQ4_XS::Raw& raw, const THREAD IQ4_XS::Raw& other) { raw.head = other.head; }
