// The router: a warp to a token. Experts get integers of the order of their scores; the best one left is taken k times, the
// smaller index on a tie. Scores are those of 64-bit floats, as on the CPU, where sigmoids near 1 of different logits are equal.
// Without a bias logits have the order of scores.
//
// `route_any` here routes by any rules, with scores in shared memory; `route_lanes.h`, in registers, by those of most models.
#pragma once
#include "float64.h"

enum Gating { SOFTMAX, SOFTMAX_OF_CHOSEN, SIGMOID, SPARSE_MIXER };

#include "RouteParams"

// Whether a row is padding. Tokens are written before a step, so kernels read them before they wait: a load after the
// wait would delay the loads that follow it by half a microsecond.
DEV bool is_padding(const GLOBAL u32* tokens, u64 row, const RouteParams p) {
    return p.padded && tokens[row * p.tokens_stride] == PADDING;
}
// The choice of a row that is padding.
DEV void store_padding(Here here, u64 row, GLOBAL u32* ids, GLOBAL float* weights, const RouteParams p) {
    for (u32 slot = here.lane(); slot < p.top_k; slot += 32) {
        ids[row * p.ids_stride + slot] = PADDING;
        weights[row * p.weights_stride + slot] = 0.0f;
    }
}

// Words of shared memory for a warp: two of each expert and group, three of each that is chosen.
DEV u32 route_words(const RouteParams p) { return 2 * (p.experts + p.groups) + 3 * p.top_k; }

// Logits of one token, and their maximum and sum for softmax.
struct Router {
    const GLOBAL float* logits;
    float max;
    // Sum of e^(logit − max), in units of 2^-52.
    u64 sum;
};

// Where e^-x and 1 / e^-x are 0 in 64-bit floats.
#define VANISHES 745.13f
#define OVERFLOWS 709.78f

// e^(logit − max). False if that is 0 in 64-bit floats.
DEV bool share_of(float logit, float max, THREAD Power* share) {
    if (logit == max) {
        *share = {(u64)1 << 62, 0};
        return true;
    }
    if (!(max - logit < VANISHES)) return false;
    *share = power(max, logit, natural_rate());
    return true;
}
DEV u64 share_fixed(float logit, float max) {
    Power share;
    return share_of(logit, max, &share) ? power_fixed(share, 52) : 0;
}

// The order of the sigmoid in 64-bit floats, where neighbouring values are equal from 23 on.
DEV float sigmoid_order(float x) {
    if (x <= -OVERFLOWS) return -infinity();
    if (x > 23.0f) return 1e6f - rintf(expf(-x) * 4503599627370496.0f);
    return x;
}

// The order of experts without a bias.
DEV float plain_order(const Router r, float logit, const RouteParams p) {
    if (p.gating == SIGMOID) return sigmoid_order(logit);
    return p.gating == SOFTMAX && r.max - logit > VANISHES ? -infinity() : logit;
}

// mantissa · 2^-halvings: a share with all of its digits, however small.
struct Small {
    float mantissa;
    u32 halvings;
};

// e^(logit − max), 0 if that is 0 in 64-bit floats.
DEV Small small_share(float logit, float max) {
    // The difference, and what its rounding lost (Knuth, "The art of computer programming" 2, 4.2.2).
    float distance = max - logit, part = distance - max;
    float lost = (max - (distance - part)) - (logit + part);
    if (!(distance < VANISHES)) return {0.0f, 0};
    // e^-distance = 2^-halvings · e^-rest. The first part of ln 2 has nine digits, so that its product is exact.
    float halvings = rintf(distance * 1.442695041f);
    float rest = fmaf(halvings, 2.12194440e-4f, fmaf(halvings, -0.693359375f, distance)) + lost;
    return {expf(-rest), (u32)halvings};
}

DEV Small sigmoid_value(float x) {
    Small share = small_share(-fabsf(x), 0.0f);
    float one = 1.0f + halved(share.mantissa, share.halvings);
    if (x >= 0.0f) return {rounded_quotient(1.0f, one), 0};
    return {rounded_quotient(share.mantissa, one), share.halvings};
}

// The order of experts with a bias, and the worth of groups.
DEV Float64 score(const Router r, u32 expert, const GLOBAL float* bias, const RouteParams p) {
    float logit = r.logits[expert];
    Float64 value = float64_of(logit);
    Power share;
    if (p.gating == SOFTMAX) {
        value = {0};
        if (share_of(logit, r.max, &share)) value = float64_quotient(float64_of(share), float64(0, r.sum, -52));
    } else if (p.gating == SIGMOID) {
        Float64 one = float64_of(1.0f), t = {0};
        if (share_of(-fabsf(logit), 0.0f, &share)) t = float64_of(share);
        value = float64_quotient(logit >= 0.0f ? one : t, float64_sum(one, t));
    }
    if (bias) value = float64_sum(value, float64_of(bias[expert]));
    return value;
}

