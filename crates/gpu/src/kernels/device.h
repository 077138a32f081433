// Macros, qualifiers and functions that let one kernel source compile as CUDA and as Metal. What differs between the two is in
// their own `language.h`, under the same names.
//
//   KERNEL(name)(IN(float, x, 0), OUT(float, y, 1), PARAMS(NameParams, p, 2)) {
//       HERE;
//       …
//   }
//
// The number is the argument's binding; PARAMS comes last and declares what HERE makes `here` of: the block's and the thread's
// indices. A function that needs them takes `here` as its first parameter. Every pointer and reference names its memory: GLOBAL,
// GROUP (shared by a block) or THREAD. Shared memory is declared in the kernel itself, SHARED or DYNAMIC_SHARED, and passed on.
#pragma once
#include "language.h"

// Also of 64-bit integers, for which not every language has `min` and `max`.
template <class T>
DEV T larger(T a, T b) { return a < b ? b : a; }
template <class T>
DEV T smaller(T a, T b) { return b < a ? b : a; }

// Over all 32 lanes, in a fixed order; every lane gets the result.
DEV float warp_sum(float value) {
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
DEV float warp_max(float value) {
    for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Ids out of range: the host learns of the first one with the next download (`device.rs`).
enum Flag {
    FLAG_EMBED_ROW, FLAG_MATMUL_ROW, FLAG_EXPERT, FLAG_SLOT, FLAG_POSITION, FLAG_BLOCK, FLAG_COPY_BLOCK, FLAG_RUN_ROW,
    FLAG_STATE_SLOT, FLAG_COLUMN
};
// The padding id: a pair without an expert, a token without a sequence.
#define PADDING 0xffffffffu

DEV void raise(GLOBAL u32* flag, u32 code, u32 id, u32 index, u32 limit) {
    if (claim(flag, code + 1)) {
        flag[1] = id;
        flag[2] = index;
        flag[3] = limit;
    }
}
