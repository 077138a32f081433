// `IQ2_XS` on a GPU: a span is 64 columns, eight points. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq2_xs_points.h"

struct IQ2_XS {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        // A nibble of each piece.
        u32 scales;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<74, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<16, 1>(2);
        auto scales = block.next<2, 1>(66);
        return {qs.four_words(), scales.word_16(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 two = piece < 2 ? (piece == 0 ? raw.qs.x : raw.qs.y) : piece == 2 ? raw.qs.z : raw.qs.w;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = (i + raw.first) % 4, q = two >> 16 * (j / 2) & 0xffff;
            u32 point = iq2_xs_points[q & 511];
            words[i] = signed_four(iq2_values(), half_point(point, j), even_signs(q >> 9) >> 4 * (j % 2) & 15);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.125f * half_of(raw.d), odd_scale(raw.scales >> 4 * piece, 15)), 0.0f};
    }
};