// Ordered numbers, of which some are taken: number i is bit i / 32 of lane i % 32's mask.
struct Ranks {
    const GROUP u32* high;
    const GROUP u32* low;
    u32 count;
};
struct Best {
    u32 high, low, index;
};
// The best of this lane that is not taken; index PADDING if there is none.
DEV Best lane_best(Here here, const Ranks ranks, u32 taken) {
    Best best = {0, 0, PADDING};
    for (u32 j = 0, i = here.lane(); i < ranks.count; j++, i += 32) {
        if (taken >> j & 1) continue;
        u32 high = ranks.high[i], low = ranks.low[i];
        if (best.index == PADDING || high > best.high || (high == best.high && low > best.low)) best = {high, low, i};
    }
    return best;
}
// The best of all, which is then taken.
DEV u32 take_best(Here here, const Ranks ranks, THREAD Best* mine, THREAD u32* taken) {
    u32 high = warp_largest(mine->high);
    u32 low = warp_largest(mine->high == high ? mine->low : 0u);
    u32 index = warp_smallest(mine->high == high && mine->low == low ? mine->index : PADDING);
    if (mine->index == index) {
        *taken |= 1u << index / 32;
        *mine = lane_best(here, ranks, *taken);
    }
    return index;
}

// The experts of all groups but the best are taken. `scratch`: two words a group.
DEV u32 exclude_groups(Here here, const Router r, const GLOBAL float* bias, const Ranks ranks, GROUP u32* scratch,
                       const RouteParams p) {
    u32 size = p.experts / p.groups;
    for (u32 g = here.lane(); g < p.groups; g += 32) {
        u64 first = 0, second = 0;
        u32 best = 0, next = 0;
        for (u32 i = g * size; i < (g + 1) * size; i++) {
            u64 order = (u64)ranks.high[i] << 32 | ranks.low[i];
            if (order > first) {
                second = first, next = best;
                first = order, best = i;
            } else if (order > second) {
                second = order, next = i;
            }
        }
        Float64 worth = score(r, best, bias, p);
        if (size > 1 && p.worth > 1) worth = float64_sum(worth, score(r, next, bias, p));
        scratch[g] = (u32)(order_of(worth) >> 32);
        scratch[p.groups + g] = (u32)order_of(worth);
    }
    // A lane reads only what it wrote until the barrier below.
    Ranks groups = {scratch, scratch + p.groups, p.groups};
    u32 kept = 0;
    Best best = lane_best(here, groups, kept);
    for (u32 i = 0; i < p.top_groups; i++) take_best(here, groups, &best, &kept);
    for (u32 j = 0, g = here.lane(); g < p.groups; j++, g += 32) scratch[g] = kept >> j & 1;
    warp_barrier();
    u32 taken = 0;
    for (u32 j = 0, i = here.lane(); i < p.experts; j++, i += 32) taken |= (scratch[i / size] ? 0u : 1u) << j;
    return taken;
}

// The share that `best`, just taken, has of itself and what is left and near it.
DEV float share_of_near(Here here, const Router r, u32 best, u32 taken, const RouteParams p) {
    float top = r.logits[best], most = top;
    u32 nearby = 0;
    for (u32 j = 0, i = here.lane(); i < p.experts; j++, i += 32) {
        float logit = r.logits[i];
        if (taken >> j & 1) continue;
        Float64 distance = float64_sum(float64_of(top), float64_of(-logit));
        Float64 bound = float64_product(p.near, fmaxf(fabsf(logit), top));
        if (logit == top || order_of(distance) <= order_of(bound)) {
            nearby |= 1u << j;
            most = fmaxf(most, logit);
        }
    }
    // With a bias, what is left may have larger logits.
    most = warp_max(most);
    u64 sum = 0, own = share_fixed(top, most);
    for (u32 j = 0, i = here.lane(); i < p.experts; j++, i += 32)
        if (nearby >> j & 1) sum += share_fixed(r.logits[i], most);
    return (float)own / (float)(warp_sum(sum) + own);
}

// The weight of a chosen expert before the division: of softmax, the share of the largest. `most`: the chosen's largest logit.
DEV Small chosen_value(const Router r, float logit, float most, const RouteParams p) {
    return p.gating == SIGMOID ? sigmoid_value(logit) : small_share(logit, p.gating == SOFTMAX ? r.max : most);
}

// A share as an integer in units of 2^-52.
DEV u64 small_fixed(Small value) { return (u64)(halved(value.mantissa, value.halvings) * 4503599627370496.0f); }

