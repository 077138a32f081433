// `NVFP4` on a GPU: a span is a block of 64 elements, four pieces with a scale each. See `mod.rs`.
#pragma once
#include "weight.h"

struct NVFP4 {
    MEMBER int BLOCK = 64, SCALED = 16, SPANS = 1, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // Two words of each piece.
        uint4 low, high;
        u32 scales, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<36, SPANS> block = {row, span};
        auto scales = block.next<4>(0);
        auto low = block.next<16>(4);
        auto high = block.next<16>(20);
        return {low.four_words(), high.four_words(), scales.word(), slice.first()};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        // Twice the value of each code: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives.
        uint4 table = make_uint4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu), four = piece < 2 ? raw.low : raw.high;
        uint2 two = piece % 2 == 0 ? make_uint2(four.x, four.y) : make_uint2(four.z, four.w);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = i + raw.first;
            words[i] = look_up_word(table, j % 2 == 0 ? two.x : two.y, j / 2);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        // Half of an E4M3 number without its sign; 0x7f is 0.
        u32 bits = raw.scales >> 8 * piece & 255, magnitude = bits == 127 ? 0 : bits & 127;
        float normal = float_of((magnitude << 20) + (119u << 23));
        return {magnitude < 8 ? static_cast<float>(magnitude) * 0.0009765625f : normal, 0.0f};
    }
};
