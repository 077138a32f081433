// The router of most models: softmax over all or over the chosen, or sigmoid, with a bias, with groups, at most 32 chosen. A
// warp has a token's experts in registers, EXPERTS_PER_LANE to a lane. The code is short, because a step of one token
// waits for every instruction that is fetched.
//
// With sigmoids, a bias or groups (SCORED), rough scores of 32 bits choose, as long as they lie further apart than they may be
// wrong. Else the token is routed again, and experts whose scores lie nearer are compared by 64 bits (`score`), which takes
// some hundred instructions for each.
#pragma once
#include "route.h"

#ifdef EXPERTS_PER_LANE
#ifndef SCORED
#define SCORED (p.gating == SIGMOID || p.biased || p.groups > 0)
#endif
#ifndef EXPERT_SCALES
#define EXPERT_SCALES (p.scaled)
#endif

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
// The sum of e^(logit − largest) over all experts.
DEV Sum sum_of_all(Here here, const GLOBAL float* at, float largest, const RouteParams p) {
    Sum sum = {0.0f, 0.0f};
    for (u32 i = here.lane(); i < p.experts; i += 32) sum = sum_of(sum, {expf(at[i] - largest), 0.0f});
    return warp_sum(sum);
}

// A warp's choice: lane number `slot` has that slot's expert. The largest logit, NaN if some number is not finite.
struct Chosen {
    u32 expert;
    float largest;
};

// How far two scores of about this size may be apart in the wrong order. Values of softmax and sigmoid are wrong by less than
// 2^-20: exponential and quotient by 4 and 2.5 units in the last place at most, of which a value above 1/2 takes a part (the
// largest logit's exponential is exact; a sigmoid changes by at most a quarter of what its exponential does). The sum with a
// bias is rounded by 2^-24 of it. That for two scores, doubled for the roundings here.
DEV float tolerance(float size) { return fmaf(size, 2.384185791e-7f, 3.814697266e-6f); }

// The score of an expert, roughly. `all`: the sum for softmax.
DEV float rough_score(float logit, float bias, float largest, float all, const RouteParams p) {
    float value = logit;
    if (p.gating == SOFTMAX) value = expf(logit - largest) / all;
    if (p.gating == SIGMOID) value = 1.0f / (1.0f + expf(-logit));
    return value + bias;
}

// Sort keys plus one; 0 marks an empty or taken slot.
struct Orders {
    u32 of[EXPERTS_PER_LANE];
};

// The two largest of a warp's numbers, of which each lane has two.
template <class T>
DEV void two_largest(Here here, THREAD T* first, THREAD T* second) {
    T most = warp_largest(*first);
    u32 lane = warp_smallest(*first == most ? here.lane() : PADDING);
    *second = warp_largest(here.lane() == lane ? *second : *first);
    *first = most;
}

// A group's two best rough orders.
DEV void best_of_group(Here here, u32 begin, u32 size, const Orders orders, THREAD u32* first, THREAD u32* second) {
    *first = *second = 0;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        u32 order = here.lane() + 32 * j - begin < size ? orders.of[j] : 0;
        *second = max(*second, min(*first, order));
        *first = max(*first, order);
    }
    two_largest(here, first, second);
}
// The same of exact scores.
DEV void best_of_group(Here here, u32 begin, u32 size, const Router r, const GLOBAL float* bias, THREAD u64* first,
                       THREAD u64* second, const RouteParams p) {
    *first = *second = 0;
#pragma unroll 1
    for (u32 i = begin + here.lane(); i < begin + size; i += 32) {
        u64 order = order_of(score(r, i, bias, p));
        *second = larger(*second, smaller(*first, order));
        *first = larger(*first, order);
    }
    two_largest(here, first, second);
}

// Takes the experts of all groups but the best out. Whether rough scores leave open which these are.
DEV bool exclude_groups(Here here, const Router r, const GLOBAL float* bias, bool exactly, THREAD Orders* orders,
                        const RouteParams p) {
    // A lane has a group's worth, one more than its order, and how wrong it may be.
    u32 size = p.experts / p.groups, high = 0, low = 0;
    float worth = 0.0f, wrong = 0.0f;
#pragma unroll 1
    for (u32 g = 0; g < p.groups; g++) {
        if (exactly) {
            u64 first, second;
            best_of_group(here, g * size, size, r, bias, &first, &second, p);
            Float64 sum = float64_of_order(first);
            if (size > 1 && p.worth > 1) sum = float64_sum(sum, float64_of_order(second));
            u64 order = order_of(sum) + 1;
            if (here.lane() == g) high = (u32)(order >> 32), low = (u32)order;
        } else {
            u32 first, second;
            best_of_group(here, g * size, size, *orders, &first, &second);
            float best = of_order(first - 1), next = size > 1 && p.worth > 1 ? of_order(second - 1) : 0.0f;
            if (here.lane() == g) {
                worth = best + next;
                wrong = tolerance(fabsf(best) + fabsf(next));
                high = order_of(worth) + 1;
            }
        }
    }
    Orders left = {};
    bool kept = false;
    for (u32 i = 0; i < p.top_groups; i++) {
        u32 most = warp_largest(high), rest = warp_largest(high == most ? low : 0u);
        u32 best = warp_smallest(high == most && low == rest ? here.lane() : PADDING);
        if (here.lane() == best) kept = true, high = low = 0;
#pragma unroll
        for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
            if (here.lane() + 32 * j - best * size < size) left.of[j] = orders->of[j];
        }
    }
    *orders = left;
    bool other = !kept && here.lane() < p.groups;
    float least = -warp_max(kept ? wrong - worth : -infinity()), most = warp_max(other ? worth + wrong : -infinity());
    return !exactly && most >= least;
}

