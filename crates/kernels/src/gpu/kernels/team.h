// What the threads of a warp and of a block do together, and four floats at a time.
#pragma once
#include "device.h"

template <class T>
DEV T shuffle(T value, u32 from) { return __shfl_sync(0xffffffffu, value, from); }
template <class T>
DEV T shuffle_up(T value, u32 by) { return __shfl_up_sync(0xffffffffu, value, by); }
// What lanes of the warp wrote to memory is seen by its other lanes.
DEV void warp_barrier() { __syncwarp(); }
// The lanes that have the same value.
DEV u32 warp_same(u32 value) { return __match_any_sync(0xffffffffu, value); }

DEV u32 warp_largest(u32 value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int mask = 16; mask > 0; mask /= 2) value = max(value, shuffle_xor(value, mask));
    return value;
#endif
}
DEV u32 warp_smallest(u32 value) { return ~warp_largest(~value); }
DEV u64 warp_largest(u64 value) {
    for (int mask = 16; mask > 0; mask /= 2) value = max(value, shuffle_xor(value, mask));
    return value;
}
DEV u64 warp_sum(u64 value) {
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

// Over a block of whole warps, in a fixed order: lanes, then warps. Every thread gets the result. `room` has 32 places
// that nobody else uses from the block's last barrier to its next.
DEV float block_sum(float value, GROUP float* room) {
    value = warp_sum(value);
    if (lane() == 0) room[warp()] = value;
    barrier();
    return warp_sum(lane() < block_width() / 32 ? room[lane()] : 0.0f);
}
DEV u64 block_largest(u64 value, GROUP u64* room) {
    value = warp_largest(value);
    if (lane() == 0) room[warp()] = value;
    barrier();
    return warp_largest(lane() < block_width() / 32 ? room[lane()] : 0ull);
}

// The sum of the values of this thread and of those before it.
DEV u64 warp_running_sum(u64 value) {
    for (u32 by = 1; by < 32; by *= 2) {
        u64 before = shuffle_up(value, by);
        if (lane() >= by) value += before;
    }
    return value;
}
struct RunningSum {
    u64 upto, total;
};
// The same over the block, with the sum of all. `room` as above; it may be used again after the call.
DEV RunningSum block_running_sum(u64 value, GROUP u64* room) {
    value = warp_running_sum(value);
    if (lane() == 31) room[warp()] = value;
    barrier();
    u64 warps = warp_running_sum(lane() < block_width() / 32 ? room[lane()] : 0ull);
    u64 before = shuffle(warps, warp() == 0 ? 0 : warp() - 1);
    u64 total = shuffle(warps, 31);
    barrier();
    return {warp() == 0 ? value : before + value, total};
}

// Four neighbouring floats of a row, with `left` of the row's elements from there on: what is not there is 0. `wide`:
// address and row allow 16-byte accesses. The order in which elements are worked on is the same either way.
struct alignas(16) Four {
    float at[4];
};
DEV Four load_four(const GLOBAL float* from, u64 left, bool wide) {
    if (wide) return *(const GLOBAL Four*)from;
    Four four;
    for (u32 i = 0; i < 4; i++) four.at[i] = i < left ? from[i] : 0.0f;
    return four;
}
DEV void store_four(GLOBAL float* to, Four four, u64 left, bool wide) {
    if (wide) {
        *(GLOBAL Four*)to = four;
    } else {
        for (u32 i = 0; i < 4; i++)
            if (i < left) to[i] = four.at[i];
    }
}
