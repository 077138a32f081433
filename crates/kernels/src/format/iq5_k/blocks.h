// `IQ5_K` on a GPU. See `mod.rs`. A span is as in `Q5_K`: 16 columns of each of two neighbouring 32s, with 16 bytes of `qh`,
// which the three other pairs of 32s read too. The first 16 bytes of a block are one plane.
#pragma once
#include "format/shifted.h"

struct IQ5_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // `qh` with the bits of this span lowest.
        uint4 qs, qh;
        // Of the group of each piece.
        u32 head;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<176, SPANS> block = {row, span};
        auto first = block.next<16>(0);
        uint4 head = first.four_words();
        auto qs = block.next<16, 1>(16);
        auto qh = block.next<32>(144);
        u32 pair = span / 2 % 4, group = 4 * pair + span % 2;
        return {slice.codes(qs), shift_right(slice.codes(qh.further(16 * (span % 2))), 2 * pair),
                pack(head.x, group_byte(head, group), group_byte(head, group + 2))};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up_five(raw.qs, raw.qh, piece, is_shifted(raw.head, piece) * 0x02020202u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {scale_of(raw.head, piece), 0.0f}; }
};
