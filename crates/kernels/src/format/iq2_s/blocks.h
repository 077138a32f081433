// `IQ2_S` on a GPU: a span is 64 columns, eight points. See `mod.rs`. `qh` and `scales` are one plane of 16 bytes.
#pragma once
#include "format/grid.h"
#include "format/iq2_s_points.h"

struct IQ2_S {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint2 qs, signs;
        // Two bits of each point, and a nibble of each piece.
        u32 high, scales;
        u32 d, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<82, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<8, 1>(2);
        auto signs = block.next<8, 1>(34);
        auto heads = block.next<16>(66);
        auto head = heads.further(2 * (span % SPANS));
        auto scales = head.further(8);
        return {qs.two_words(), signs.two_words(), head.word_16(), scales.word_16(), d.word_16(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 low = (piece < 2 ? raw.qs.x : raw.qs.y) >> 16 * (piece % 2);
        u32 signs = (piece < 2 ? raw.signs.x : raw.signs.y) >> 16 * (piece % 2);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = i + raw.first, rank = (low >> 8 * (j / 2) & 255) | (raw.high >> (4 * piece + 2 * (j / 2)) & 3) << 8;
            words[i] = signed_four(iq2_values(), half_point(iq2_s_points[rank], j), signs >> 4 * j & 15);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(0.125f * half_of(raw.d), odd_scale(raw.scales >> 4 * piece, 15)), 0.0f};
    }
};
