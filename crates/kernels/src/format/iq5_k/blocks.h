// `IQ5_K` on a GPU. See `mod.rs`. A span is as in `Q5_K`: 16 columns of each of two neighbouring 32s, with 16 bytes of `qh`,
// which the three other pairs of 32s read too. The first 16 bytes of a block are one plane.
#pragma once
#include "format/shifted.h"

struct IQ5_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs, qh, head;
        // Which pair of 32s, and which 16 of each.
        u32 pair, side;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<176, SPANS> block = {row, span};
        auto head = block.next<16>(0);
        auto qs = block.next<16, 1>(16);
        auto qh = block.next<32>(144);
        return {slice.codes(qs), slice.codes(qh.further(16 * (span % 2))), head.four_words(), span / 2 % 4, span % 2};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV u32 group(const THREAD Raw& raw, int piece) { return 4 * raw.pair + 2 * piece + raw.side; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 shift = is_shifted(raw.head, group(raw, piece)) * 0x02020202u;
        look_up_five(raw.qs, raw.qh, piece, 2 * raw.pair + piece, shift, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {scale_of(raw.head, group(raw, piece)), 0.0f}; }
};

DEV void copy_head(THREAD IQ5_K::Raw& raw, const THREAD IQ5_K::Raw& other) { raw.head = other.head; }
