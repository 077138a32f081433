// Prepared activations: see `act.rs`.
#pragma once
#include "device.h"

#include "Int8Block"

// Where a column of bfloat16 activations is. Among 16 the even ones come before the odd ones, as `RoundedAct`
// in `storage.rs` says.
DEV u32 bf16_place(u32 column) { return (column & ~15u) | (column % 2 * 8 + column / 4 % 4 * 2 + column / 2 % 2); }
