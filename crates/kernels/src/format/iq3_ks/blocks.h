// `IQ3_KS` on a GPU. See `mod.rs`. A span is as in `Q3_K`: 16 columns of each of the four 32s of half a block, with 16 bytes of
// `qh`, which the other half's span reads too. The first 8 bytes of a block are one plane.
#pragma once
#include "format/shifted.h"

struct IQ3_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs, qh;
        uint2 head;
        // Which half of the block.
        u32 part;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<104, SPANS> block = {row, span};
        auto head = block.next<8>(0);
        auto qs = block.next<16, 1>(8);
        auto qh = block.next<32>(72);
        return {slice.codes(qs), slice.codes(qh.further(16 * (span % 2))), head.two_words(), span / 2 % 2};
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 group = 4 * raw.part + piece, shift = (raw.head.x >> (24 + group) & 1) * 0x04040404u;
        // −63, −40, −23, −10, 1, 13, 28, 47.
        u32 low = shifted(0xf6e9d8c1u, shift), high = shifted(0x2f1c0d01u, shift);
        fields(raw.qs, 2 * piece, 0x03030303u, words);
        add_fields(raw.qh, group, 0x01010101u, 2, words);
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = look_up_eight(low, high, words[i]);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        u32 low = raw.head.y >> (8 * piece + 4 * raw.part) & 15, high = raw.head.x >> (16 + 4 * raw.part + piece) & 1;
        return {integer_scale(raw.head.x, low | high << 4, 16), 0.0f};
    }
};