// The best by exact scores of those whose orders are at least this.
DEV u32 best_exactly(Here here, const Orders orders, u32 least, const Router r, const GLOBAL float* bias,
                     const RouteParams p) {
    u32 near = 0, index = PADDING;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) near |= (orders.of[j] >= least ? 1u : 0u) << j;
    u64 mine = 0;
#pragma unroll 1
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        if (!(near >> j & 1)) continue;
        u64 order = order_of(score(r, here.lane() + 32 * j, bias, p));
        if (order > mine) mine = order, index = here.lane() + 32 * j;
    }
    u64 best = warp_largest(mine);
    return warp_smallest(mine == best ? index : PADDING);
}

// The orders of experts, and the largest logit.
DEV Orders orders_by_logits(Here here, const GLOBAL float* at, THREAD float* largest, const RouteParams p) {
    float values[EXPERTS_PER_LANE];
    Orders orders;
    u32 top = 0;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        u32 i = here.lane() + 32 * j;
        values[j] = i < p.experts ? at[i] : 0.0f;
    }
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        // What is not finite is above all.
        u32 order = finite(values[j]) ? order_of(values[j]) + 1 : ~0u;
        orders.of[j] = here.lane() + 32 * j < p.experts ? order : 0;
        top = max(top, orders.of[j]);
    }
    top = warp_largest(top);
    *largest = of_order(top - 1);
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        if (orders.of[j] == 0) continue;
        // Logits that softmax makes 0 are equal.
        if (p.gating == SOFTMAX && *largest - values[j] > VANISHES) orders.of[j] = ORDER_OF_NOTHING + 1;
    }
    return orders;
}
// The orders of rough scores. If some number is not finite, any.
DEV Orders orders_by_scores(Here here, const GLOBAL float* at, const GLOBAL float* bias, THREAD float* largest,
                            const RouteParams p) {
    u32 top = 0;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        u32 i = here.lane() + 32 * j;
        float value = i < p.experts ? at[i] : -infinity(), add = p.biased && i < p.experts ? bias[i] : 0.0f;
        bool usable = (finite(value) || i >= p.experts) && finite(add);
        top = max(top, usable ? order_of(value) + 1 : ~0u);
    }
    *largest = of_order(warp_largest(top) - 1);
    float all = p.gating == SOFTMAX ? sum_of_all(here, at, *largest, p).high : 1.0f;
    Orders orders;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
        // The numbers again, because registers are few.
        u32 i = here.lane() + 32 * j;
        float value = i < p.experts ? at[i] : 0.0f, add = p.biased && i < p.experts ? bias[i] : 0.0f;
        u32 order = order_of(rough_score(value, add, *largest, all, p)) + 1;
        orders.of[j] = i < p.experts ? order : 0;
    }
    return orders;
}

// The choice for the logits from `at` on, by rough scores if SCORED, or exactly. `open`: whether rough scores leave it open.
DEV Chosen choose_by(Here here, const GLOBAL float* at, const GLOBAL float* bias, bool exactly, THREAD bool* open,
                     const RouteParams p) {
    if (!p.biased) bias = nullptr;
    float largest;
    Orders orders = SCORED ? orders_by_scores(here, at, bias, &largest, p) : orders_by_logits(here, at, &largest, p);
    bool scored = SCORED && finite(largest);
    Router r = {at, largest, 0};
    *open = false;
    if (scored) {
        if (exactly && p.gating == SOFTMAX) {
#pragma unroll 1
            for (u32 i = here.lane(); i < p.experts; i += 32) r.sum += share_fixed(at[i], largest);
            r.sum = warp_sum(r.sum);
        }
        if (p.groups > 0) *open = exclude_groups(here, r, bias, exactly, &orders, p);
    }

    // This lane's best, and its place; the score of the slot before.
    u32 chosen = 0;
    float last = 0.0f;
#pragma unroll 1
    for (u32 slot = 0; slot < p.top_k + (scored ? 1 : 0); slot++) {
        u32 best = 0, place = 0;
#pragma unroll
        for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
            if (orders.of[j] > best) best = orders.of[j], place = j;
        }
        u32 order = warp_largest(best);
        u32 expert = warp_smallest(best == order ? here.lane() + 32 * place : PADDING);
        if (scored) {
            float score = of_order(order - 1), near = score - tolerance(fabsf(score));
            // A score that is not a number is near.
            if (slot > 0 && order > 0 && !(score < last)) *open = true;
            if (slot == p.top_k) break;
            if (exactly) expert = best_exactly(here, orders, order_of(near) + 1, r, bias, p);
            last = near;
        }
#pragma unroll
        for (u32 j = 0; j < EXPERTS_PER_LANE; j++) {
            if (expert == here.lane() + 32 * j) orders.of[j] = 0;
        }
        if (here.lane() == slot) chosen = expert;
    }
    return {chosen, largest};
}

