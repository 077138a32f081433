// A norm of segments whose output or input is gated.
#pragma once
#include "activation.h"
#include "norm.h"

#include "GatedNormParams"

// x = norm(x) · silu(gate), or norm(x · silu(gate)), in place; the gate's rows are `out_stride` apart.
KERNEL(gated_norm)
(INOUT(float, x, 0), IN(float, gate, 1), IN(float, weight, 2), PARAMS(GatedNormParams, params, 3)) {
    HERE;
    const NormParams p = params.norm;
    SHARED(float, scratch, 32);
    NormThreads threads = norm_threads(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (threads.segment >= p.segments) return;
    x += norm_at(p, threads.segment, p.x_stride);
    gate += norm_at(p, threads.segment, p.out_stride);
    weight += u64(threads.segment % p.per_row) * params.weight_stride;
    float squares = 0.0f;
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(x + at, left, p.aligned);
        if (params.gate_first) {
            Four g = load_four(gate + at, left, p.aligned);
            for (u32 i = 0; i < 4; i++) v.at[i] *= g.at[i] * sigmoid(g.at[i]);
        }
        for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    float factor = 1.0f / sqrtf(segment_sum(here, threads, squares, scratch) / (float)p.width + p.eps);
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(x + at, left, p.aligned), w = load_four(weight + at, left, p.aligned);
        Four g = load_four(gate + at, left, p.aligned);
        for (u32 i = 0; i < 4; i++) {
            float silu = g.at[i] * sigmoid(g.at[i]);
            v.at[i] = params.gate_first ? v.at[i] * silu * factor * w.at[i] : v.at[i] * factor * w.at[i] * silu;
        }
        store_four(x + at, v, left, p.aligned);
    }
}
