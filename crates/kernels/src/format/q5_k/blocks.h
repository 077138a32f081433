// `Q5_K` on a GPU. See `mod.rs`. A span is as in `Q4_K`, with 16 bytes of `qh`, which the three other pairs of groups
// read too.
#pragma once
#include "format/q4_k/blocks.h"

struct Q5_K {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0, MIDDLE = 16;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs, qh, head;
        // Which pair of groups.
        u32 pair;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<176, SPANS> block = {row, span};
        auto head = block.next<16>(0);
        auto qh = block.next<32>(16);
        auto qs = block.next<16, 1>(48);
        return {slice.codes(qs), slice.codes(qh.further(16 * (span % 2))), head.four_words(), span / 2 % 4};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        add_fields(raw.qh, 2 * raw.pair + piece, 0x01010101u, 4, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return scale_min(raw.head, raw.pair, piece); }
};

DEV void copy_head(THREAD Q5_K::Raw& raw, const THREAD Q5_K::Raw& other) { raw.head = other.head; }
