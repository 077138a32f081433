// Rows of prepared weights, and what the formats' `blocks.h` share.
//
// A row is its planes one after another, each padded to 16 bytes (`layout.rs`); or, with MAPPED_ROWS, its blocks as in the
// file, where only the tensor is known to be aligned to 16 bytes; or, with STAGED_ROWS, some blocks of a row in shared memory,
// with all of the plane's 16 bytes that they have a part of. It is read in *spans*: what one thread unpacks from loads
// of 16 bytes. A span of a quantised format is some *pieces*: 16 neighbouring elements with one scale.
//
// A quantised format is a struct with
//   BLOCK, SCALED (neighbours with one scale: 16 or 32), SPANS (in a block), PIECES (in a span), IS_FLOAT (false), ZERO,
//   SIGNED, HAS_MIN, MIDDLE (of the unsigned codes of a format with minima: half of their number),
//   Raw load(Row, u32 span, Slice)                     the span's bytes, or a lane's quarter; spans count along the row
//   u32 at(u32 span, int piece)                        the piece's place: its first element is 16 · at
//   void codes(const THREAD Raw&, int piece, THREAD u32 (&)[4])
//                                                      16 bytes, ascending: signed, or unsigned and at most 127
//   ScaleMin scale(const THREAD Raw&, int piece)
// and an element is scale · (code − ZERO) − min; of codes that are E4M3 floats (`IsE4m3`) scale · float. A float format has
//   BLOCK (1), SPAN (elements in a span), IS_FLOAT (true),
//   Raw load(Row, u32 span)                            a row's last span may be partly zeros
//   void elements(const THREAD Raw&, THREAD float (&)[SPAN])
#pragma once
#include "device.h"

struct ScaleMin {
    float scale, min;
};

struct Row {
    const GLOBAL u8* base;
    // Blocks of the format in the row: for float formats, elements.
    u32 blocks;
#ifdef STAGED_ROWS
    // How many times as many blocks are before them in the whole row.
    u32 chunk;
#endif
};

#ifdef STAGED_ROWS
// Bytes of the units of 16 that so many bytes of a plane can have a part of.
DEV constexpr u32 plane_window(u32 bytes) { return bytes % 16 == 0 || 16 % bytes == 0 ? (bytes + 15) & ~15u : (bytes + 30) & ~15u; }
// Bytes in a row of a plane that has so many in a block, and those before the first block.
DEV u32 plane(Row row, u32 bytes) { return plane_window(row.blocks * bytes); }
DEV u32 before_plane(Row row, u32 bytes) { return row.chunk * row.blocks * bytes & 15; }
DEV uint4 load_row_16(const u8* from) { return *reinterpret_cast<const uint4*>(from); }
#else
DEV u32 plane(Row row, u32 bytes) { return (row.blocks * bytes + 15) & ~15u; }
DEV u32 before_plane(Row, u32) { return 0; }
DEV uint4 load_row_16(const GLOBAL u8* from) { return load_stream_16(from); }
#endif

DEV u32 load_32(const GLOBAL u8* from) { return *reinterpret_cast<const GLOBAL u32*>(from); }
DEV u32 load_16(const GLOBAL u8* from) { return *reinterpret_cast<const GLOBAL u16*>(from); }
DEV uint2 load_64(const GLOBAL u8* from) { return *reinterpret_cast<const GLOBAL uint2*>(from); }

// A span's bytes of a field: those of the next SHARED spans are STRIDE bytes further, so addresses are as aligned as that.
template <int STRIDE, int SHARED>
struct Field {
    const GLOBAL u8* base;
    u32 span, within;

    DEV const GLOBAL u8* at() const { return base + STRIDE * (span / SHARED) + within; }
    DEV Field further(u32 bytes) const { return {base, span, within + bytes}; }
    DEV u32 byte() const { return *at(); }
    DEV u32 word_16() const { return load_16(at()); }
    DEV u32 word(u32 byte = 0) const {
        const GLOBAL u8* from = at() + byte;
        if (STRIDE % 4 == 0) return load_32(from);
        if (STRIDE % 2 == 0) return load_16(from) | load_16(from + 2) << 16;
        return from[0] | u32(from[1]) << 8 | u32(from[2]) << 16 | u32(from[3]) << 24;
    }
    DEV uint2 two_words() const { return STRIDE % 8 == 0 ? load_64(at()) : make_uint2(word(), word(4)); }
    DEV uint4 four_words() const {
        if (STRIDE % 16 == 0) return load_row_16(at());
        return make_uint4(word(), word(4), word(8), word(12));
    }
};

