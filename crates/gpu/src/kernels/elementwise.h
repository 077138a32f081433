// Sums and products, element by element, and the combination of experts. A block has one row, and four columns a thread.
#pragma once
#include "epilogue.h"
#include "reduce.h"

#include "ElementsParams"

DEV u64 first_column(Here here) { return ((u64)here.block_y() * here.block_width() + here.thread_x()) * 4; }

KERNEL(copy_rows)
(IN(float, x, 0), OUT(float, y, 1), PARAMS(ElementsParams, p, 2)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    store_four(y + row * p.y_stride + col, load_four(x + row * p.x_stride + col, left, p.aligned), left, p.aligned);
}

// y[t, j] = x[t, order[j]].
KERNEL(gather_columns)
(IN(float, x, 0), IN(u32, order, 1), OUT(float, y, 2), INOUT(u32, flag, 3), PARAMS(ElementsParams, p, 4)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    x += row * p.x_stride;
    Four v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (u32 i = 0; i < 4 && i < left; i++) {
        u32 from = order[(col + i) * p.gate_stride];
        if (from < p.cols) v.at[i] = x[from];
        else raise(flag, FLAG_COLUMN, from, u32(col + i), u32(p.cols));
    }
    store_four(y + row * p.y_stride + col, v, left, p.aligned);
}

// y += scale · x, or sigmoid(gate of the row) · x.
template <bool GATED>
DEV void add_row(Here here, const GLOBAL float* x, const GLOBAL float* gate, GLOBAL float* y, const ElementsParams p) {
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Four a = load_four(x + row * p.x_stride + col, left, p.aligned), b = load_four(y + row * p.y_stride + col, left, p.aligned);
    float factor = GATED ? sigmoid(gate[row * p.gate_stride]) : p.scale;
    for (u32 i = 0; i < 4; i++) b.at[i] = fmaf(factor, a.at[i], b.at[i]);
    store_four(y + row * p.y_stride + col, b, left, p.aligned);
}

KERNEL(add_rows)
(IN(float, x, 0), INOUT(float, y, 1), PARAMS(ElementsParams, p, 2)) {
    HERE;
    dependency_launch();
    dependency_wait();
    add_row<false>(here, x, nullptr, y, p);
}

KERNEL(add_gated)
(IN(float, x, 0), IN(float, gate, 1), INOUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    add_row<true>(here, x, gate, y, p);
}

KERNEL(scale_rows)
(INOUT(float, y, 0), PARAMS(ElementsParams, p, 1)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Four b = load_four(y + row * p.y_stride + col, left, p.aligned);
    for (u32 i = 0; i < 4; i++) b.at[i] *= p.scale;
    store_four(y + row * p.y_stride + col, b, left, p.aligned);
}

// y = cap · tanh(y / cap), the cap is the factor.
KERNEL(soft_cap)
(INOUT(float, y, 0), PARAMS(ElementsParams, p, 1)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Four v = load_four(y + row * p.y_stride + col, left, p.aligned);
    for (u32 i = 0; i < 4; i++) v.at[i] = p.scale * tanhf(v.at[i] / p.scale);
    store_four(y + row * p.y_stride + col, v, left, p.aligned);
}

// y between two values, of which the greater is the scale.
KERNEL(clamp_rows)
(INOUT(float, y, 0), PARAMS(ElementsParams, p, 1)) {
    HERE;
    dependency_launch();
    dependency_wait();
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Four v = load_four(y + row * p.y_stride + col, left, p.aligned);
    // NaN is neither less nor greater.
    for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] < p.low ? p.low : v.at[i] > p.scale ? p.scale : v.at[i];
    store_four(y + row * p.y_stride + col, v, left, p.aligned);
}

enum GateKind { LINEAR_GATE, SIGMOID_GATE, GELU_GATE, SOFTPLUS_GATE, NORMAL_GATE, NORMAL_TANH_GATE, SILU_GATE };

