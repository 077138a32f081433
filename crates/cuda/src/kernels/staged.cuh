// Rows of weights in shared memory: a chunk of columns of 16 rows, as they are stored, and what a warp makes of them.
//
// Defines: FORMAT, GATED, PLANE_BYTES (bytes of the format's planes in a block, in their order), STAGED_ROW (bytes of a staged
// row, an odd number of 16, so that the same columns of eight rows lie in different banks).
#pragma once
#include "gemm.cuh"

// What lanes g = lane / 4 and t = lane % 4 of a warp read: columns 4t to 4t + 3 of each 16, of rows g and g + 8.
template <class F, bool IS_FLOAT = F::IS_FLOAT>
struct Staged;

// What is taken from a code before it is scaled.
template <class F, bool HAS_MIN = F::HAS_MIN>
struct Middle {
    static constexpr int VALUE = F::ZERO;
};
template <class F>
struct Middle<F, true> {
    static constexpr int VALUE = F::MIDDLE;
};

template <class F>
struct Staged<F, false> {
    // Columns of a chunk; their blocks, spans, and groups with one scale.
    static constexpr u32 COLUMNS = 256, CHUNK_BLOCKS = COLUMNS / F::BLOCK, SPANS = COLUMNS / 16 / F::PIECES, GROUPS = COLUMNS / F::SCALED;
    // Scale and offset of each group and row, both twice in a word as bfloat16.
    typedef uint2 Scales[GROUPS][16];
    // What is taken from each code before it is scaled. Around it codes and their minimum are small, so that the rounded scale
    // and offset matter little: with codes of four bits from 0 on the NMSE would be four times as much.
    static constexpr int MIDDLE = Middle<F>::VALUE;

    static DEV Row row(const u8* rows, u32 i, u32 chunk) { return {rows + i * STAGED_ROW, CHUNK_BLOCKS, chunk}; }

    // Of a row two lanes unpack scales, of half of the spans each.
    static DEV void unpack_scales(const u8* rows, u32 chunk, Scales& scales) {
        const u32 i = here.lane() % 16, first = here.lane() / 16 * (SPANS / 2);
        // All loads come before the first store, which may alias them as far as the compiler knows.
        typename F::Raw raws[SPANS / 2];
#pragma unroll
        for (u32 s = 0; s < SPANS / 2; s++) raws[s] = F::load(row(rows, i, chunk), first + s);
#pragma unroll
        for (u32 s = 0; s < SPANS / 2; s++) {
            const u32 span = first + s;
            auto keep = [&](int piece, u32 group) {
                const ScaleMin of = F::scale(raws[s], piece);
                const float offset = (MIDDLE - F::ZERO) * of.scale - (F::HAS_MIN ? of.min : 0.0f);
                scales[group][i] = make_uint2(pack_bf16(of.scale, of.scale), pack_bf16(offset, offset));
            };
            if (F::SCALED == 16) {
#pragma unroll
                for (int piece = 0; piece < F::PIECES; piece++) keep(piece, F::at(span, piece));
            } else if (SPANS < GROUPS) {
                // The group's first 16 columns bring the scale.
#pragma unroll
                for (int piece = 0; piece < F::PIECES; piece++)
                    if (F::at(s, piece) % 2 == 0) keep(piece, F::at(span, piece) / 2);
            } else if (SPANS == GROUPS) {
                // Two spans with parts of the same two groups, or a span for each group.
                keep(F::at(s, 0) / 2 == s ? 0 : 1, span);
            } else if (s % 2 == 0) {
                keep(0, span / 2);
            }
        }
    }