// The fields of a block of SPANS spans and, in the file, BYTES bytes, in the order of the planes.
template <int BYTES, int SPANS>
struct Fields {
    Row row;
    u32 span;

    // The next field, which lies at `offset` of the file's block: SIZE bytes for every SHARED spans.
#ifdef MAPPED_ROWS
    template <int SIZE, int SHARED = SPANS>
    DEV Field<BYTES, SPANS> next(u32 offset) {
        return {row.base, span, offset + SIZE * (span % SPANS / SHARED)};
    }
#else
    template <int SIZE, int SHARED = SPANS>
    DEV Field<SIZE, SHARED> next(u32) {
        Field<SIZE, SHARED> field = {row.base, span, before_plane(row, SIZE * (SPANS / SHARED))};
        row.base += plane(row, SIZE * (SPANS / SHARED));
        return field;
    }
#endif
};

// A span of a row of elements of so many bytes, 2 or 4. Rows of the file end in zeros.
template <int BYTES>
DEV uint4 load_floats(Row row, u32 span) {
    const GLOBAL u8* from = row.base + 16 * span;
#ifdef MAPPED_ROWS
    // Rows of whole spans begin at multiples of 16 bytes.
    if (row.blocks % (16 / BYTES) == 0) return load_row_16(from);
    u32 left = row.blocks * BYTES - 16 * span;
    Field<BYTES, 1> field = {from, 0, 0};
    if (left >= 16) return field.four_words();
    u32 words[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        words[i] = 0;
        if (4 * i + 4 <= left) words[i] = field.word(4 * i);
        else if (4 * i < left) words[i] = load_16(from + 4 * i);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
#else
    return load_row_16(from);
#endif
}

// A lane's loads of a span: all of it,
struct WholeSpan {
    DEV uint4 codes(const GLOBAL u8* from) const { return load_row_16(from); }
    template <int STRIDE, int SHARED>
    DEV uint4 codes(Field<STRIDE, SHARED> field) const { return field.four_words(); }
    // The lane's bits of a word that has one for each of 16 columns.
    DEV u32 bits(u32 word) const { return word; }
    // Which four columns of a piece are the first word of its codes.
    DEV u32 first() const { return 0; }
};
// or what lane t of four needs of columns 4t to 4t + 3 of each piece: the first word of `codes`.
struct QuarterSpan {
    u32 t;
    DEV uint4 codes(const GLOBAL u8* from) const { return make_uint4(load_32(from + 4 * t), 0, 0, 0); }
    template <int STRIDE, int SHARED>
    DEV uint4 codes(Field<STRIDE, SHARED> field) const { return codes(field.at()); }
    DEV u32 bits(u32 word) const { return word >> 4 * t; }
    DEV u32 first() const { return t; }
};

// The f16 in the lower half of a word.
DEV float half_of(u32 word) { return half_to_float(static_cast<u16>(word)); }

// The fields of `mask` in each byte of 16, after a shift to the right.
DEV void fields(uint4 bytes, int shift, u32 mask, THREAD u32 (&words)[4]) {
    words[0] = bytes.x >> shift & mask;
    words[1] = bytes.y >> shift & mask;
    words[2] = bytes.z >> shift & mask;
    words[3] = bytes.w >> shift & mask;
}

// Adds what `fields` gives, moved to the left by `to`, to what is there.
DEV void add_fields(uint4 bytes, int shift, u32 mask, int to, THREAD u32 (&words)[4]) {
    words[0] |= (bytes.x >> shift & mask) << to;
    words[1] |= (bytes.y >> shift & mask) << to;
    words[2] |= (bytes.z >> shift & mask) << to;
    words[3] |= (bytes.w >> shift & mask) << to;
}

// Low (piece 0) or high (piece 1) nibbles of 16 bytes.
DEV void nibbles(uint4 bytes, int piece, THREAD u32 (&words)[4]) { fields(bytes, 4 * piece, 0x0f0f0f0fu, words); }

// Bit i of the lowest four to bit `to` of byte i, at most 4.
DEV u32 single_bits(u32 bits, int to) {
    // Four copies of four bits, 7 apart and so without a carry, put bit i of the four at bit 8·i + `to` of the product.
    return (bits & 15) * (0x00204081u << to) & 0x01010101u << to;
}

// Bit i of 16 to bit 4 of byte i.
DEV void fifth_bits(u32 bits, THREAD u32 (&words)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) words[j] |= single_bits(bits >> 4 * j, 4);
}

