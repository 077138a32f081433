// `Q2_0` on a GPU: a span is a block. See `mod.rs`.
#pragma once
#include "weight.h"

struct Q2_0 {
    MEMBER int BLOCK = 64, SCALED = 32, SPANS = 1, PIECES = 4, ZERO = 1;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false;
    struct Raw {
        // A byte of each four columns, a word of each piece.
        uint4 qs;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<18, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<16>(2);
        return {qs.four_words(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 bytes = piece < 2 ? (piece == 0 ? raw.qs.x : raw.qs.y) : piece == 2 ? raw.qs.z : raw.qs.w;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 byte = bytes >> 8 * ((i + raw.first) % 4) & 255, nibbles = (byte | byte << 12) & 0x000f000fu;
            words[i] = (nibbles | nibbles << 6) & 0x03030303u;
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
