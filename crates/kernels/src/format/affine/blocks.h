// Affine codes on a GPU: a span is a block of 64 elements, four pieces of 16. See `mod.rs`.
#pragma once
#include "weight.h"

// An f16 scale and an f16 bias of 64 elements.
struct HalfOf64 {
    MEMBER int BYTES = 4;
    typedef u32 Raw;
    template <class Field>
    static DEV Raw load(Field field) { return field.word(); }
    static DEV ScaleMin scale(Raw raw, int) { return {half_of(raw), -half_of(raw >> 16)}; }
};

// An f16 scale and an f16 zero point of 64 elements.
struct ZeroOf64 {
    MEMBER int BYTES = 4;
    typedef u32 Raw;
    template <class Field>
    static DEV Raw load(Field field) { return field.word(); }
    static DEV ScaleMin scale(Raw raw, int) { return {half_of(raw), half_of(raw) * half_of(raw >> 16)}; }
};

// Two f32 scales and two f32 biases of 32 elements each.
struct SingleOf32 {
    MEMBER int BYTES = 16;
    typedef uint4 Raw;
    template <class Field>
    static DEV Raw load(Field field) { return field.four_words(); }
    static DEV ScaleMin scale(const THREAD uint4& raw, int piece) {
        return {float_of(piece < 2 ? raw.x : raw.y), -float_of(piece < 2 ? raw.z : raw.w)};
    }
};

template <int BITS, class Head>
struct Affine {
    MEMBER int BLOCK = 64, SCALED = 32, SPANS = 1, PIECES = 4, ZERO = BITS == 8 ? -128 : 0, MIDDLE = BITS == 8 ? 0 : 8;
    MEMBER bool IS_FLOAT = false, SIGNED = BITS == 8, HAS_MIN = true, FEW_REGISTERS = BITS == 4;
    MEMBER int BYTES = Head::BYTES + 8 * BITS;
    // Planes of 16 bytes.
    MEMBER int PLANES = BITS / 2;
    struct Raw {
        uint4 planes[PLANES];
        typename Head::Raw head;
    };
    template <class Slice = WholeSpan>
    static DEV Raw load(Row row, u32 span, Slice slice = Slice()) {
        Fields<BYTES, SPANS> block = {row, span};
        Raw raw;
        raw.head = Head::load(block.template next<Head::BYTES>(0));
#pragma unroll
        for (int i = 0; i < PLANES; i++) raw.planes[i] = slice.codes(block.template next<16>(Head::BYTES + 16 * i));
        return raw;
    }
    static DEV u32 at(u32 span, int piece) { return 4 * span + piece; }
    static DEV void codes(const THREAD Raw& raw, int piece, THREAD u32 (&words)[4]) {
        if (BITS == 8) {
            fields(raw.planes[piece % PLANES], 0, 0xffffffffu, words);
        } else {
            nibbles(raw.planes[piece / 2], piece % 2, words);
        }
    }
    static DEV ScaleMin scale(const THREAD Raw& raw, int piece) { return Head::scale(raw.head, piece); }
};

typedef Affine<4, HalfOf64> AFFINE4_64;
typedef Affine<4, SingleOf32> AFFINE4_32;
typedef Affine<4, ZeroOf64> INT4_64;
typedef Affine<8, HalfOf64> AFFINE8_64;
typedef Affine<8, SingleOf32> AFFINE8_32;
