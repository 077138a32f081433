// `Q3_K` on a GPU. See `mod.rs`. A span is 16 bytes of `qs`: 16 columns of each of the four 32s of half a block. Their
// high bits are in 16 bytes of `hmask`, which the other half's span reads too.
#pragma once
#include "weight.h"

struct Q3_K {
    MEMBER int BLOCK = 256, SCALED = 16, SPANS = 4, PIECES = 4, ZERO = 4;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = false;
    struct Raw {
        uint4 qs, hmask;
        // The block's scales: low bits of groups 0 to 3 and 8 to 11, of 4 to 7 and 12 to 15; high bits of all.
        u32 low[2], high;
        u32 d;
        // Which half of the block, and which 16 of the 32.
        u32 part, side;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<110, SPANS> block = {row, span};
        auto hmask = block.next<32>(0);
        auto qs = block.next<16, 1>(32);
        auto scales = block.next<12>(96);
        auto d = block.next<2>(108);
        return {slice.codes(qs), slice.codes(hmask.further(16 * (span % 2))), {scales.word(), scales.word(4)}, scales.word(8),
                d.word_16(), span / 2 % 2, span % 2};
    }
    static DEV u32 at(u32 span, int piece) { return 8 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        fields(raw.qs, 2 * piece, 0x03030303u, words);
        add_fields(raw.hmask, 4 * raw.part + piece, 0x01010101u, 2, words);
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) {
        // Group 8 · part + 2 · piece + side.
        u32 byte = 16 * (piece % 2) + 8 * raw.side;
        u32 low = (piece < 2 ? raw.low[0] : raw.low[1]) >> (byte + 4 * raw.part) & 15;
        u32 high = raw.high >> (byte + 4 * raw.part + 2 * (piece / 2)) & 3;
        return {rounded_product(half_of(raw.d), static_cast<float>(static_cast<int>(low | high << 4) - 32)), 0.0f};
    }
};
