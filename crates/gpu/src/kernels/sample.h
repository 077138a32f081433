// Draws tokens in the order of `Sampling`: mask, bias, penalties, temperature, top-k, top-p, min-p, draw. Shares are integers, so
// their sums do not depend on the order of additions.
//
// Top-k and top-p keep the first tokens by rank (larger logits first, then smaller tokens): all above some order of logits, and
// of those at it the first few. A radix search finds that threshold, 8 bits at a time: a histogram of the next bits, then the
// bin in which the wanted number or mass is reached.
// Launches: sample_adjust, sample_histogram for each 8 bits of each search, sample_masses, sample_draw.
#pragma once
#include "argmax.h"
#include "exponential.h"

#define BINS 256
// Copies of a histogram in a block, against conflicts of threads with equal bins.
#define COPIES 8
// Histograms of a search.
#define DIGITS 4

#include "SampleRow"
#define NO_MASK 0xfffffffffffffffful

#include "SampleEdit"

#include "SampleParams"

// A search keeps all orders whose first bits are above those of `prefix`, and of those with these bits as many as make `left`, by
// number or by mass; or it keeps all.
struct Search {
    u64 left;
    u32 prefix, all;
};

DEV bool allowed(const SampleRow r, const GLOBAL u32* masks, u32 token) {
    return r.mask == NO_MASK || (masks[r.mask + token / 32] >> token % 32 & 1);
}

// Mask, bias and penalties; the best that is allowed, or NOT_FINITE; and the histograms zeroed.
KERNEL(sample_adjust)
(INOUT(float, logits, 0), IN(SampleRow, table, 1), IN(SampleEdit, edits, 2), IN(u32, masks, 3), OUT(u64, best, 4),
 OUT(u32, histograms, 5), PARAMS(SampleParams, p, 6)) {
    HERE;
    SHARED(u64, scratch, 32);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() / p.segments, segment = here.block_x() % p.segments;
    SampleRow r = table[row];
    GLOBAL float* at = logits + (p.first_row + row) * p.logits_stride;
    u64 first = (u64)segment * SEGMENT, end = smaller(first + SEGMENT, p.cols);
    u64 mine = 0;
    for (u64 token = first + here.thread_x(); token < end; token += here.block_width()) {
        if (!finite(at[token])) mine = NOT_FINITE;
        if (!allowed(r, masks, (u32)token)) at[token] = -infinity();
    }
    barrier_global();
    const GLOBAL SampleEdit* list = edits + r.first_edit;
    for (u32 i = here.thread_x(); i < r.edits; i += here.block_width()) {
        u32 token = list[i].token;
        // The thread with a token's first edit makes all of them.
        if (token < first || token >= end || (i > 0 && list[i - 1].token == token)) continue;
        float logit = at[token];
        for (u32 j = i; j < r.edits && list[j].token == token; j++) {
            SampleEdit edit = list[j];
            if (edit.count == 0) {
                logit += edit.value;
            } else {
                logit = logit > 0.0f ? logit / r.repeat_penalty : rounded_product(logit, r.repeat_penalty);
                logit -= r.presence_penalty + rounded_product((float)edit.count, r.frequency_penalty);
            }
        }
        at[token] = logit;
    }
    barrier_global();
    for (u64 token = first + here.thread_x(); token < end; token += here.block_width())
        if (allowed(r, masks, (u32)token)) mine = larger(mine, candidate(at[token], (u32)token));
    mine = block_largest(here, mine, scratch);
    if (here.thread_x() == 0) best[here.block_x()] = mine;
    u32 words = (p.count_steps + p.mass_steps) * BINS * 2;
    for (u32 i = segment * here.block_width() + here.thread_x(); i < words; i += p.segments * here.block_width())
        histograms[(u64)row * words + i] = 0;
}

// The share of a logit of the largest's, `max`, which is above −∞.
DEV u64 sample_share(const SampleRow r, float logit, float max, u32 bits) {
    if (logit == max) return (u64)1 << bits;
    if (!finite(logit) || !finite(max) || !(max * 0.015625f - logit * 0.015625f < r.negligible)) return 0;
    return power_fixed(power(max, logit, {r.factor, r.shift}), bits);
}
// Whether a logit can have a share at all.
DEV bool sample_near(const SampleRow r, float logit, float max) {
    return logit == max || (finite(logit) && finite(max) && max * 0.015625f - logit * 0.015625f < r.negligible);
}

