// Norms of rows, or of segments of rows: by a warp if short, else by a block. The width alone decides which, so a row's sum is
// taken in the same order in every batch.
#pragma once
#include "reduce.h"

#include "NormParams"

// The threads that share a segment, which of them this is, and which segment.
struct NormThreads {
    u32 segment, member, threads;
    bool by_block;
};
DEV NormThreads norm_threads(Here here, bool by_block) {
    if (by_block) return {here.block_x(), here.thread_x(), here.block_width(), true};
    return {here.block_x() * (here.block_width() / 32) + here.warp(), here.lane(), 32, false};
}
DEV float segment_sum(Here here, NormThreads threads, float value, GROUP float* scratch) {
    return threads.by_block ? block_sum(here, value, scratch) : warp_sum(value);
}
// First element of a segment.
DEV u64 norm_at(const NormParams p, u32 segment, u64 stride) {
    return segment / p.per_row * stride + segment % p.per_row * p.width;
}

// `x` and `out` may be the same.
DEV void rms_segment(Here here, const GLOBAL float* x, const GLOBAL float* weight, GLOBAL float* out, u64 out_stride,
                     const NormParams p, GROUP float* scratch) {
    NormThreads threads = norm_threads(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (threads.segment >= p.segments) return;
    x += norm_at(p, threads.segment, p.x_stride);
    out += norm_at(p, threads.segment, out_stride);
    float squares = 0.0f;
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        Four v = load_four(x + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    float factor = 1.0f / sqrtf(segment_sum(here, threads, squares, scratch) / (float)p.width + p.eps);
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        Four v = load_four(x + at, p.width - at, p.aligned), w = load_four(weight + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * w.at[i];
        store_four(out + at, v, p.width - at, p.aligned);
    }
}

KERNEL(rms_norm)
(IN(float, x, 0), IN(float, weight, 1), OUT(float, out, 2), PARAMS(NormParams, p, 3)) {
    HERE;
    SHARED(float, scratch, 32);
    rms_segment(here, x, weight, out, p.out_stride, p, scratch);
}

KERNEL(qk_norm)
(INOUT(float, x, 0), IN(float, weight, 1), PARAMS(NormParams, p, 2)) {
    HERE;
    SHARED(float, scratch, 32);
    rms_segment(here, x, weight, x, p.x_stride, p, scratch);
}

// The mean's rounding, which the deviations' sum shows, is taken off again, so that a mean far from 0 costs no digits.
KERNEL(layer_norm)
(IN(float, x, 0), IN(float, weight, 1), IN(float, bias, 2), OUT(float, out, 3), PARAMS(NormParams, p, 4)) {
    HERE;
    SHARED(float, sums, 32);
    SHARED(float, rests, 32);
    SHARED(float, squares, 32);
    NormThreads threads = norm_threads(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (threads.segment >= p.segments) return;
    const GLOBAL float* row = x + norm_at(p, threads.segment, p.x_stride);
    GLOBAL float* to = out + norm_at(p, threads.segment, p.out_stride);
    float count = (float)p.width, sum = 0.0f;
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        Four v = load_four(row + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) sum += v.at[i];
    }
    float mean = segment_sum(here, threads, sum, sums) / count;
    float rest = 0.0f, square = 0.0f;
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(row + at, left, p.aligned);
        for (u32 i = 0; i < 4; i++) {
            float deviation = i < left ? v.at[i] - mean : 0.0f;
            rest += deviation;
            square += deviation * deviation;
        }
    }
    rest = segment_sum(here, threads, rest, rests) / count;
    // Deviations from mean + rest: the mean of their squares is less by rest².
    float variance = fmaxf(segment_sum(here, threads, square, squares) / count - rest * rest, 0.0f);
    float factor = 1.0f / sqrtf(variance + p.eps);
    for (u64 at = threads.member * 4; at < p.width; at += threads.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(row + at, left, p.aligned);
        Four w = load_four(weight + at, left, p.aligned), b = load_four(bias + at, left, p.aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = (v.at[i] - mean - rest) * factor * w.at[i] + b.at[i];
        store_four(to + at, v, left, p.aligned);
    }
}
