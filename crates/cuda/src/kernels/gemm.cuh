// Common parts of the matrix products on tensor cores: Y = X · Wᵀ for many rows of X, dense or grouped by expert.
//
// Weights are rounded to bfloat16 after scaling in f32. With rounded activations the NMSE is about 6e-6; int8 activations
// have 3e-5. `gemm_wgmma.cu` scales in bfloat16 (staged.cuh): about 8e-6.
//
// Defines: FORMAT, GATED (1: two weights, gate and up), TOKENS (rows of X at once), FRAGMENTS (of weights of a warp or
// warpgroup), SHARED_COLUMNS (1: blocks along the grid's y share the columns of a tile), ROUNDED (1: Y is bfloat16, of gate and
// up as activations).
#pragma once
#include "format.h"
#include "act.h"
#include "epilogue.h"

#include "GemmParams"

// The scale of a piece, and what the floats of `pair_of` have too much.
struct Scale {
    float scale, offset;
};

template <class F>
DEV Scale scale_of(const typename F::Raw& raw, int piece) {
    ScaleMin of = F::scale(raw, piece);
    if (IsE4m3<F>::VALUE) return {of.scale, 0.0f};
    float offset = -((F::SIGNED ? 32768.0f + 128.0f : 128.0f) + F::ZERO) * of.scale;
    if (F::HAS_MIN) offset -= of.min;
    return {of.scale, offset};
}

// The even (`odd` = 0) or the odd ones of the four columns whose codes are a word, as bfloat16. A byte in the mantissa
// of a float is that byte and a constant, so that conversion, zero and minimum are one multiply-add in f32. A scale of 2^113
// or more, which MXFP4 alone can have, overflows in it: NaN.
template <class F>
DEV u32 pair_of(u32 word, Scale scale, int odd) {
    if (IsE4m3<F>::VALUE) {
        u32 two = word >> 8 * odd;
        return pack_bf16(e4m3_to_float(two) * scale.scale, e4m3_to_float(two >> 16) * scale.scale);
    }
    if (F::SIGNED) {
        // 2^15 + byte, the byte from bit 8.
        float value[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float x = __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x47000000u, 0x7404 | (2 * i + odd) << 4));
            value[i] = fmaf(x, scale.scale, scale.offset);
        }
        return pack_bf16(value[0], value[1]);
    }
    // Two at once, 128 + byte from bits 0 and 16: the lower is moved up; the upper is used as it is, with 0x4300 / 2^16 of a
    // unit too much and up to 127 / 2^16 that is far below the rounding.
    float above = fmaf(-17152.0f / 65536.0f, scale.scale, scale.offset);
    u32 two = __byte_perm(word, 0x43, 0x4240 + 0x101 * odd);
    return pack_bf16(fmaf(__uint_as_float(two << 16), scale.scale, scale.offset), fmaf(__uint_as_float(two), scale.scale, above));
}

#if ROUNDED
typedef u16 Result;
#else
typedef float Result;
#endif
DEV void store_result(Epilogue how, float* y, float result) { apply_epilogue(how, y, result); }
DEV void store_result(Epilogue how, u16* y, float result) {
    *y = float_to_bf16(how.kind == ACTIVATE ? activate(how.activation, 0.0f, result) : result);
}

// At which place of a row of Y an output is. Rounded results of an activation are activations.
DEV u32 place_of(u32 kind, u32 output) { return ROUNDED && (GATED || kind == ACTIVATE) ? bf16_place(output) : output; }

// A lane's rows of weights: in each fragment one, and as h = 1 the one 8 below, or the same of the other matrix.
typedef Row LaneRows[FRAGMENTS][2];

// Finds the rows of outputs `output_of(m, h)`. Out-of-range rows are clamped to the last.
template <class OutputOf>
DEV void find_rows(const u8* weight, const u8* up, u32 expert, OutputOf output_of, const GemmParams& p, LaneRows& row) {
#pragma unroll
    for (int m = 0; m < FRAGMENTS; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u64 at = expert * p.matrix_bytes + min(output_of(m, h), p.outputs - 1) * p.row_bytes;
            row[m][h] = Row{(GATED && h == 1 ? up : weight) + at, p.blocks};
        }
    }
}

// Rows of X that are multiplied with rows of one matrix: in the order of Y or of `pairs`.
struct Rows {
    u32 expert, first, end;
};

