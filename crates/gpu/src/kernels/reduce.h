// Common work of the threads of a warp and of a block, and four floats at a time.
#pragma once
#include "device.h"

DEV u32 warp_smallest(u32 value) { return ~warp_largest(~value); }
DEV u64 warp_largest(u64 value) {
    for (int mask = 16; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
    return value;
}
DEV u64 warp_sum(u64 value) {
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

// Over a block of whole warps, in a fixed order: lanes, then warps. Every thread gets the result. `scratch` has 32 places
// without other use from the block's last barrier to its next.
DEV float block_sum(Here here, float value, GROUP float* scratch) {
    value = warp_sum(value);
    if (here.lane() == 0) scratch[here.warp()] = value;
    barrier();
    return warp_sum(here.lane() < here.block_width() / 32 ? scratch[here.lane()] : 0.0f);
}
DEV u64 block_largest(Here here, u64 value, GROUP u64* scratch) {
    value = warp_largest(value);
    if (here.lane() == 0) scratch[here.warp()] = value;
    barrier();
    return warp_largest(here.lane() < here.block_width() / 32 ? scratch[here.lane()] : (u64)0);
}

// The sum of the values of this thread and of those before it.
DEV u64 warp_running_sum(Here here, u64 value) {
    for (u32 by = 1; by < 32; by *= 2) {
        u64 before = shuffle_up(value, by);
        if (here.lane() >= by) value += before;
    }
    return value;
}
struct RunningSum {
    u64 upto, total;
};
// The same over the block, with the sum of all. `scratch` as above; it may be used again after the call.
DEV RunningSum block_running_sum(Here here, u64 value, GROUP u64* scratch) {
    value = warp_running_sum(here, value);
    if (here.lane() == 31) scratch[here.warp()] = value;
    barrier();
    u64 warps = warp_running_sum(here, here.lane() < here.block_width() / 32 ? scratch[here.lane()] : (u64)0);
    u64 before = shuffle(warps, here.warp() == 0 ? 0 : here.warp() - 1);
    u64 total = shuffle(warps, 31);
    barrier();
    return {here.warp() == 0 ? value : before + value, total};
}

// Four neighbouring floats of a row, with `left` of the row's elements from there on: what is not there is 0. `aligned`:
// address and row allow 16-byte accesses. The order in which elements are worked on is the same either way.
struct alignas(16) Four {
    float at[4];
};
DEV Four load_four(const GLOBAL float* from, u64 left, bool aligned) {
    if (aligned) return *(const GLOBAL Four*)from;
    Four four;
    for (u32 i = 0; i < 4; i++) four.at[i] = i < left ? from[i] : 0.0f;
    return four;
}
DEV void store_four(GLOBAL float* to, Four four, u64 left, bool aligned) {
    if (aligned) {
        *(GLOBAL Four*)to = four;
    } else {
        for (u32 i = 0; i < 4; i++)
            if (i < left) to[i] = four.at[i];
    }
}
