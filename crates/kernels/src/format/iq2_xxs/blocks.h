// `IQ2_XXS` on a GPU: a span is two groups of 32. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq2_xxs_points.h"

struct IQ2_XXS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // Ranks and signs of two groups.
        uint4 qs;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<66, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<16, 1>(2);
        return {qs.four_words(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 ranks = piece < 2 ? raw.qs.x : raw.qs.z, signs = piece < 2 ? raw.qs.y : raw.qs.w;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = (i + raw.first) % 4, l = 2 * (piece % 2) + j / 2;
            u32 point = iq2_xxs_points[ranks >> 8 * l & 255];
            words[i] = signed_four(iq2_values(), half_point(point, j), even_signs(signs >> 7 * l & 127) >> 4 * (j % 2) & 15);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.125f * half_of(raw.d), odd_scale((piece < 2 ? raw.qs.y : raw.qs.w) >> 28, 15)), 0.0f};
    }
};
