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
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<136, SPANS> block = {row, span};
        auto head = block.next<8>(0);
        return {slice.codes(block.next<16, 1>(8)), head.two_words(), span % 8};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(iq4_values(), raw.qs, piece, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) {
        u32 low = raw.head.y >> 4 * raw.group & 15, high = raw.head.x >> (16 + 2 * raw.group) & 3;
        return {rounded_product(half_of(raw.head.x), static_cast<float>(static_cast<int>(low | high << 4) - 32)), 0.0f};
    }
};

DEV void copy_head(THREAD IQ4_XS::Raw& raw, const THREAD IQ4_XS::Raw& other) { raw.head = other.head; }