// Rows of this number of `tokens` rows or, after `dependency_wait`, of a tile of experts. The grid has `tiles_of_grid` tiles, at
// least one more than there are. Those without rows zero outputs `from` to `to` of the pairs without an expert, which follow
// the pairs of the last tile: with experts in host memory, these are most pairs of a prompt. (One tile alone took 5.6 ms to zero
// 57,000 rows of 2,048 outputs on an H100; a layer of 8,192 tokens takes 4.7 in all.)
DEV Rows rows_of(u32 tile, u32 tiles_of_grid, u32 from, u32 to, const u32* pairs, const u32* tiles, const u32* tile_count,
                 Result* y, const GemmParams& p) {
    if (tiles == nullptr) return {0, tile * TOKENS, min((tile + 1) * TOKENS, p.y_rows)};
    u32 tasks = *tile_count;
    if (tile < tasks) {
        const u32* own = tiles + 3 * u64(tile);
        return {own[0], own[1], own[1] + own[2]};
    }
    const u32* last = tiles + 3 * (u64(tasks) - 1);
    // A list for a ring of experts ends with an empty tile, past all rows.
    const u32 begin = tasks == 0 ? 0 : min(last[1] + last[2], p.y_rows), width = min(to, p.outputs) - from;
    const u64 places = u64(p.y_rows - begin) * width, step = u64(tiles_of_grid - tasks) * here.block_width();
#pragma unroll 4
    for (u64 i = u64(tile - tasks) * here.block_width() + here.thread_x(); i < places; i += step) {
        const u32 place = begin + i / width;
        y[(p.y_by_expert ? place : pairs[place]) * p.y_stride + from + i % width] = 0;
    }
    return {0, 0, 0};
}

// Marks a row of Y that has no row of X: it stays zero. Rows are below 2^31.
#define NO_ROW 0x80000000u

struct Line {
    // The row of X, and that of Y, which may be marked.
    u32 x, y;
};

// Row `i` of `count` from `first` on. Past the end the first row of X stands in; what comes of it is not written.
DEV Line line_of(u32 i, u32 first, u32 count, const u32* ids, const u32* pairs, u32* flag, const GemmParams& p) {
    u32 from = 0, to = first + i;
    bool missing = false;
    if (i < count) {
        from = to;
        if (pairs != nullptr) {
            const u32 pair = pairs[to];
            if (!p.x_by_expert) from = pair / p.pairs_per_row;
            if (!p.y_by_expert) to = pair;
        } else if (ids != nullptr) {
            from = ids[to * p.ids_stride];
            missing = from >= p.x_rows;
            if (missing && from != PADDING) raise(flag, FLAG_MATMUL_ROW, from, to, p.x_rows);
        }
    }
    return {missing ? 0 : from, missing ? NO_ROW | to : to};
}

// Writes what a lane has sums of: those of output `output_of(m, h)` and the lane's row `i` % 2 of eight rows `j` of X are
// `sum(m, h, j, i)`. Of two weights, h = 1 is the second's.
template <int EIGHTS, class OutputOf, class Sum>
DEV void write_sums(OutputOf output_of, Sum sum, const u32* y_of, u32 count, u32 expert, const float* bias,
                    const float* up_bias, Result* y, const GemmParams& p) {
    auto write = [&](u32 output, Epilogue how, auto product) {
        if (output >= p.outputs) return;
#pragma unroll
        for (int j = 0; j < 2 * EIGHTS; j++) {
            u32 token = j / 2 * 8 + 2 * (here.lane() % 4) + j % 2;
            if (token >= count) continue;
            u32 to = y_of[token];
            Result* at = y + (to & ~NO_ROW) * p.y_stride + place_of(how.kind, output);
            store_result(how, at, to & NO_ROW ? 0.0f : product(j / 2, j % 2));
        }
    };
    auto bias_of = [&](const float* bias, u32 output) {
        return bias == nullptr ? 0.0f : bias[expert * p.bias_stride + min(output, p.outputs - 1)];
    };
#pragma unroll
    for (int m = 0; m < FRAGMENTS; m++) {
        if (GATED) {
            u32 output = output_of(m, 0);
            float gate_add = bias_of(bias, output), up_add = bias_of(up_bias, output);
            write(output, {STORE}, [&](int j, int i) {
                return activate(p.epilogue.activation, sum(m, 0, j, i) + gate_add, sum(m, 1, j, i) + up_add);
            });
        } else {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32 output = output_of(m, h);
                float add = bias_of(bias, output);
                write(output, p.epilogue, [&](int j, int i) { return sum(m, h, j, i) + add; });
            }
        }
    }
}
