// `IQ2_KS` on a GPU. See `mod.rs`. A span is as in `Q2_K`: 16 columns of each of the four 32s of half a block. The first 8 bytes
// of a block are one plane.
#pragma once
#include "format/shifted.h"

struct IQ2_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        uint2 head;
        // Which half of the block.
        u32 part;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<72, SPANS> block = {row, span};
        auto head = block.next<8>(0);
        return {slice.codes(block.next<16, 1>(8)), head.two_words(), span / 2 % 2};
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        // −31, −13, 1, 17.
        u32 table = shifted(0x1101f3e1u, (raw.head.x >> (16 + 4 * raw.part + piece) & 1) * 0x05050505u);
        fields(raw.qs, 2 * piece, 0x03030303u, words);
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = look_up_eight(table, table, words[i]);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        u32 group = 4 * raw.part + piece, low = raw.head.y >> 4 * group & 15, high = raw.head.x >> (24 + group) & 1;
        return {integer_scale(raw.head.x, low | high << 4, 16), 0.0f};
    }
};
