// `Q5_K` on a GPU. See `mod.rs`. A span is as in `Q4_K`, with 16 bytes of `qh`, which the three other pairs of groups
// read too.
#pragma once
#include "format/q4_k/blocks.h"

struct Q5_K {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs, qh, head;
        // Which pair of groups.
        u32 pair;
    };
#ifdef MAPPED_ROWS
    static DEV Raw load(Row row, u32 span) {
        const GLOBAL u8* block = row.base + 176 * (span / 8);
        return {load_words<16>(block + 48 + 16 * (span % 8)), load_words<16>(block + 16 + 16 * (span % 2)),
                load_words<16>(block), span / 2 % 4};
    }
#else
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        const GLOBAL u8* qh = row.base + plane(row, 16);
        return {slice.codes(qh + plane(row, 32) + 16 * span),
                slice.codes(qh + 32 * (span / 8) + 16 * (span % 2)),
                load_stream_16(row.base + 16 * (span / 8)), span / 2 % 4};
    }
#endif
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        add_fields(raw.qh, 2 * raw.pair + piece, 0x01010101u, 4, words);
    }
    static DEV void scale(const THREAD Raw& raw, int piece, THREAD float& scale, THREAD float& min) {
        scale_min(raw.head, raw.pair, piece, scale, min);
    }
};

DEV void copy_head(THREAD Q5_K::Raw& raw, const THREAD Q5_K::Raw& other) { raw.head = other.head; }
