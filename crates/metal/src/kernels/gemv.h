// Weights times few rows of activations: bound by reading weights, which are unpacked in registers from the file's own blocks.
//
// A *team* of 4 to 32 neighbouring lanes, a power of two, multiplies some weight rows; its lanes take the rows' spans in turns.
// Sums stay in registers: first those of a lane in the order of its spans, then a tree over the team. So a result depends
// on the weight's shape alone, not on how many rows of activations there are, nor on the rows beside it. Products are of
// floats: nothing is rounded before the sums.
#pragma once
#include "format.h"
#include "product.h"
#include "reduce.h"

typedef FORMAT Format;

// Threads of a block, and its simdgroups.
#define BLOCK_THREADS 64
// Outputs of a team where gate and up are multiplied.
#define GATE_ROWS 2

// Four elements of a row from `column` on: zeros past its end. Rows of whole fours are aligned.
DEV float4 load_columns(const GLOBAL float* row, u32 column, u32 cols) {
    float4 four = float4(0.0f);
    if (cols % 4 == 0) {
        if (column < cols) four = *reinterpret_cast<const GLOBAL float4*>(row + column);
        return four;
    }
    for (u32 i = 0; i < 4; i++) {
        if (column + i < cols) four[i] = row[column + i];
    }
    return four;
}

// Rows of X that are multiplied at once.
template <int COUNT>
struct Inputs {
    MEMBER int TOKENS = COUNT;
    const GLOBAL float* rows[COUNT];
    u32 cols;
    DEV float4 load(int t, u32 column) { return load_columns(rows[t], column, cols); }
};

// ---- Products of one span.

// sums[r][t] += Σ over a span of weight row r · row t of X, of which each column is loaded once. With Σ code · x and Σ x of a piece, its scale and minimum are
// applied once.
template <class F, int ROWS, class X, bool IS_FLOAT>
struct Products {
    static DEV void add(const THREAD typename F::Raw (&raw)[ROWS], u32 span, THREAD X& x,
                        THREAD float (&sums)[ROWS][X::TOKENS]) {
#pragma unroll
        for (int piece = 0; piece < F::PIECES; piece++) {
            u32 column = 16 * F::at(span, piece), words[ROWS][4];
            float parts[ROWS][X::TOKENS] = {}, totals[X::TOKENS] = {};
#pragma unroll
            for (int r = 0; r < ROWS; r++) F::codes(raw[r], piece, words[r]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float4 w[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) w[r][i] = code<F>(words[r], 4 * j + i);
                }
#pragma unroll
                for (int t = 0; t < X::TOKENS; t++) {
                    float4 v = x.load(t, column + 4 * j);
                    if (F::HAS_MIN) totals[t] += (v.x + v.y) + (v.z + v.w);
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) parts[r][t] = fmaf(w[r][i], v[i], parts[r][t]);
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                ScaleMin of = F::scale(raw[r], piece);
#pragma unroll
                for (int t = 0; t < X::TOKENS; t++) {
                    sums[r][t] = fmaf(of.scale, parts[r][t], sums[r][t]);
                    if (F::HAS_MIN) sums[r][t] = fmaf(-of.min, totals[t], sums[r][t]);
                }
            }
        }
    }
    static DEV u32 spans(u32 blocks) { return blocks * F::SPANS; }
};
// The same of float weights, whose rows may end within a span.
template <class F, int ROWS, class X>
struct Products<F, ROWS, X, true> {
    static DEV void add(const THREAD typename F::Raw (&raw)[ROWS], u32 span, THREAD X& x,
                        THREAD float (&sums)[ROWS][X::TOKENS]) {
        float w[ROWS][F::SPAN];
#pragma unroll
        for (int r = 0; r < ROWS; r++) F::elements(raw[r], w[r]);
#pragma unroll
        for (int t = 0; t < X::TOKENS; t++) {
#pragma unroll
            for (int j = 0; j < F::SPAN; j += 4) {
                float4 v = x.load(t, span * F::SPAN + j);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) sums[r][t] = fmaf(w[r][j + i], v[i], sums[r][t]);
                }
            }
        }
    }
    static DEV u32 spans(u32 elements) { return (elements + F::SPAN - 1) / F::SPAN; }
};

// ---- Products of whole rows.

// A team's lanes, which of them this is, and which of the block's teams.
struct Team {
    u32 size, member, number;
};
DEV Team team_of(Here here, u32 log2) {
    return {1u << log2, here.lane() & ((1u << log2) - 1), here.thread_x() >> log2};
}

// The sum of the team's values, on all of its lanes.
DEV float team_sum(float value, Team team) {
    for (u32 mask = team.size / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

// sums[r][t] += weight row r · row t of X; all lanes of the team get them, and begin with zeros. All lanes of the simdgroup
// meet.
template <int ROWS, class X>
DEV void multiply(const THREAD Row (&w)[ROWS], Team team, THREAD X& x, THREAD float (&sums)[ROWS][X::TOKENS]) {
    typedef Products<Format, ROWS, X, Format::IS_FLOAT> P;
    u32 spans = P::spans(w[0].blocks);
    for (u32 span = team.member; span < spans; span += team.size) {
        typename Format::Raw raw[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) raw[r] = Format::load(w[r], span);
        P::add(raw, span, x, sums);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int t = 0; t < X::TOKENS; t++) sums[r][t] = team_sum(sums[r][t], team);
    }
}