// top-p of a mass, rounded up.
DEV u64 wanted_mass(const SampleRow r, u64 mass) {
    u64 high = high_product(mass, r.top_p), low = mass * r.top_p;
    u32 down = r.top_p_down;
    u64 part = down >= 128 ? 0 : down >= 64 ? high >> (down - 64) : down ? low >> down | high << (64 - down) : low;
    bool rest = down >= 128 ? (high | low) != 0
              : down >= 64  ? (high & (((u64)1 << (down - 64)) - 1) | low) != 0
                            : (low & (((u64)1 << down) - 1)) != 0;
    return larger(part + (rest ? 1 : 0), (u64)1);
}

// A search before its first histogram, which gives top-p its aim.
DEV Search search_start(const SampleRow r, bool for_mass) {
    bool all = !r.random || (for_mass ? r.top_p_down == 0 : r.top_k == 0);
    return {for_mass ? 0 : (u64)r.top_k, 0, all};
}

// A row's histograms, and the state of its searches before each.
struct SampleState {
    const GLOBAL u32* histograms;
    GLOBAL Search* states;
};

// The search after histogram `made`, by a block of BINS threads. `scratch`: 33 places.
DEV Search search_after(Here here, const SampleRow r, SampleState s, u32 made, GROUP u64* scratch, const SampleParams p) {
    bool for_mass = made >= p.count_steps;
    u32 digit = for_mass ? made - p.count_steps : made;
    Search search = search_start(r, for_mass);
    if (digit > 0) search = s.states[made - 1];
    if (search.all) return search;
    // Thread 0 has the last bin.
    u32 bin = BINS - 1 - here.thread_x();
    const GLOBAL u32* at = s.histograms + (made * BINS + bin) * 2;
    u64 mine = (u64)at[1] << 32 | at[0];
    RunningSum sum = block_running_sum(here, mine, scratch);
    if (for_mass && digit == 0) search.left = wanted_mass(r, sum.total);
    // Fewer than wanted: all of them.
    if (sum.total < search.left) return {0, 0, 1};
    if (sum.upto >= search.left && sum.upto - mine < search.left) {
        scratch[32] = search.left - (sum.upto - mine);
        scratch[31] = bin;
    }
    barrier();
    search.left = scratch[32];
    search.prefix |= (u32)scratch[31] << (24 - 8 * digit);
    // These two places are written again after a barrier only: that of the next running sum.
    return search;
}

// The next histogram: number or mass of the orders that agree with the bits known so far. BINS threads.
KERNEL(sample_histogram)
(IN(float, logits, 0), IN(SampleRow, table, 1), IN(u64, best, 2), INOUT(Search, searches, 3), INOUT(u32, histograms, 4),
 PARAMS(SampleParams, p, 5)) {
    HERE;
    SHARED(u64, scratch, 33);
    SHARED(u32, low, BINS* COPIES);
    SHARED(u32, high, BINS* COPIES);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() / p.segments, segment = here.block_x() % p.segments, steps = p.count_steps + p.mass_steps;
    SampleRow r = table[row];
    GLOBAL u32* made = histograms + (u64)row * steps * BINS * 2;
    SampleState s = {made, searches + (u64)row * steps};
    bool for_mass = p.step >= p.count_steps;
    u32 digit = for_mass ? p.step - p.count_steps : p.step;

    Search search = search_start(r, for_mass), counted = {0, 0, 1};
    if (p.step > 0) {
        Search last = search_after(here, r, s, p.step - 1, scratch, p);
        if (segment == 0 && here.thread_x() == 0) s.states[p.step - 1] = last;
        // The threshold of top-k, for top-p.
        if (for_mass && p.count_steps) {
            counted = last;
            if (digit > 0) counted = s.states[p.count_steps - 1];
        }
        if (digit > 0) search = last;
    }
    if (search.all) return;

    u64 top = row_best(here, best, row, p.segments);
    if (top == NOT_FINITE) return;
    float max = of_order(candidate_order(top));
    for (u32 i = here.thread_x(); i < BINS * COPIES; i += here.block_width()) low[i] = high[i] = 0;
    barrier();
    u32 down = 24 - 8 * digit, known = digit == 0 ? 0 : ~0u << (down + 8);
    u64 first = (u64)segment * SEGMENT, end = smaller(first + SEGMENT, p.cols);
    const GLOBAL float* at = logits + (p.first_row + row) * p.logits_stride;
    for (u64 token = first + here.thread_x(); token < end; token += here.block_width()) {
        float logit = at[token];
        u32 order = order_of(logit);
        if ((order & known) != search.prefix || !sample_near(r, logit, max)) continue;
        if (!counted.all && order <= counted.prefix) continue;
        u64 weight = for_mass ? sample_share(r, logit, max, p.bits) : 1;
        u32 place = (order >> down & 255) * COPIES + here.thread_x() % COPIES, part = (u32)weight;
        u32 before = add_atomic(&low[place], part);
        u32 above = (u32)(weight >> 32) + (before + part < before ? 1 : 0);
        if (above) add_atomic(&high[place], above);
    }
    barrier();
    u64 sum = 0;
    for (u32 copy = 0; copy < COPIES; copy++) {
        u32 place = here.thread_x() * COPIES + copy;
        sum += (u64)high[place] << 32 | low[place];
    }
    // Only some logits of the last order that top-k keeps take part.
    if (segment == 0 && !counted.all && (counted.prefix & known) == search.prefix &&
        (counted.prefix >> down & 255) == here.thread_x())
        sum += counted.left * sample_share(r, of_order(counted.prefix), max, p.bits);
    if (sum == 0) return;
    GLOBAL u32* bin = made + (p.step * BINS + here.thread_x()) * 2;
    u32 before = add_atomic(&bin[0], (u32)sum);
    u32 above = (u32)(sum >> 32) + (before + (u32)sum < before ? 1 : 0);
    if (above) add_atomic(&bin[1], above);
}

