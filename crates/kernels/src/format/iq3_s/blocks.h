// `IQ3_S` on a GPU: a span is two groups of 32. See `mod.rs`.
#pragma once
#include "format/grid.h"
#include "format/iq3_s_points.h"

struct IQ3_S {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // Of each piece four points.
        uint4 qs;
        uint2 signs;
        // A bit of each point, and the block's scale above them: registers are few.
        u32 high_d;
        // A nibble of each group.
        u32 scales;
        u32 first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<110, SPANS> block = {row, span};
        auto d = block.next<2>(0);
        auto qs = block.next<16, 1>(2);
        auto high = block.next<2, 1>(66);
        auto signs = block.next<8, 1>(74);
        auto scales = block.next<1, 1>(106);
        return {qs.four_words(), signs.two_words(), high.word_16() | d.word_16() << 16, scales.byte(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 ranks = piece < 2 ? (piece == 0 ? raw.qs.x : raw.qs.y) : piece == 2 ? raw.qs.z : raw.qs.w;
        u32 signs = (piece < 2 ? raw.signs.x : raw.signs.y) >> 16 * (piece % 2);
        // ±1, 3, 5, 7, 9, 11, 13, 15.
        uint4 values = make_uint4(0x07050301u, 0x0f0d0b09u, 0xf9fbfdffu, 0xf1f3f5f7u);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = (i + raw.first) % 4, rank = (ranks >> 8 * j & 255) | (raw.high_d >> (4 * piece + j) & 1) << 8;
            words[i] = signed_four(values, iq3_s_points[rank], signs >> 4 * j & 15);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        return {rounded_product(half_of(raw.high_d >> 16), odd_scale(raw.scales >> 4 * (piece / 2), 15)), 0.0f};
    }
};