// The table's bytes for four nibbles. The table is 16 bytes in four words.
DEV u32 look_up_four(uint4 table, u32 nibbles) {
    u32 index = nibbles & 0x7777;
    u32 low = select_bytes(table.x, table.y, index), high = select_bytes(table.z, table.w, index);
    return select_bytes(low, high, 0x3210 | (nibbles >> 1 & 0x4444));
}

// The table's bytes for the low (0) or the high nibbles of a word.
DEV u32 look_up_word(uint4 table, u32 word, u32 high) {
    // Low and high nibbles in turns.
    u32 first = look_up_four(table, word), second = look_up_four(table, word >> 16);
    return select_bytes(first, second, high == 0 ? 0x6420 : 0x7531);
}

// The same as `nibbles`, each replaced by the table's byte.
DEV void look_up(uint4 table, uint4 bytes, int piece, THREAD u32 (&words)[4]) {
    words[0] = look_up_word(table, bytes.x, piece);
    words[1] = look_up_word(table, bytes.y, piece);
    words[2] = look_up_word(table, bytes.z, piece);
    words[3] = look_up_word(table, bytes.w, piece);
}

// Takes from another span of the same block what they have in common, so that it need not be loaded twice: for formats
// that overload it.
template <class Raw>
DEV void copy_head(THREAD Raw&, const THREAD Raw&) {}

// Whether codes are E4M3 floats: for formats that specialise it.
template <class F>
struct IsE4m3 {
    MEMBER bool VALUE = false;
};

// The number of an E4M3 code; that of NaN is 480. As an f16 it is 2^8 times smaller, also if it is subnormal.
DEV float e4m3_to_float(u32 byte) { return half_of((byte & 0x80) << 8 | (byte & 0x7f) << 7) * 256.0f; }

// Code `i` of a piece, less ZERO, as a float.
template <class F>
DEV float code(const THREAD u32 (&words)[4], int i) {
    if (IsE4m3<F>::VALUE) return e4m3_to_float(words[i / 4] >> 8 * (i % 4));
    u32 word = F::SIGNED ? words[i / 4] ^ 0x80808080u : words[i / 4];
    return byte_to_float(word, i % 4, (F::SIGNED ? 128.0f : 0.0f) + F::ZERO);
}

// The elements of a piece as `Format::decode` gives them, bit by bit.
template <class F>
DEV void values(const THREAD typename F::Raw& raw, int piece, THREAD float (&out)[16]) {
    u32 words[4];
    F::codes(raw, piece, words);
    ScaleMin of = F::scale(raw, piece);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float value = rounded_product(of.scale, code<F>(words, i));
        out[i] = F::HAS_MIN ? rounded_difference(value, of.min) : value;
    }
}

// Elements 16 · piece … of a row of a float format; zeros past its end.
template <class F>
DEV void float_values(Row row, u32 piece, THREAD float (&out)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i += F::SPAN) {
        float part[F::SPAN];
        u32 span = piece * (16 / F::SPAN) + i / F::SPAN;
        bool inside = span * F::SPAN < row.blocks;
        if (inside) {
            typename F::Raw raw = F::load(row, span);
            F::elements(raw, part);
        }
#pragma unroll
        for (int j = 0; j < F::SPAN; j++) out[i + j] = inside ? part[j] : 0.0f;
    }
}
