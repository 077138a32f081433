// `Q4_K` on a GPU. See `mod.rs` and `scales.rs`. A span is 16 bytes of `qs`: 16 columns of a group in the low and of the
// next group in the high nibbles. `d`, `dmin` and the scales are one plane of 16 bytes.
#pragma once
#include "weight.h"

// The scale and minimum of group 2 · pair + piece of the block with this head, `pair` < 4.
DEV ScaleMin scale_min(uint4 head, u32 pair, int piece) {
    // Two groups' bytes at once: those of groups 0 to 3 whole, of 4 to 7 from two places.
    u32 shift = 16 * (pair % 2);
    u32 scales = head.y >> shift, mins = head.z >> shift, low = head.w >> shift;
    bool first = pair < 2;
    scales = first ? scales & 0x3f3f : (low & 0x0f0f) | (scales >> 2 & 0x3030);
    mins = first ? mins & 0x3f3f : (low >> 4 & 0x0f0f) | (mins >> 2 & 0x3030);
    return {rounded_product(half_of(head.x), byte_to_float(scales, piece, 0.0f)),
            rounded_product(half_of(head.x >> 16), byte_to_float(mins, piece, 0.0f))};
}

struct Q4_K {
    MEMBER int BLOCK = 256, SCALED = 32, SPANS = 8, PIECES = 2, ZERO = 0, MIDDLE = 8;
    MEMBER bool IS_FLOAT = false, SIGNED = false, HAS_MIN = true, FEW_REGISTERS = true;
    struct Raw {
        uint4 qs, head;
        // Which pair of groups.
        u32 pair;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<144, SPANS> block = {row, span};
        auto head = block.next<16>(0);
        return {slice.codes(block.next<16, 1>(16)), head.four_words(), span / 2 % 4};
    }
    static DEV u32 at(u32 span, int piece) { return 4 * (span / 2) + 2 * piece + span % 2; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) { nibbles(raw.qs, piece, words); }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return scale_min(raw.head, raw.pair, piece); }
};

DEV void copy_head(THREAD Q4_K::Raw& raw, const THREAD Q4_K::Raw& other) { raw.head = other.head; }