// Tokens of a higher order than `order` are kept, and of that order the first `ties`.
struct Threshold {
    u32 order;
    u64 ties;
};
DEV Threshold sample_kept(Here here, const SampleRow r, SampleState s, float max, GROUP u64* scratch, const SampleParams p) {
    u32 steps = p.count_steps + p.mass_steps;
    Search last = {0, 0, 1}, counted = {0, 0, 1};
    if (steps > 0) last = search_after(here, r, s, steps - 1, scratch, p);
    if (p.mass_steps > 0) {
        if (!last.all) {
            u64 share = sample_share(r, of_order(last.prefix), max, p.bits);
            return {last.prefix, (last.left + share - 1) / share};
        }
        if (p.count_steps > 0) counted = s.states[p.count_steps - 1];
    } else {
        counted = last;
    }
    return counted.all ? Threshold{0, 0} : Threshold{counted.prefix, counted.left};
}

struct SegmentMass {
    // The mass above the threshold, and how many are at it.
    u64 above, ties;
};

// Mass and ties of `count` neighbouring tokens.
DEV SegmentMass kept_mass(const SampleRow r, const GLOBAL float* at, u64 first, u64 end, u32 step, float max, Threshold kept,
                          const SampleParams p) {
    SegmentMass mass = {0, 0};
    for (u64 token = first; token < end; token += step) {
        float logit = at[token];
        u32 order = order_of(logit);
        if (order < kept.order || !sample_near(r, logit, max)) continue;
        if (order == kept.order) {
            mass.ties++;
        } else {
            u64 share = sample_share(r, logit, max, p.bits);
            mass.above += share >= r.least ? share : 0;
        }
    }
    return mass;
}

// Whether there is something to draw from, by the row's best: a logit above −∞, and none that is not finite. Else the best is
// drawn.
DEV bool has_choice(u64 top) { return top != NOT_FINITE && candidate_order(top) > ORDER_OF_NOTHING; }

// The mass that each segment keeps. BINS threads.
KERNEL(sample_masses)
(IN(float, logits, 0), IN(SampleRow, table, 1), IN(u64, best, 2), IN(u32, histograms, 3), INOUT(Search, searches, 4),
 OUT(Threshold, thresholds, 5), OUT(SegmentMass, masses, 6), PARAMS(SampleParams, p, 7)) {
    HERE;
    SHARED(u64, scratch, 33);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x() / p.segments, segment = here.block_x() % p.segments, steps = p.count_steps + p.mass_steps;
    SampleRow r = table[row];
    u64 top = row_best(here, best, row, p.segments);
    if (!r.random || !has_choice(top)) return;
    float max = of_order(candidate_order(top));
    SampleState s = {histograms + (u64)row * steps * BINS * 2, searches + (u64)row * steps};
    Threshold kept = sample_kept(here, r, s, max, scratch, p);
    u64 first = (u64)segment * SEGMENT, end = smaller(first + SEGMENT, p.cols);
    const GLOBAL float* at = logits + (p.first_row + row) * p.logits_stride;
    SegmentMass mass = kept_mass(r, at, first + here.thread_x(), end, here.block_width(), max, kept, p);
    u64 above = block_running_sum(here, mass.above, scratch).total, ties = block_running_sum(here, mass.ties, scratch).total;
    if (here.thread_x() == 0) masses[here.block_x()] = SegmentMass{above, ties};
    if (here.thread_x() == 0 && segment == 0) thresholds[row] = kept;
}

