// `IQ1_M` on a GPU: a span is 64 columns, eight points. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq1_points.h"

struct IQ1_M {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint2 qs;
        // A nibble of each point; three bits of each piece.
        u32 high, scales;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<56, SPANS> block = {row, span};
        auto qs = block.next<8, 1>(0);
        auto high = block.next<4, 1>(32);
        auto scales = block.next<8>(48);
        uint2 all = scales.two_words();
        u32 d = (all.x >> 12 & 15) | (all.x >> 28) << 4 | (all.y >> 12 & 15) << 8 | (all.y >> 28) << 12;
        u32 own = span % SPANS;
        return {qs.two_words(), high.word(), (own < 2 ? all.x : all.y) >> 16 * (own % 2), d, slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 low = (piece < 2 ? raw.qs.x : raw.qs.y) >> 16 * (piece % 2), high = raw.high >> 8 * piece;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = i + raw.first, nibble = high >> 4 * (j / 2);
            u32 rank = (low >> 8 * (j / 2) & 255) | (nibble & 7) << 8;
            words[i] = signed_four(iq1_values(), half_point(iq1_points[rank], j), nibble & 8 ? 15 : 0);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.125f * half_of(raw.d), odd_scale(raw.scales >> 3 * piece, 7)), 0.0f};
    }
};
