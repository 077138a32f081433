// A lane's part of a row of quantised weights, where four lanes share a row and lane t of them has columns 4t to 4t + 3 of each
// 16: as products on tensor cores want the operand that is in registers.
#pragma once
#include "format.h"

// Columns, and pieces of 16, in a step.
constexpr u32 STEP = 128;
constexpr int PIECES = 8;

template <class F>
struct QuarterRow {
    static constexpr int SPANS = PIECES / F::PIECES;

    typename F::Raw raw[SPANS];

    // Which 16 columns of the step piece i is.
    static DEV u32 at(int i) { return F::at(i / F::PIECES, i % F::PIECES); }
    static DEV typename F::Raw load(Row row, u32 span, u32 t) {
        // Only rows of small blocks may end within a step: there scales are zero.
        if (F::BLOCK < STEP && span >= row.blocks * F::SPANS) return typename F::Raw{};
        return F::load(row, span, QuarterSpan{t});
    }
    DEV void load_span(int s, Row row, u32 step, u32 t) { raw[s] = load(row, step * SPANS + s, t); }
    // The lane's four columns of piece i.
    DEV u32 codes(int i) const {
        u32 words[4];
        F::codes(raw[i / F::PIECES], i % F::PIECES, words);
        return words[0];
    }
};
