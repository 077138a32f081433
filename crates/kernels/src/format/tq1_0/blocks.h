// `TQ1_0` on a GPU. See `mod.rs`. A span is 64 neighbouring columns, whose digits are in any bytes of the block.
#pragma once
#include "weight.h"

struct TQ1_0 {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 4, PIECES = 4, ZERO = 1;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false;
    struct Raw {
        // Bytes 0 to 15, 16 to 31 and 32 to 47 of `qs`.
        uint4 qs[3];
        u32 qh, d;
        // Which span of the block.
        u32 part, first;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<54, SPANS> block = {row, span};
        auto qs = block.next<48>(0);
        auto qh = block.next<4>(48);
        auto d = block.next<2>(52);
        Raw raw = {};
#pragma unroll
        for (u32 i = 0; i < 3; i++) raw.qs[i] = slice.codes(qs.further(16 * i));
        raw.qh = qh.word(), raw.d = d.word_16(), raw.part = span % SPANS, raw.first = slice.first();
        return raw;
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    // Digit n of each of four bytes.
    static DEV u32 digits(u32 bytes, u32 n) {
        u32 power = n < 2 ? (n == 0 ? 1 : 3) : n == 2 ? 9 : n == 3 ? 27 : 81;
        u32 low = (bytes & 0x00ff00ffu) * power & 0x00ff00ffu, high = (bytes >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
        return (low * 3 >> 8 & 0x00030003u) | (high * 3 & 0x03000300u);
    }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        u32 place = 4 * raw.part + piece;
        if (place == 15) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) words[i] = digits(raw.qh, i + raw.first);
            return;
        }
        u32 n = place < 10 ? place / 2 : place - 10;
        uint4 bytes = place >= 10 ? raw.qs[2] : place % 2 == 0 ? raw.qs[0] : raw.qs[1];
        words[0] = digits(bytes.x, n), words[1] = digits(bytes.y, n);
        words[2] = digits(bytes.z, n), words[3] = digits(bytes.w, n);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int) { return {half_of(raw.d), 0.0f}; }
};