// The mass of what is kept of a place with these, when `before` ties have gone before.
DEV u64 mass_with_ties(SegmentMass mass, u64 before, u64 ties, u64 share) {
    u64 left = before < ties ? ties - before : 0;
    return mass.above + smaller(mass.ties, left) * share;
}

// Where the running sum of masses passes `aim`.
struct Found {
    u64 index, aim, ties;
};
// One round: each thread has one place, in order. `start`: mass and ties before the round; they move on. True once found.
DEV bool passes(Here here, SegmentMass mine, u64 index, u64 aim, u64 ties, u64 share, THREAD SegmentMass* start,
                GROUP Found* found, GROUP u64* scratch) {
    RunningSum tied = block_running_sum(here, mine.ties, scratch);
    u64 before = start->ties + tied.upto - mine.ties;
    u64 mass = mass_with_ties(mine, before, ties, share);
    RunningSum sum = block_running_sum(here, mass, scratch);
    u64 end = start->above + sum.upto;
    if (end > aim && end - mass <= aim) *found = Found{index, aim - (end - mass), before};
    *start = {start->above + sum.total, start->ties + tied.total};
    return start->above > aim;
}

// Draws. A block for each row.
KERNEL(sample_draw)
(IN(float, logits, 0), IN(SampleRow, table, 1), IN(u64, best, 2), IN(Threshold, thresholds, 3), IN(SegmentMass, masses, 4),
 OUT(u32, out, 5), PARAMS(SampleParams, p, 6)) {
    HERE;
    SHARED(u64, scratch, 32);
    SHARED(Found, found, 1);
    dependency_launch();
    dependency_wait();
    u32 row = here.block_x();
    SampleRow r = table[row];
    u64 top = row_best(here, best, row, p.segments);
    if (!r.random || !has_choice(top)) {
        if (here.thread_x() == 0) out[(p.first_row + row) * p.out_stride] = candidate_column(top);
        return;
    }
    float max = of_order(candidate_order(top));
    Threshold kept = thresholds[row];
    u64 share = kept.ties ? sample_share(r, of_order(kept.order), max, p.bits) : 0;
    u64 ties = share >= r.least ? kept.ties : 0;

    // The whole mass, then the segment and the token in which the drawn part of it is passed.
    SegmentMass whole = {0, 0};
    for (u32 i = here.thread_x(); i < p.segments; i += here.block_width()) {
        SegmentMass mass = masses[(u64)row * p.segments + i];
        whole = {whole.above + mass.above, whole.ties + mass.ties};
    }
    whole = {block_running_sum(here, whole.above, scratch).total, block_running_sum(here, whole.ties, scratch).total};
    u64 total = mass_with_ties(whole, 0, ties, share);
    u64 aim = high_product(total, (u64)r.draw << 32);
    SegmentMass start = {0, 0};
    for (u32 i = 0; i < p.segments; i += here.block_width()) {
        u32 segment = i + here.thread_x();
        SegmentMass mass = {0, 0};
        if (segment < p.segments) mass = masses[(u64)row * p.segments + segment];
        if (passes(here, mass, segment, aim, ties, share, &start, found, scratch)) break;
    }
    barrier();
    // `passes` meets before it writes it again.
    Found segment = found[0];
    const GLOBAL float* at = logits + (p.first_row + row) * p.logits_stride;
    u64 each = SEGMENT / here.block_width();
    u64 first = segment.index * SEGMENT + here.thread_x() * each, end = smaller(first + each, p.cols);
    start = {0, segment.ties};
    passes(here, kept_mass(r, at, first, end, 1, max, kept, p), first, segment.aim, ties, share, &start, found, scratch);
    barrier();
    if (found[0].index != first) return;
    u64 passed = 0, tied = found[0].ties, target = found[0].aim;
    for (u64 token = first; token < end; token++) {
        SegmentMass mass = kept_mass(r, at, token, token + 1, 1, max, kept, p);
        passed += mass_with_ties(mass, tied, ties, share);
        tied += mass.ties;
        if (passed > target) {
            out[(p.first_row + row) * p.out_stride] = (u32)token;
            return;
        }
    }
}