// A row in which a logit or a bias is not finite: distinct experts, and weights of NaN.
DEV void route_not_finite(Here here, u64 row, GLOBAL u32* ids, GLOBAL float* weights, const RouteParams p) {
    for (u32 slot = here.lane(); slot < p.top_k; slot += 32) {
        ids[row * p.ids_stride + slot] = slot;
        weights[row * p.weights_stride + slot] = not_a_number();
    }
}

// Routes one token by one warp, whatever chooses. `scratch`: route_words.
DEV void route_any(Here here, u64 row, const GLOBAL float* logits, const GLOBAL float* bias, const GLOBAL float* scales,
                   GLOBAL u32* ids, GLOBAL float* weights, GROUP u32* scratch, const RouteParams p) {
    Ranks ranks = {scratch, scratch + p.experts, p.experts};
    GROUP u32* groups = scratch + 2 * p.experts;
    GROUP u32* chosen = groups + 2 * p.groups;
    GROUP float* mantissas = (GROUP float*)(chosen + p.top_k);
    GROUP u32* halvings = chosen + 2 * p.top_k;
    Router r = {logits + row * p.logits_stride, -infinity(), 0};

    for (u32 i = here.lane(); i < p.experts; i += 32) {
        bool usable = finite(r.logits[i]) && (!bias || finite(bias[i]));
        r.max = fmaxf(r.max, usable ? r.logits[i] : infinity());
    }
    r.max = warp_max(r.max);
    if (r.max == infinity()) return route_not_finite(here, row, ids, weights, p);
    if (p.gating == SOFTMAX && p.whole) {
        for (u32 i = here.lane(); i < p.experts; i += 32) r.sum += share_fixed(r.logits[i], r.max);
        r.sum = warp_sum(r.sum);
    }
    for (u32 i = here.lane(); i < p.experts; i += 32) {
        u64 order = bias ? order_of(score(r, i, bias, p)) : (u64)order_of(plain_order(r, r.logits[i], p)) << 32;
        scratch[i] = (u32)(order >> 32);
        scratch[p.experts + i] = (u32)order;
    }
    warp_barrier();

    u32 taken = 0;
    if (p.top_groups < p.groups) taken = exclude_groups(here, r, bias, ranks, groups, p);
    Best mine = lane_best(here, ranks, taken);
    for (u32 slot = 0; slot < p.top_k; slot++) {
        u32 best = take_best(here, ranks, &mine, &taken);
        float share = p.gating == SPARSE_MIXER ? share_of_near(here, r, best, taken, p) : 0.0f;
        if (here.lane() == slot % 32) {
            chosen[slot] = best;
            mantissas[slot] = share;
        }
    }

    // A lane has its slots; the sum has one value in whatever order it is taken.
    float most = -infinity();
    for (u32 slot = here.lane(); slot < p.top_k; slot += 32) most = fmaxf(most, r.logits[chosen[slot]]);
    most = warp_max(most);
    u64 sum = 0;
    for (u32 slot = here.lane(); slot < p.top_k; slot += 32) {
        Small value = {mantissas[slot], 0};
        if (p.gating != SPARSE_MIXER) value = chosen_value(r, r.logits[chosen[slot]], most, p);
        sum += small_fixed(value);
        mantissas[slot] = value.mantissa;
        halvings[slot] = value.halvings;
    }
    sum = warp_sum(sum);
    // The divisor of values, in units of 2^-52. A sum is at least 2^-14, the smallest normal f16, of all.
    u64 divisor = (u64)1 << 52;
    if (p.gating == SOFTMAX) divisor = r.sum;
    if (p.normalise) divisor = larger(sum, divisor >> 14);
    // Softmax over the chosen is a division by their sum, whether or not there is another.
    if (p.gating == SOFTMAX_OF_CHOSEN) divisor = sum;
    // scale / divisor as a sum of two floats: all of a token's weights share its error.
    float high = (float)divisor, low = (float)(i64)(divisor - (u64)high);
    float factor = divisor ? p.scale / high : 0.0f;
    float rest = divisor ? (fmaf(-factor, high, p.scale) - factor * low) / high : 0.0f;
    factor *= 4503599627370496.0f, rest *= 4503599627370496.0f;
    for (u32 slot = here.lane(); slot < p.top_k; slot += 32) {
        ids[row * p.ids_stride + slot] = chosen[slot];
        float weight = fmaf(mantissas[slot], factor, mantissas[slot] * rest);
        weights[row * p.weights_stride + slot] = halved(weight, halvings[slot]) * (p.scaled ? scales[chosen[slot]] : 1.0f);
    }
}
