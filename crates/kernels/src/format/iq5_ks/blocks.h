// `IQ5_KS` on a GPU: spans as in `IQ5_K`. See `mod.rs`.
#pragma once
#include "format/shifted.h"

struct IQ5_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        // `qh` with the bits of this span lowest.
        uint4 qs, qh;
        // The scale of the row; and the bytes of both groups.
        u32 d, scales;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<172, SPANS> block = {row, span};
        auto d = block.next<4>(0);
        auto first = block.next<8>(4);
        uint2 scales = first.two_words();
        auto qs = block.next<16, 1>(12);
        auto qh = block.next<32>(140);
        u32 pair = span / 2 % 4, both = (pair < 2 ? scales.x : scales.y) >> 16 * (pair % 2) & 0xffff;
        return {slice.codes(qs), shift_right(slice.codes(qh.further(16 * (span % 2))), 2 * pair), d.word(), both};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 shift = (raw.scales >> 8 * piece & 1) * 0x02020202u;
        look_up_five(raw.qs, raw.qh, piece, shift, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {odd_scale(raw.d, raw.scales >> 8 * piece), 0.0f}; }
};
