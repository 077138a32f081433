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
    // Codes of less than eight bits are the mantissa of a bfloat16 of the least exponent as they are, in units of 2^-133. The bits
    // of an E4M3 float are those of a bfloat16 2^120 times too small. Scales are SCALE_UP
    // times as large. One of 2^31 or more overflows: half floats have none, float32 scales of FP8_64 and AFFINE4_32 could.
    static constexpr bool AS_BITS = !F::SIGNED;
    static constexpr float CODE_UNIT = !AS_BITS ? 1.0f : IsE4m3<F>::VALUE ? 0x1p-120f : 0x1p-133f;
    static constexpr float SCALE_UP = AS_BITS ? 0x1p96f : 1.0f;
    // What sums are multiplied by.
    static constexpr float SUM_UNIT = AS_BITS ? IsE4m3<F>::VALUE ? 0x1p24f : 0x1p37f : 1.0f;

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
                const float up = of.scale * SCALE_UP;
                const u32 scale = pack_bf16(up, up);
                float offset = (MIDDLE - F::ZERO) * of.scale - (F::HAS_MIN ? of.min : 0.0f);
                // Such that the rounded scale matters least where most codes are.
                if (AS_BITS) offset = (offset * SCALE_UP - MIDDLE * __uint_as_float(scale & 0xffff0000u)) * CODE_UNIT;
                scales[group][i] = make_uint2(scale, pack_bf16(offset, offset));
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
    // The even (`odd` = 0) or the odd ones of the four columns whose codes are a word, as bfloat16: with AS_BITS in CODE_UNIT,
    // else less MIDDLE. Exact.
    static DEV u32 pair(u32 word, u32 odd) {
        if (IsE4m3<F>::VALUE) {
            const u32 two = word >> 8 * odd;
            return (two & 0x00800080u) << 8 | (two & 0x007f007fu) << 4;
        }
        if (!F::SIGNED) return word >> 8 * odd & 0x00ff00ffu;
        // 128 + the low seven bits of the code, less 128 or, if it is negative, 256.
        constexpr u32 ONE = both(1);
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
    static constexpr float SUM_UNIT = 1.0f;
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

// What a lane copies of each chunk of a fragment's rows: 16 outputs, or 8 of two matrices. A plane's part of a row consists of
// units of 16 bytes, of which neighbouring lanes copy neighbours.
template <u32... BYTES>
struct LaneUnits {
    static constexpr u32 units(u32 bytes) { return plane_window(Staged<FORMAT>::CHUNK_BLOCKS * bytes) / 16; }
    static constexpr u32 copies(u32 bytes) { return (16 * units(bytes) + 31) / 32; }
    static_assert(((units(BYTES) + ...) | 1) * 16 == STAGED_ROW, "the host computes the same");

    // Whether the places are kept, which takes registers.
    static constexpr bool KEPT = FRAGMENTS == 1;

    // The first outputs of the first fragment, and from there to the lane's places in the planes of its rows: all of them are less
    // than 2^32 bytes apart.
    const u8 *weight, *up;
    u32 kept[KEPT ? (copies(BYTES) + ...) : 1];

    // The row of the lane's `i`th copy, and its first byte in the plane's part of the row.
    template <u32 UNITS>
    static DEV uint2 place(u32 i) {
        if (32 % UNITS == 0) return make_uint2(32 / UNITS * i + here.lane() / UNITS, here.lane() % UNITS * 16);
        const u32 unit = 32 * i + here.lane();
        return make_uint2(unit / UNITS, unit % UNITS * 16);
    }
    // Whether all or some lanes' rows of a copy are of the second matrix.
    template <u32 UNITS>
    static DEV bool is_up(u32 i) {
        return GATED && place<UNITS>(i).x >= 8;
    }
    // From the first outputs to the lane's `i`th place in a plane that begins at `plane` in its row.
    template <u32 UNITS>
    static DEV u32 distance(u32 i, u32 row_bytes, u32 plane) {
        const uint2 at = place<UNITS>(i);
        return (GATED ? at.x % 8 : at.x) * row_bytes + plane + at.y;
    }
    DEV void find(const u8* of_weight, const u8* of_up, u32 row_bytes, u32 blocks) {
        weight = of_weight;
        up = of_up;
        u32 copy = 0, plane = 0;
        if (KEPT) (keep_plane<BYTES>(row_bytes, blocks, copy, plane), ...);
    }
    template <u32 OF_BLOCK>
    DEV void keep_plane(u32 row_bytes, u32 blocks, u32& copy, u32& plane) {
#pragma unroll
        for (u32 i = 0; i < copies(OF_BLOCK); i++) kept[copy++] = distance<units(OF_BLOCK)>(i, row_bytes, plane);
        plane += plane_bytes(blocks, OF_BLOCK);
    }
    static DEV u32 plane_bytes(u32 blocks, u32 of_block) { return (blocks * of_block + 15) & ~15u; }
    // Starts the copies of a chunk of the fragment `further` bytes on. Rows from `rows` on, which are past the last output, and
    // bytes past the plane's become zeros.
    DEV void copy(u32 chunk, u64 further, u32 rows, u32 row_bytes, u32 blocks, u8* to) const {
        u32 copy = 0, plane = 0, staged = 0;
        (copy_plane<BYTES>(chunk, further, rows, row_bytes, blocks, copy, plane, staged, to), ...);
    }
    template <u32 OF_BLOCK>
    DEV void copy_plane(u32 chunk, u64 further, u32 rows, u32 row_bytes, u32 blocks, u32& copy, u32& plane, u32& staged,
                        u8* to) const {
        constexpr u32 UNITS = units(OF_BLOCK);
        const u32 first = chunk * (Staged<FORMAT>::CHUNK_BLOCKS * OF_BLOCK) & ~15u, left = plane_bytes(blocks, OF_BLOCK) - first;
        further += first;
#pragma unroll
        for (u32 i = 0; i < copies(OF_BLOCK); i++) {
            const uint2 at = place<UNITS>(i);
            const bool valid = at.y < left && (GATED ? at.x % 8 : at.x) < rows;
            const u32 own = KEPT ? kept[copy++] : distance<UNITS>(i, row_bytes, plane);
            if (UNITS % 2 == 0 || at.x < 16)
                cp_async_16(to + at.x * STAGED_ROW + staged + at.y, (is_up<UNITS>(i) ? up : weight) + further + own, valid);
        }
        plane += plane_bytes(blocks, OF_BLOCK);
        staged += 16 * UNITS;
    }
};
