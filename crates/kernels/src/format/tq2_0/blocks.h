// `TQ2_0` on a GPU. See `mod.rs`. A span is 16 bytes of `qs`: 16 columns of each of the four 32s of half a block.
// So neighbouring pieces are no neighbouring columns, and a piece has a scale of its own.
#pragma once
#include "weight.h"

struct TQ2_0 {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 1;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs;
        u32 d;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<66, SPANS> block = {row, span};
        auto qs = block.next<16, 1>(0);
        auto d = block.next<2>(64);
        return {slice.codes(qs), d.word_16()};
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        fields(raw.qs, 2 * piece, 0x03030303u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
