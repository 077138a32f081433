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

// Where a column of bfloat16 activations is, and the reverse. Among 16 the even ones come before the odd ones, as `RoundedAct`
// in `storage.rs` says.
DEV u32 bf16_place(u32 column) { return (column & ~15u) | (column % 2 * 8 + column / 4 % 4 * 2 + column / 2 % 2); }
DEV u32 bf16_column(u32 place) { return (place & ~15u) | (place / 2 % 4 * 4 + place % 2 * 2 + place / 8 % 2); }
