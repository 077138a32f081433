// `IQ5_KS` on a GPU: spans as in `IQ5_K`. See `mod.rs`.
#pragma once
#include "format/shifted.h"

struct IQ5_KS {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = true, HAS_MIN = false;
    struct Raw {
        uint4 qs, qh;
        uint2 scales;
        u32 d;
        // Which pair of groups.
        u32 pair;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<172, SPANS> block = {row, span};
        auto d = block.next<4>(0);
        auto scales = block.next<8>(4);
        auto qs = block.next<16, 1>(12);
        auto qh = block.next<32>(140);
        return {slice.codes(qs), slice.codes(qh.further(16 * (span % 2))), scales.two_words(), d.word(), span / 2 % 4};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV u32 byte(const THREAD Raw& raw, int piece) { return scale_byte(raw.scales, 2 * raw.pair + piece); }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        look_up_five(raw.qs, raw.qh, piece, 2 * raw.pair + piece, (byte(raw, piece) & 1) * 0x02020202u, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return {odd_scale(raw.d, byte(raw, piece)), 0.0f}; }
};

DEV void copy_head(THREAD IQ5_KS::Raw& raw, const THREAD IQ5_KS::Raw& other) {
    raw.scales = other.scales;
    raw.d = other.d;
}
