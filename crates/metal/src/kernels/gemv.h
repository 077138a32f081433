// Weights times few rows of activations: bound by reading weights, which are unpacked in registers from the file's own blocks.
//
// A *lane group* of 4 to 32 neighbouring lanes, a power of two, multiplies some weight rows; its lanes take the rows' spans in turns.
// Sums stay in registers: first those of a lane in the order of its spans, then a tree over the lane group. So a result depends
// on the weight's shape alone, not on how many rows of activations there are, nor on the rows beside it. Products are of
// floats: nothing is rounded before the sums.
#pragma once
#include "format.h"
#include "reduce.h"
#include "tasks.h"

typedef FORMAT Format;

// Threads of a block, and its simdgroups.
#define BLOCK_THREADS 64
// Weight rows of a lane group, which share reading X; and its outputs where gate and up are multiplied.
#define GROUP_ROWS 4
#define GATE_ROWS (GROUP_ROWS / 2)

// Rows of X that are multiplied at once.
template <int COUNT>
struct Inputs {
    MEMBER int TOKENS = COUNT;
    const GLOBAL float* rows[COUNT];
    u32 cols;
    DEV float4 load(int t, u32 column) { return load_columns(rows[t], column, cols); }
};

// ---- Products of one span.

// sums[r][t] += Σ over a span of weight row r · row t of X, of which each column is loaded once. With Σ code · x and Σ x of
// a piece, its scale and minimum are applied once.
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

// A lane group's lanes, which of them this is, and which of the block's lane groups.
struct LaneGroup {
    u32 size, member, number;
};
DEV LaneGroup lane_group_of(Here here, u32 log2) {
    return {1u << log2, here.lane() & ((1u << log2) - 1), here.thread_x() >> log2};
}

// The sum of the lane group's values, on all of its lanes.
DEV float lane_group_sum(float value, LaneGroup group) {
    for (u32 mask = group.size / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

// sums[r][t] += weight row r · row t of X; all lanes of the lane group get them, and begin with zeros. All lanes of the simdgroup
// meet.
template <int ROWS, class X>
DEV void multiply(const THREAD Row (&w)[ROWS], LaneGroup group, THREAD X& x, THREAD float (&sums)[ROWS][X::TOKENS]) {
    typedef Products<Format, ROWS, X, Format::IS_FLOAT> P;
    u32 spans = P::spans(w[0].blocks);
    for (u32 span = group.member; span < spans; span += group.size) {
        typename Format::Raw raw[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) raw[r] = Format::load(w[r], span);
        P::add(raw, span, x, sums);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int t = 0; t < X::TOKENS; t++) sums[r][t] = lane_group_sum(sums[r][t], group);
    }
}

// The weight rows of a lane group's outputs from `output` on: those of gate and up in turns.
template <bool GATED>
DEV void lane_group_weights(const ProductParams p, const Weights weights, u32 expert, u32 output, THREAD Row (&w)[GROUP_ROWS]) {
#pragma unroll
    for (u32 r = 0; r < GROUP_ROWS; r++) {
        w[r] = GATED ? gated_row(p, weights, r % 2 == 1, expert, output + r / 2)
                     : weight_row(p, weights.weight, expert, output + r);
    }
}
