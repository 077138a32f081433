// `Q5_K` on a GPU. See `mod.rs`. A span is as in `Q4_K`, with 16 bytes of `qh`, which the three other pairs of groups
// read too.
#pragma once
#include "format/q4_k/blocks.h"

struct Q5_K {
    static constexpr int BLOCK = 256, SPANS = 8, PIECES = 2, ZERO = 0;
    static constexpr bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true;
    struct Raw {
        uint4 qs, qh, head;
        // Which pair of groups.
        u32 pair;
    };
    static DEV Raw load(Row row, u32 span) {
        GLOBAL const u8* qh = row.base + plane(row, 16);
        return {load_stream_16(qh + plane(row, 32) + 16 * span),
                load_stream_16(qh + 32 * (span / 8) + 16 * (span % 2)),
                load_stream_16(row.base + 16 * (span / 8)), span / 2 % 4};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const Raw& raw, int piece, u32 (&words)[4]) {
        nibbles(raw.qs, piece, words);
        add_fields(raw.qh, 2 * raw.pair + piece, 0x01010101u, 4, words);
    }
    static DEV void scale(const Raw& raw, int piece, float& scale, float& min) {
        scale_min(raw.head, raw.pair, piece, scale, min);
    }
};

DEV void share(Q5_K::Raw& raw, const Q5_K::Raw& other) { raw.head = other.head; }
