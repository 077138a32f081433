// The experts of few tokens, from the router's logits to the residual stream in two launches, without grouping: tokens of
// the same expert read its weights from the cache. Every simdgroup routes for itself, which costs less than a launch.
#pragma once
// Experts that a simdgroup's lanes hold in all: 32 times as many.
#define EXPERTS_PER_LANE 8
#include "gemv.h"
#include "route_lanes.h"

#include "ExpertsParams"

DEV Inputs<1> row_of(const ProductParams p, const GLOBAL float* x, u64 row) {
    Inputs<1> inputs;
    inputs.cols = p.blocks * Format::BLOCK;
    inputs.rows[0] = x + row * inputs.cols;
    return inputs;
}

// For pair y of the grid, slot y % k of token y / k: h = activation(gate · x + bias, up · x + bias). Writes ids and
// weights too; of padding these alone, because `experts_down` does not read its pairs.
KERNEL_BOUNDED(experts_gate_up, BLOCK_THREADS, 1)
(IN(u8, gate, 0), IN(u8, up, 1), IN(float, x, 2), IN(float, logits, 3), IN(float, selection, 4), IN(float, scales, 5),
 IN(float, gate_bias, 6), IN(float, up_bias, 7), IN(u32, tokens, 8), OUT(u32, ids, 9), OUT(float, weights, 10),
 OUT(float, h, 11),
 PARAMS(ExpertsParams, both, 12)) {
    HERE;
    const ExpertsParams params = both;
    const ProductParams p = params.product;
    u32 pair = here.block_y(), token = pair / params.route.top_k, slot = pair % params.route.top_k;
    if (is_padding(tokens, token, params.route)) {
        if (slot == 0 && here.block_x() == 0 && here.warp() == 0)
            store_padding(here, token, ids, weights, params.route);
        return;
    }
    const GLOBAL float* scores = logits + token * params.route.logits_stride;
    Chosen chosen = choose(here, scores, selection, params.route);
    u32 expert = shuffle(chosen.expert, slot);
    LaneGroup group = lane_group_of(here, p.cut);
    u32 first = (here.block_x() * (BLOCK_THREADS >> p.cut) + group.number) * GATE_ROWS;
    Row w[GROUP_ROWS];
    lane_group_weights<true>(p, {{gate, gate, gate}, up, gate_bias, up_bias}, expert, first, w);
    float sums[GROUP_ROWS][1] = {};
    Inputs<1> inputs = row_of(p, x, token);
    multiply(w, group, inputs, sums);
#pragma unroll
    for (int r = 0; r < GATE_ROWS; r++) {
        u32 output = first + r;
        if (group.member != u32(r) || output >= p.outputs) continue;
        float gates = sums[2 * r][0] + bias_of(p, gate_bias, expert, output);
        float ups = sums[2 * r + 1][0] + bias_of(p, up_bias, expert, output);
        h[pair * p.y_stride + output] = activate(p.epilogue.activation, gates, ups);
    }
    if (slot == 0 && here.block_x() == 0 && here.warp() == 0)
        store_choice(here, chosen, weigh(here, scores, chosen, scales, params.route), token, ids, weights, params.route);
}

// Simdgroups of a block, which take a token's pairs in turns.
#define DOWN_WARPS 8

// y[t] = Σ weight · (W[expert] · x[pair] + bias), over the token's pairs in order, for token y of the grid.
KERNEL_BOUNDED(experts_down, 32 * DOWN_WARPS, 1)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, logits, 2), IN(float, selection, 3), IN(float, scales, 4),
 IN(float, bias, 5), IN(u32, tokens, 6), INOUT(float, y, 7), PARAMS(ExpertsParams, both, 8)) {
    HERE;
    SHARED(float, partials, DOWN_WARPS * 8 * GROUP_ROWS);
    const ExpertsParams params = both;
    const ProductParams p = params.product;
    u32 token = here.block_y(), warps = here.block_width() / 32;
    // Padding has no pairs.
    u32 k = is_padding(tokens, token, params.route) ? 0 : params.route.top_k;
    const GLOBAL float* scores = logits + token * params.route.logits_stride;
    Chosen chosen = choose(here, scores, selection, params.route);
    float weights = weigh(here, scores, chosen, scales, params.route);
    LaneGroup group = lane_group_of(here, p.cut);
    // Rows of a simdgroup, which are the block's: all have the same.
    u32 rows = (32 >> p.cut) * GROUP_ROWS, column = (here.lane() >> p.cut) * GROUP_ROWS;
    u32 first = here.block_x() * rows + column;
    float sum = 0.0f;
    for (u32 round = 0; round < k; round += warps) {
        u32 slot = round + here.warp(), present = min(k - round, warps);
        if (slot < k) {
            u32 expert = shuffle(chosen.expert, slot);
            float share = shuffle(weights, slot);
            Row w[GROUP_ROWS];
            lane_group_weights<false>(p, {{weight, weight, weight}, weight, bias, bias}, expert, first, w);
            float sums[GROUP_ROWS][1] = {};
            Inputs<1> inputs = row_of(p, x, u64(token) * k + slot);
            multiply(w, group, inputs, sums);
#pragma unroll
            for (int r = 0; r < GROUP_ROWS; r++) {
                if (group.member != u32(r)) continue;
                float add = bias_of(p, bias, expert, min(first + r, p.outputs - 1));
                partials[here.warp() * rows + column + r] = share * (sums[r][0] + add);
            }
        }
        barrier();
        if (here.thread_x() < rows)
            for (u32 i = 0; i < present; i++) sum += partials[i * rows + here.thread_x()];
        barrier();
    }
    u32 output = here.block_x() * rows + here.thread_x();
    if (here.thread_x() < rows && output < p.outputs) apply_epilogue(p.epilogue, y + token * p.y_stride + output, sum);
}
