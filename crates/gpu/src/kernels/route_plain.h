// The router where logits alone choose: softmax over all or over the chosen, without bias and groups, at most 32 chosen. A
// warp has a token's logits in registers, EXPERTS_PER_LANE to a lane. The code is short, because a step of one token
// waits for every instruction that is fetched.
#pragma once
#include "route.h"

#ifdef EXPERTS_PER_LANE
// A sum kept as two floats, so that all weights of a token do not share its rounding.
struct Sum {
    float high, low;
};
// (Knuth, "The art of computer programming" 2, 4.2.2.)
DEV Sum sum_of(Sum a, Sum b) {
    float high = a.high + b.high, part = high - a.high;
    return {high, (a.high - (high - part)) + (b.high - part) + (a.low + b.low)};
}
DEV Sum warp_sum(Sum sum) {
    for (int mask = 16; mask > 0; mask /= 2) sum = sum_of(sum, {shuffle_xor(sum.high, mask), shuffle_xor(sum.low, mask)});
    return sum;
}

// A warp's choice: lane number `slot` has that slot's expert. The largest logit, NaN if some logit is not finite.
struct Chosen {
    u32 expert;
    float largest;
};

// The choice for the logits from `at` on.
DEV Chosen choose(Here here, const GLOBAL float* at, const RouteParams p) {
    float values[EXPERTS_PER_LANE];
    u32 orders[EXPERTS_PER_LANE];
    u32 top = 0;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        u32 i = here.lane() + 32 * j;
        values[j] = i < p.experts ? at[i] : 0.0f;
    }
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        // One more than the order: 0 is none, be it taken or not there. What is not finite is above all.
        u32 order = finite(values[j]) ? order_of(values[j]) + 1 : ~0u;
        orders[j] = here.lane() + 32 * j < p.experts ? order : 0;
        top = max(top, orders[j]);
    }
    top = warp_largest(top);
    float largest = of_order(top - 1);
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        // Logits that softmax makes 0 are equal.
        if (p.gating == SOFTMAX && largest - values[j] > VANISHES && orders[j] > 0) orders[j] = ORDER_OF_NOTHING + 1;
    }

    // This lane's best, and its place.
    u32 chosen = 0;
    for (u32 slot = 0; slot < p.top_k; slot++) {
        u32 best = 0, place = 0;
#pragma unroll
        for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
            if (orders[j] > best) best = orders[j], place = j;
        }
        u32 order = warp_largest(best);
        u32 expert = warp_smallest(best == order ? here.lane() + 32 * place : PADDING);
#pragma unroll
        for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
            if (expert == here.lane() + 32 * j) orders[j] = 0;
        }
        if (here.lane() == slot) chosen = expert;
    }
    return {chosen, largest};
}

// The weight of this lane's slot: NaN if the largest logit is.
DEV float weigh(Here here, const GLOBAL float* at, Chosen chosen, const RouteParams p) {
    Sum sum = {0.0f, 0.0f};
    bool over_all = p.gating == SOFTMAX;
    if (over_all && !p.normalise) {
        for (u32 i = here.lane(); i < p.experts; i += 32) sum = sum_of(sum, {expf(at[i] - chosen.largest), 0.0f});
        sum = warp_sum(sum);
    }
    bool live = here.lane() < p.top_k;
    float logit = live ? at[chosen.expert] : 0.0f;
    float share = live ? expf(logit - chosen.largest) : 0.0f;
    // Shares of all are divided by their sum; else those of the chosen by theirs.
    if (!over_all || p.normalise) sum = warp_sum(Sum{share, 0.0f});
    // The largest has a share of 1: the sum is at least that.
    float factor = p.scale / sum.high, rest = fmaf(-factor, sum.low, fmaf(-factor, sum.high, p.scale)) / sum.high;
    // Roundings are written out, so that every kernel that routes has the same.
    return fmaf(share, factor, rounded_product(share, rest));
}

DEV void store_choice(Here here, Chosen chosen, float weight, u64 row, GLOBAL u32* ids, GLOBAL float* weights,
                      const RouteParams p) {
    if (here.lane() >= p.top_k) return;
    ids[row * p.ids_stride + here.lane()] = chosen.expert;
    weights[row * p.weights_stride + here.lane()] = weight;
}

DEV void route_plain(Here here, u64 row, const GLOBAL float* logits, GLOBAL u32* ids, GLOBAL float* weights,
                     const RouteParams p) {
    const GLOBAL float* at = logits + row * p.logits_stride;
    Chosen chosen = choose(here, at, p);
    store_choice(here, chosen, weigh(here, at, chosen, p), row, ids, weights, p);
}
#endif
