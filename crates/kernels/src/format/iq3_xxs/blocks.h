// `IQ3_XXS` on a GPU: a span is two groups of 32. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq3_xxs_points.h"

struct IQ3_XXS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // Of each piece four points.
        uint4 qs;
        // Of each group.
        uint2 signs;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<98, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<16, 1>(2);
        auto signs = block.next<8, 1>(66);
        return {qs.four_words(), signs.two_words(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 ranks = piece < 2 ? (piece == 0 ? raw.qs.x : raw.qs.y) : piece == 2 ? raw.qs.z : raw.qs.w;
        u32 signs = (piece < 2 ? raw.signs.x : raw.signs.y) >> 14 * (piece % 2);
        // ±4, 12, 20, 28, 36, 44, 52, 62.
        uint4 values = make_uint4(0x1c140c04u, 0x3e342c24u, 0xe4ecf4fcu, 0xc2ccd4dcu);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = (i + raw.first) % 4, four = even_signs(signs >> 7 * (j / 2) & 127) >> 4 * (j % 2) & 15;
            words[i] = signed_four(values, iq3_xxs_points[ranks >> 8 * j & 255], four);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.25f * half_of(raw.d), odd_scale((piece < 2 ? raw.signs.x : raw.signs.y) >> 28, 15)), 0.0f};
    }
};