    // An integer of at most eight bits twice as bfloat16.
    static DEV constexpr u32 both(int value) {
        u32 magnitude = value < 0 ? -value : value, exponent = 127;
        if (magnitude == 0) return 0;
        while (magnitude >> (exponent - 126)) exponent++;
        const u32 bits = (value < 0 ? 0x8000u : 0) | exponent << 7 | (magnitude << (134 - exponent) & 0x7f);
        return bits << 16 | bits;
    }
    // The even (`odd` = 0) or the odd ones of the four columns whose codes are a word, less MIDDLE, as bfloat16: exact.
    static DEV u32 pair(u32 word, u32 odd) {
        constexpr u32 ONE = 0x3f803f80u;
        if (IsE4m3<F>::VALUE) {
            // The bits of a bfloat16 with the same sign, exponent and mantissa, 2^120 times too small.
            const u32 two = word >> 8 * odd;
            return fma_bf16x2((two & 0x00800080u) << 8 | (two & 0x007f007fu) << 4, 0x7b807b80u, 0);
        }
        if (!F::SIGNED) {
            // 128 + code.
            const u32 two = __byte_perm(word, in_register(0x43), 0x4240 + 0x101 * odd);
            constexpr u32 LESS = both(-128 - MIDDLE);
            return fma_bf16x2(two, ONE, LESS);
        }
        // 128 + the low seven bits of the code, less 128 or, if it is negative, 256.
        const u32 two = __byte_perm(word, 0, 0x4240 + 0x101 * odd);
        const u32 code = fma_bf16x2((two & 0x007f007fu) | 0x43004300u, ONE, (two & 0x00800080u) | 0xc300c300u);
        constexpr u32 LESS = both(-MIDDLE);
        return MIDDLE == 0 ? code : fma_bf16x2(code, ONE, LESS);
    }
    // Which span has the piece of columns 16 · `at`, and which of its pieces this is.
    static DEV u32 span_of(u32 at) {
        u32 found = 0;
#pragma unroll
        for (u32 i = 0; i < SPANS * F::PIECES; i++)
            if (F::at(i / F::PIECES, i % F::PIECES) == at) found = i;
        return found;
    }
    // Columns 16 · `at` to 16 · `at` + 15 as bfloat16: the even ones of both rows, then the odd ones.
    static DEV void unpack(const u8* rows, u32 chunk, u32 at, const Scales& scales, u32 (&operand)[4]) {
        const u32 g = here.lane() / 4, found = span_of(at);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u32 words[4];
            const typename F::Raw raw = F::load(row(rows, g + 8 * h, chunk), found / F::PIECES, QuarterSpan{here.lane() % 4});
            F::codes(raw, found % F::PIECES, words);
            const uint2 of = scales[16 * at / F::SCALED][g + 8 * h];
            operand[h] = fma_bf16x2(pair(words[0], 0), of.x, of.y);
            operand[2 + h] = fma_bf16x2(pair(words[0], 1), of.x, of.y);
        }
    }
};

// bfloat16 as it is; rows are padded with zeros.
template <class F>
struct Staged<F, true> {
    static constexpr u32 COLUMNS = 128, CHUNK_BLOCKS = COLUMNS;
    typedef uint2 Scales[1][16];

    static DEV void unpack_scales(const u8*, u32, Scales&) {}
    static DEV void unpack(const u8* rows, u32, u32 at, const Scales&, u32 (&operand)[4]) {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u8* row = rows + (here.lane() / 4 + 8 * h) * STAGED_ROW;
            const uint2 raw = load_64(row + 32 * at + 8 * (here.lane() % 4));
            operand[h] = __byte_perm(raw.x, raw.y, 0x5410);
            operand[2 + h] = __byte_perm(raw.x, raw.y, 0x7632);
        }
    }
};

// The rows of one fragment of a warp in global memory: 16 outputs, or 8 of two matrices. Past the end the last one stands in.
struct FragmentRows {
    // The first outputs of both matrices.
    const u8 *weight, *up;
    // Outputs after the first, bytes of a row, and blocks.
    u32 last, row_bytes, blocks;

    template <u32 BYTES>
    DEV void copy_plane(u32 chunk, u32& at, u32& staged, u8* to) const {
        constexpr u32 SIZE = plane_window(Staged<FORMAT>::CHUNK_BLOCKS * BYTES), UNITS = SIZE / 16;
        const u32 first = chunk * (Staged<FORMAT>::CHUNK_BLOCKS * BYTES) & ~15u, size = (blocks * BYTES + 15) & ~15u, left = size - first;
        const u8 *from = weight + at + first, *from_up = up + at + first;
#pragma unroll
        for (u32 i = 0; i < (16 * UNITS + 31) / 32; i++) {
            // Neighbouring lanes copy neighbouring units.
            const u32 unit = 32 * i + here.lane(), own = unit / UNITS, byte = unit % UNITS * 16;
            const bool valid = byte < left, is_up = GATED && own >= 8;
            const u32 offset = min(GATED ? own % 8 : own, last) * row_bytes + (valid ? byte : 0);
            if (UNITS % 2 == 0 || unit < 16 * UNITS)
                cp_async_16(to + own * STAGED_ROW + staged + byte, (is_up ? from_up : from) + offset, valid);
        }
        at += size;
        staged += SIZE;
    }
    template <u32... BYTES>
    DEV void copy_planes(u32 chunk, u8* to) const {
        u32 at = 0, staged = 0;
        (copy_plane<BYTES>(chunk, at, staged, to), ...);
        static_assert(((plane_window(Staged<FORMAT>::CHUNK_BLOCKS * BYTES) + ...) / 16 | 1) * 16 == STAGED_ROW, "the host computes the same");
    }
    // Starts the copies of a chunk.
    DEV void copy(u32 chunk, u8* to) const { copy_planes<PLANE_BYTES>(chunk, to); }
};
