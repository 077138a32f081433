// Products element by element, as activations: eight lanes take 32 elements of a row, four each.
#pragma once
#include "elementwise.h"
#include "quantise.h"

#include "MultiplyActParams"

DEV float of_gate(u32 kind, float x) {
    switch (kind) {
        case SIGMOID_GATE: return of_gate<SIGMOID_GATE>(x);
        case GELU_GATE: return of_gate<GELU_GATE>(x);
        case SOFTPLUS_GATE: return of_gate<SOFTPLUS_GATE>(x);
        case NORMAL_GATE: return of_gate<NORMAL_GATE>(x);
        case NORMAL_TANH_GATE: return of_gate<NORMAL_TANH_GATE>(x);
        case SILU_GATE: return of_gate<SILU_GATE>(x);
        default: return x;
    }
}

// x · kind(gate).
KERNEL(multiply_act)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, exact, 2), OUT(Int8Block, int8, 3), OUT(u32, bf16, 4),
 PARAMS(MultiplyActParams, p, 5)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u32 blocks = (p.cols + 31) / 32, part = here.lane() % 8;
    u64 at = (u64(here.block_x()) * here.block_width() + here.thread_x()) / 8;
    // The lanes meet in `quantise_parts`.
    bool live = at < u64(p.rows) * blocks;
    u64 row = live ? at / blocks : 0;
    u32 column = live ? u32(at % blocks) * 32 + 4 * part : p.cols;
    u64 left = column < p.cols ? p.cols - column : 0;
    bool aligned = p.aligned && left > 0;
    Four v = load_four(x + row * p.x_stride + column, left, aligned), b = {};
    gate += row * p.gate_stride;
    if (p.span == 1) b = load_four(gate + column, left, aligned);
    else for (u32 i = 0; i < 4 && i < left; i++) b.at[i] = gate[(column + i) / p.span];
    for (u32 i = 0; i < 4; i++) v.at[i] *= of_gate(p.kind, b.at[i]);
    if (p.parts & PART_EXACT) store_four(exact + row * p.cols + column, v, left, aligned);
    quantise_parts(p.parts, v, int8 + at, bf16 + 16 * at, part, live);
}