// Exactly: less than once in 100 tokens.
COLD Chosen choose_exactly(Here here, const GLOBAL float* at, const GLOBAL float* bias, const RouteParams p) {
    bool open;
    return choose_by(here, at, bias, true, &open, p);
}

// The choice for the logits from `at` on.
DEV Chosen choose(Here here, const GLOBAL float* at, const GLOBAL float* bias, const RouteParams p) {
    bool open;
    Chosen chosen = choose_by(here, at, bias, false, &open, p);
    if (open) chosen = choose_exactly(here, at, bias, p);
    return chosen;
}

// share · scale / sum. Roundings are written out, so that every kernel that routes has the same.
DEV float scaled_share(float share, Sum sum, const RouteParams p) {
    float factor = p.scale / sum.high, rest = fmaf(-factor, sum.low, fmaf(-factor, sum.high, p.scale)) / sum.high;
    return fmaf(share, factor, rounded_product(share, rest));
}

// The weight of this lane's slot for softmax without a bias and groups, where the largest of all is chosen: fewer instructions
// than `weigh` has, which a step of one token waits for.
DEV float weigh_softmax(Here here, const GLOBAL float* at, Chosen chosen, const RouteParams p) {
    bool live = here.lane() < p.top_k, all = p.gating == SOFTMAX && !p.normalise;
    Sum sum = {0.0f, 0.0f};
    if (all) sum = sum_of_all(here, at, chosen.largest, p);
    float share = live ? expf(at[chosen.expert] - chosen.largest) : 0.0f;
    if (!all) sum = warp_sum(Sum{share, 0.0f});
    return scaled_share(share, sum, p);
}

// The weight of this lane's slot before an expert's scale: NaN if the largest logit is.
DEV float weigh_by_rules(Here here, const GLOBAL float* at, Chosen chosen, const RouteParams p) {
    if (!SCORED) return weigh_softmax(here, at, chosen, p);
    bool live = here.lane() < p.top_k, all = p.gating == SOFTMAX, normalised = p.normalise || p.gating == SOFTMAX_OF_CHOSEN;
    float logit = live ? at[chosen.expert] : -infinity(), most = chosen.largest;
    // Where logits alone choose, the largest is chosen.
    if (p.gating == SOFTMAX_OF_CHOSEN && p.whole) most = warp_max(logit);
    Small share = {0.0f, 0};
    if (live) share = p.gating == SIGMOID ? sigmoid_value(logit) : small_share(logit, most);
    Sum whole = {1.0f, 0.0f};
    if (all && p.whole) whole = sum_of_all(here, at, chosen.largest, p);
    Sum sum = whole;
    if (normalised) {
        sum = warp_sum(Sum{halved(share.mantissa, share.halvings), 0.0f});
        // A sum is at least 2^-14, the smallest normal f16, of all.
        float least = whole.high * 6.103515625e-5f;
        if (p.gating != SOFTMAX_OF_CHOSEN && sum.high < least) sum = {least, whole.low * 6.103515625e-5f};
    }
    float weight = scaled_share(share.mantissa, sum, p);
    return finite(chosen.largest) ? halved(weight, share.halvings) : not_a_number();
}

// The weight of this lane's slot.
DEV float weigh(Here here, const GLOBAL float* at, Chosen chosen, const GLOBAL float* scales, const RouteParams p) {
    float weight = weigh_by_rules(here, at, chosen, p);
    return EXPERT_SCALES && here.lane() < p.top_k ? weight * scales[chosen.expert] : weight;
}

DEV void store_choice(Here here, Chosen chosen, float weight, u64 row, GLOBAL u32* ids, GLOBAL float* weights,
                      const RouteParams p) {
    if (here.lane() >= p.top_k) return;
    ids[row * p.ids_stride + here.lane()] = chosen.expert;
    weights[row * p.weights_stride + here.lane()] = weight;
}

DEV void route_lanes(Here here, u64 row, const GLOBAL float* logits, const GLOBAL float* bias,
                     const GLOBAL float* scales, GLOBAL u32* ids, GLOBAL float* weights, const RouteParams p) {
    const GLOBAL float* at = logits + row * p.logits_stride;
    Chosen chosen = choose(here, at, bias, p);
    store_choice(here, chosen, weigh(here, at, chosen, scales, p), row, ids, weights, p);
}
#endif