template <int KIND>
DEV float of_gate(float x) {
    switch (KIND) {
        case SIGMOID_GATE: return sigmoid(x);
        case GELU_GATE: return gelu(x);
        case SOFTPLUS_GATE: return softplus(x);
        case NORMAL_GATE: return normal(x);
        case NORMAL_TANH_GATE: return normal_tanh(x);
        case SILU_GATE: return x * sigmoid(x);
        default: return x;
    }
}

// out = x · KIND(gate).
template <int KIND>
DEV void multiply_row(Here here, const GLOBAL float* x, const GLOBAL float* gate, GLOBAL float* y,
                      const ElementsParams p) {
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Four a = load_four(x + row * p.x_stride + col, left, p.aligned);
    Four b = {};
    gate += row * p.gate_stride;
    if (p.span == 1) b = load_four(gate + col, left, p.aligned);
    else for (u32 i = 0; i < 4 && i < left; i++) b.at[i] = gate[((u32)col + i) / p.span];
    for (u32 i = 0; i < 4; i++) a.at[i] *= of_gate<KIND>(b.at[i]);
    store_four(y + row * p.y_stride + col, a, left, p.aligned);
}

KERNEL(multiply)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<LINEAR_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_sigmoid)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<SIGMOID_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_gelu)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<GELU_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_softplus)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<SOFTPLUS_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_normal)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<NORMAL_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_normal_tanh)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<NORMAL_TANH_GATE>(here, x, gate, y, p);
}

KERNEL(multiply_silu)
(IN(float, x, 0), IN(float, gate, 1), OUT(float, y, 2), PARAMS(ElementsParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    multiply_row<SILU_GATE>(here, x, gate, y, p);
}

struct alignas(8) FourHalves {
    u16 at[4];
};

#include "CombineParams"

DEV Four load_numbers(const GLOBAL float* from, u64 left, bool aligned) { return load_four(from, left, aligned); }
// bfloat16.
DEV Four load_numbers(const GLOBAL u16* from, u64 left, bool aligned) {
    FourHalves halves;
    if (aligned) halves = *(const GLOBAL FourHalves*)from;
    else for (u32 i = 0; i < 4; i++) halves.at[i] = i < left ? from[i] : (u16)0;
    Four four;
    for (u32 i = 0; i < 4; i++) four.at[i] = float_of((u32)halves.at[i] << 16);
    return four;
}

// y[t] = Σ weights[t, slot] · out[t·k + slot], slots in order, then the epilogue.
template <class Numbers>
DEV void combine_row(Here here, Numbers out, const GLOBAL float* weights, GLOBAL float* y, const CombineParams p) {
    u64 row = here.block_x(), col = first_column(here), left = p.cols - col;
    if (row >= p.rows || col >= p.cols) return;
    Numbers pair = out + row * p.top_k * p.out_stride + col;
    Four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 4
    for (u32 slot = 0; slot < p.top_k; slot++) {
        float weight = weights[row * p.weights_stride + slot];
        Four v = load_numbers(pair + slot * p.out_stride, left, p.aligned);
        for (u32 i = 0; i < 4; i++) sum.at[i] += weight * v.at[i];
    }
    GLOBAL float* to = y + row * p.y_stride + col;
    if (p.epilogue.kind == ADD) {
        Four old = load_four(to, left, p.aligned);
        for (u32 i = 0; i < 4; i++) sum.at[i] = fmaf(p.epilogue.scale, sum.at[i], old.at[i]);
    }
    store_four(to, sum, left, p.aligned);
}

KERNEL(moe_combine)
(IN(float, out, 0), IN(float, weights, 1), INOUT(float, y, 2), PARAMS(CombineParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    combine_row(here, out, weights, y, p);
}

KERNEL(moe_combine_bf16)
(IN(u16, out, 0), IN(float, weights, 1), INOUT(float, y, 2), PARAMS(CombineParams, p, 3)) {
    HERE;
    dependency_launch();
    dependency_wait();
    combine_row(here, out, weights, y, p);
}
