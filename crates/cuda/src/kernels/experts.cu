// The experts of few tokens, from the router's logits to the residual stream in two launches, without grouping: tokens of the
// same expert find its weights in the cache. Every warp routes what its block needs, which costs less than one more launch.
//
// Compiled for a format (FORMAT), for int8 activations or exact ones (INT8), and for the rules of the router (EXPERTS_PER_LANE,
// SCORED, EXPERT_SCALES).
#define TOKENS 1
#define BLOCK_THREADS 256
#include "epilogue.h"
#include "gated.cuh"
#include "gemv.cuh"
#include "route_lanes.h"

#include "ExpertsParams"

DEV Inputs inputs_of(const Element* x, u32 cols, u32 row) {
    return {x, cols, INT8 ? (cols + 31) / 32 : cols, 1, {row}};
}

// For pair y of the grid, slot y % k of token y / k: activation(gate · x, up · x) as activations, not of padding. Keeps
// the choice too.
KERNEL_BOUNDED(experts_gate_up, BLOCK_THREADS, LEAST_SMALL_BLOCKS)
(IN(u8, gate, 0), IN(u8, up, 1), IN(Element, x, 2), IN(float, logits, 3), IN(float, selection, 4), IN(float, scales, 5),
 IN(float, gate_bias, 6), IN(float, up_bias, 7), IN(u32, tokens, 8), OUT(u32, ids, 9), OUT(float, weights, 10),
 OUT(float, exact, 11), OUT(Int8Block, int8, 12), OUT(u32, bf16, 13), PARAMS(ExpertsParams, p, 14)) {
    SHARED(float, parts, PARTS(2 * GATE_ROWS));
    SHARED(Four, staged, 8);
    u32 pair = here.block_y(), token = pair / p.route.top_k, slot = pair % p.route.top_k;
    bool padding = is_padding(tokens, token, p.route);
    // No kernel writes biases and scales.
    if (p.route.biased && 32 * here.thread_x() < p.route.experts) touch(selection + 32 * here.thread_x());
    if (EXPERT_SCALES && 32 * here.thread_x() < p.route.experts) touch(scales + 32 * here.thread_x());
    dependency_wait();
    // Not earlier: `experts_down` reads the logits without waiting for this kernel.
    dependency_launch();
    if (padding) {
        // `experts_down` does not read the pairs of padding.
        if (slot == 0 && here.block_x() == 0 && here.warp() == 0) store_padding(here, token, ids, weights, p.route);
        return;
    }
    Inputs inputs = inputs_of(x, p.cols, token);
    inputs.touch();
    const float* scores = logits + token * p.route.logits_stride;
    Chosen chosen = choose(here, scores, selection, p.route);
    const float* biases[2] = {gate_bias, up_bias};
    const u8* both[2] = {gate, up};
    auto take = [&](u32, u32 column, float value) { reinterpret_cast<float*>(staged)[column] = value; };
    gate_and_up(both, biases, {p.row_bytes, p.matrix_bytes, p.bias_stride, p.outputs, p.blocks},
                shuffle(chosen.expert, slot), p.epilogue.activation, [&]() { return inputs; }, 1, parts, take);
    barrier();
    Gated out = {nullptr, exact, int8, bf16, 0, p.outputs};
    out.write(staged, 8, 1, here.block_x(), BLOCK_THREADS / 32, [&](u32) { return pair; });
    if (slot == 0 && here.block_x() == 0 && here.warp() == 0)
        store_choice(here, chosen, weigh(here, scores, chosen, scales, p.route), token, ids, weights, p.route);
}

// Weight rows of a thread group, and of a block: a warp has a pair at a time, in groups of 16 threads.
#define DOWN_ROWS 4
#define DOWN_THREADS_LOG2 4
#define BLOCK_ROWS (DOWN_ROWS << (5 - DOWN_THREADS_LOG2))
// Warps of a block at most.
#define DOWN_WARPS 8

// y[t] = Σ weight · (W[expert] · x[pair] + bias), over the token's pairs in order, for token y of the grid. The logits must
// have been complete when the kernel before this one began.
KERNEL_BOUNDED(experts_down, 32 * DOWN_WARPS, INT8 ? LEAST_SMALL_BLOCKS : 1)
(IN(u8, weight, 0), IN(Element, x, 1), IN(float, logits, 2), IN(float, selection, 3), IN(float, scales, 4),
 IN(float, bias, 5), IN(u32, tokens, 6), INOUT(float, y, 7), PARAMS(ExpertsParams, p, 8)) {
    SHARED(float, parts, 32 * DOWN_WARPS * DOWN_ROWS);
    SHARED(float, products, DOWN_WARPS * BLOCK_ROWS);
    dependency_launch();
    u32 token = here.block_y(), warps = here.block_width() / 32;
    // Padding has no pairs.
    u32 k = is_padding(tokens, token, p.route) ? 0 : p.route.top_k;
    const float* scores = logits + token * p.route.logits_stride;
    Chosen chosen = choose(here, scores, selection, p.route);
    float weights = weigh(here, scores, chosen, scales, p.route);
    ThreadGroup threads = thread_group(DOWN_THREADS_LOG2);
    u32 column = (here.lane() >> DOWN_THREADS_LOG2) * DOWN_ROWS, first = here.block_x() * BLOCK_ROWS + column;
    float sum = 0.0f;
    for (u32 round = 0; round < k; round += warps) {
        u32 slot = round + here.warp(), present = min(k - round, warps);
        if (slot < k) {
            u32 expert = shuffle(chosen.expert, slot);
            float share = shuffle(weights, slot);
            Row w[DOWN_ROWS];
#pragma unroll
            for (int r = 0; r < DOWN_ROWS; r++) {
                u64 at = expert * p.matrix_bytes + min(first + r, p.outputs - 1) * p.row_bytes;
                w[r] = {weight + at, p.blocks};
            }
            float sums[DOWN_ROWS][TOKENS] = {};
            multiply<Format>(w, threads, [&]() {
                dependency_wait();
                return inputs_of(x, p.cols, token * k + slot);
            }, sums);
            Totals totals = gather(sums, threads, parts);
            if (threads.member < DOWN_ROWS) {
                u32 output = min(first + threads.member, p.outputs - 1);
                float add = bias == nullptr ? 0.0f : bias[expert * p.bias_stride + output];
                products[here.warp() * BLOCK_ROWS + column + threads.member] = share * (totals.at(threads.member) + add);
            }
        }
        barrier();
        if (here.thread_x() < BLOCK_ROWS)
            for (u32 i = 0; i < present; i++) sum += products[i * BLOCK_ROWS + here.thread_x()];
        barrier();
    }
    // A warp without a pair has not waited.
    if (k == 0) dependency_wait();
    u32 output = here.block_x() * BLOCK_ROWS + here.thread_x();
    if (here.thread_x() < BLOCK_ROWS && output < p.outputs) apply_epilogue(p.epilogue, y + token * p.y_stride + output, sum);
}
