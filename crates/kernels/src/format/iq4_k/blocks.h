// `IQ4_K` on a GPU: a span is 32 columns, two groups. See `mod.rs`. The first 16 bytes of a block are one plane.
#pragma once
#include "format/iq4_nl/blocks.h"
#include "format/shifted.h"

struct IQ4_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        // Of both groups.
        u32 head;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<144, SPANS> block = {row, span};
        auto first = block.next<16>(0);
        uint4 head = first.four_words();
        u32 group = 2 * (span % 8);
        return {slice.codes(block.next<16, 1>(16)), pack(head.x, group_byte(head, group), group_byte(head, group + 1))};
    }
    static DEV u32 at(u32 span, int piece) { return 2 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up(biased(iq4_values()), raw.qs, piece, words);
        add_shift(is_shifted(raw.head, piece) * 0x04040404u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {scale_of(raw.head, piece), 0.0f}; }
};
