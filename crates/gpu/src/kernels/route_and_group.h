// The router's kernels: a warp routes a token; and for few tokens, in one block, all then sort the pairs.
#pragma once
#include "route.h"
#include "route_lanes.h"
#include "group.h"

// One token by one warp. `scratch`: route_words for each warp.
DEV void route_row(Here here, u64 row, bool padding, const GLOBAL float* logits, const GLOBAL float* bias,
                   const GLOBAL float* scales, GLOBAL u32* ids, GLOBAL float* weights, GROUP u32* scratch, const RouteParams p) {
    if (padding) return store_padding(here, row, ids, weights, p);
#ifdef EXPERTS_PER_LANE
    route_lanes(here, row, logits, bias, scales, ids, weights, p);
#else
    GROUP u32* own = scratch + here.warp() * route_words(p);
    route_any(here, row, logits, p.biased ? bias : nullptr, scales, ids, weights, own, p);
#endif
}

KERNEL(route)
(IN(float, logits, 0), IN(float, bias, 1), IN(float, scales, 2), IN(u32, tokens, 3), OUT(u32, ids, 4),
 OUT(float, weights, 5), PARAMS(RouteParams, p, 6)) {
    HERE;
    DYNAMIC_SHARED(u32, scratch);
    dependency_launch();
    u64 row = (u64)here.block_x() * (here.block_width() / 32) + here.warp();
    bool padding = row < p.rows && is_padding(tokens, row, p);
    dependency_wait();
    if (row < p.rows) route_row(here, row, padding, logits, bias, scales, ids, weights, scratch, p);
}

// Threads of a block that have enough registers: `threads` of `RouteVariant` in `route.rs`.
#if defined(EXPERTS_PER_LANE) && EXPERTS_PER_LANE <= 8 && !SCORED
#define ROUTE_AND_GROUP_THREADS 1024
#else
#define ROUTE_AND_GROUP_THREADS 512
#endif

#include "RouteAndGroupParams"

KERNEL_BOUNDED(route_and_group, ROUTE_AND_GROUP_THREADS, 1)
(IN(float, logits, 0), IN(float, bias, 1), IN(float, scales, 2), IN(u32, tokens, 3), INOUT(u32, ids, 4),
 OUT(float, weights, 5), OUT(u32, counts, 6), OUT(u32, pairs, 7), OUT(u32, tiles, 8), OUT(u32, tile_count, 9),
 PARAMS(RouteAndGroupParams, p, 10)) {
    HERE;
    DYNAMIC_SHARED(u32, scratch);
    SHARED(u64, sums, 32);
    SHARED(u32, first_pair, MAX_EXPERTS + 1);
    SHARED(u32, first_tile, MAX_EXPERTS + 1);
    dependency_launch();
    bool routes = here.warp() < p.route.rows, padding = routes && is_padding(tokens, here.warp(), p.route);
    dependency_wait();
    if (routes) route_row(here, here.warp(), padding, logits, bias, scales, ids, weights, scratch, p.route);
    barrier_global();
    // Without a flag: the router chooses experts alone.
    group_block(here, ids, counts, pairs, tiles, tile_count, nullptr, scratch, sums, first_pair, first_tile, p.group);
}
