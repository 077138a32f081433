// Prepared activations: see `act.rs`.
#pragma once
#include "device.h"

// 32 activations as int8: x ≈ scale · q. Mirrors `Int8Block` in `act.rs`.
struct Int8Block {
    u32 q[8];
    float scale, sum;
    i32 half_sums[2];
    float scaled_half_sums[2];
    u32 padding[2];
};
