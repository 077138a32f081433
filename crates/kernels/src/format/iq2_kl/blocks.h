// `IQ2_KL` on a GPU: a span is two groups of 32. See `mod.rs`. The first 8 bytes of a block are one plane.
#pragma once
#include "format/shifted.h"

// The two values of each code, the first one in the lower byte.
CONSTANT(u16, iq2_kl_pairs, 32) = {
    0xe9c1, 0x0dc1, 0xc1d8, 0xf6d8, 0x0dd8, 0x2fd8, 0xd8e9, 0xe9e9, 0x01e9, 0x0de9, 0x1ce9, 0xc1f6, 0x01f6, 0x0df6, 0x2ff6, 0xe901,
    0xf601, 0x0101, 0x0d01, 0x1c01, 0xd80d, 0xe90d, 0xf60d, 0x010d, 0x0d0d, 0xc11c, 0xe91c, 0x011c, 0x1c1c, 0x2f1c, 0xe92f, 0x0d2f,
};

struct IQ2_KL {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs;
        // The high bits of both groups: of byte b of word k of `qs` at bits 8 · b + 2 · k and one above it.
        u32 high;
        // Of both groups.
        u32 head, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<88, SPANS> block = {row, span};
        auto first = block.next<8>(0);
        uint2 head = first.two_words();
        auto qs = block.next<16, 1>(8);
        auto last = block.next<16>(72);
        uint4 qh = last.four_words();
        u32 group = 2 * (span % 4), high[4];
        fields(qh, group, 0x03030303u, high);
        u32 packed = pack(head.x, scale_bits(head, group), scale_bits(head, group + 1));
        return {qs.four_words(), high[0] | high[1] << 2 | high[2] << 4 | high[3] << 6, packed, slice.first()};
    }
    static DEV u32 scale_bits(uint2 head, u32 group) {
        return (head.y >> (8 * (group % 4) + 4 * (group / 4)) & 15) | (head.x >> (16 + 2 * group) & 3) << 4;
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        uint2 qs = piece % 2 == 0 ? make_uint2(raw.qs.x, raw.qs.y) : make_uint2(raw.qs.z, raw.qs.w);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 j = (i + raw.first) % 4, shift = 16 * (j % 2), word = 2 * (piece % 2) + j / 2;
            u32 nibbles = (j < 2 ? qs.x : qs.y) >> (shift + 4 * (piece / 2)) & 0x0f0f;
            u32 codes = nibbles | (raw.high >> (shift + 2 * word + piece / 2) & 0x0101) << 4;
            words[i] = iq2_kl_pairs[codes & 31] | static_cast<u32>(iq2_kl_pairs[codes >> 8]) << 16;
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {scale_of(raw.head, piece / 2), 0.0f}; }
};
