// Norms of rows, or of stretches of rows: by a warp if short, else by a block. Which is decided by the width alone, so
// that a row's sum is taken in the same order in every batch.
#pragma once
#include "reduce.h"

struct NormParams {
    // Elements of a stretch, and from one row to the next.
    u64 width, x_stride, out_stride;
    // Stretches in all and in a row.
    u32 stretches, per_row;
    float eps;
    u32 aligned, by_block, padding;
};

// The threads that share a stretch, which of them this is, and which stretch.
struct NormTeam {
    u32 stretch, member, threads;
    bool by_block;
};
DEV NormTeam norm_team(Here here, bool by_block) {
    if (by_block) return {here.block_x(), here.thread_x(), here.block_width(), true};
    return {here.block_x() * (here.block_width() / 32) + here.warp(), here.lane(), 32, false};
}
DEV float team_sum(Here here, NormTeam team, float value, GROUP float* scratch) {
    return team.by_block ? block_sum(here, value, scratch) : warp_sum(value);
}
// First element of a stretch.
DEV u64 norm_at(const NormParams p, u32 stretch, u64 stride) {
    return stretch / p.per_row * stride + stretch % p.per_row * p.width;
}

DEV void rms_stretch(Here here, const GLOBAL float* x, const GLOBAL float* weight, GLOBAL float* out, NormTeam team,
                     const NormParams p, GROUP float* scratch) {
    float squares = 0.0f;
    for (u64 at = team.member * 4; at < p.width; at += team.threads * 4) {
        Four v = load_four(x + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    float factor = 1.0f / sqrtf(team_sum(here, team, squares, scratch) / (float)p.width + p.eps);
    for (u64 at = team.member * 4; at < p.width; at += team.threads * 4) {
        Four v = load_four(x + at, p.width - at, p.aligned), w = load_four(weight + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * w.at[i];
        store_four(out + at, v, p.width - at, p.aligned);
    }
}

KERNEL(rms_norm)
(IN(float, x, 0), IN(float, weight, 1), OUT(float, out, 2), PARAMS(NormParams, p, 3)) {
    HERE;
    SHARED(float, scratch, 32);
    NormTeam team = norm_team(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (team.stretch >= p.stretches) return;
    rms_stretch(here, x + norm_at(p, team.stretch, p.x_stride), weight, out + norm_at(p, team.stretch, p.out_stride),
                team, p, scratch);
}

KERNEL(qk_norm)
(INOUT(float, x, 0), IN(float, weight, 1), PARAMS(NormParams, p, 2)) {
    HERE;
    SHARED(float, scratch, 32);
    NormTeam team = norm_team(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (team.stretch >= p.stretches) return;
    GLOBAL float* stretch = x + norm_at(p, team.stretch, p.x_stride);
    rms_stretch(here, stretch, weight, stretch, team, p, scratch);
}

// What the deviations' sum leaves of the mean's rounding is taken off again, so that a mean far from 0 costs no digits.
KERNEL(layer_norm)
(IN(float, x, 0), IN(float, weight, 1), IN(float, bias, 2), OUT(float, out, 3), PARAMS(NormParams, p, 4)) {
    HERE;
    SHARED(float, sums, 32);
    SHARED(float, rests, 32);
    SHARED(float, squares, 32);
    NormTeam team = norm_team(here, p.by_block);
    dependency_launch();
    dependency_wait();
    if (team.stretch >= p.stretches) return;
    const GLOBAL float* row = x + norm_at(p, team.stretch, p.x_stride);
    GLOBAL float* to = out + norm_at(p, team.stretch, p.out_stride);
    float count = (float)p.width, sum = 0.0f;
    for (u64 at = team.member * 4; at < p.width; at += team.threads * 4) {
        Four v = load_four(row + at, p.width - at, p.aligned);
        for (u32 i = 0; i < 4; i++) sum += v.at[i];
    }
    float mean = team_sum(here, team, sum, sums) / count;
    float rest = 0.0f, square = 0.0f;
    for (u64 at = team.member * 4; at < p.width; at += team.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(row + at, left, p.aligned);
        for (u32 i = 0; i < 4; i++) {
            float deviation = i < left ? v.at[i] - mean : 0.0f;
            rest += deviation;
            square += deviation * deviation;
        }
    }
    rest = team_sum(here, team, rest, rests) / count;
    // Deviations from mean + rest: the mean of their squares is less by rest².
    float variance = fmaxf(team_sum(here, team, square, squares) / count - rest * rest, 0.0f);
    float factor = 1.0f / sqrtf(variance + p.eps);
    for (u64 at = team.member * 4; at < p.width; at += team.threads * 4) {
        u64 left = p.width - at;
        Four v = load_four(row + at, left, p.aligned);
        Four w = load_four(weight + at, left, p.aligned), b = load_four(bias + at, left, p.aligned);
        for (u32 i = 0; i < 4; i++) v.at[i] = (v.at[i] - mean - rest) * factor * w.at[i] + b.at[i];
        store_four(to + at, v, left, p.aligned);
    }
}
