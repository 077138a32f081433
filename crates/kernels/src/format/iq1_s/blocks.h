// `IQ1_S` on a GPU: a span is two groups of 32. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq1_points.h"

struct IQ1_S {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint2 qs;
        // 16 bits of each group.
        u32 high;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<50, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<8, 1>(2);
        auto qh = block.next<4, 1>(34);
        return {qs.two_words(), qh.word(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 low = (piece < 2 ? raw.qs.x : raw.qs.y) >> 16 * (piece % 2), high = raw.high >> 16 * (piece / 2);
        u32 minus = high >> 15 & 1 ? 15 : 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = i + raw.first, l = 2 * (piece % 2) + j / 2;
            u32 rank = (low >> 8 * (j / 2) & 255) | (high >> 3 * l & 7) << 8;
            words[i] = signed_four(iq1_values(), half_point(iq1_points[rank], j), minus);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.125f * half_of(raw.d), odd_scale(raw.high >> (12 + 16 * (piece / 2)), 7)), 0.0f};
    }
};
