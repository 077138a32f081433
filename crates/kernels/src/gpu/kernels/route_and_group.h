// Routing and grouping of few tokens in one block: a warp routes a token, then all sort the pairs.
#pragma once
#include "route.h"
#include "group.h"

struct RouteAndGroupParams {
    RouteParams route;
    GroupParams group;
};

KERNEL(route_and_group)
(IN(float, logits, 0), IN(float, bias, 1), INOUT(u32, ids, 2), OUT(float, weights, 3), OUT(u32, counts, 4),
 OUT(u32, pairs, 5), OUT(u32, tiles, 6), OUT(u32, tile_count, 7), PARAMS(RouteAndGroupParams, p, 8)) {
    DYNAMIC_SHARED(u32, room);
    dependency_launch();
    dependency_wait();
    if (warp() < p.route.rows)
        route_row(warp(), logits, bias, ids, weights, room + warp() * route_words(p.route), p.route);
    barrier();
    // What the router has chosen are experts: there is nothing to complain of.
    group_block(ids, counts, pairs, tiles, tile_count, nullptr, room, p.group);
}
