// The words in which kernels are written, so that one text is CUDA and Metal. Here is what both spell alike; the rest, with
// the same names, is in the two halves.
//
//   KERNEL(name)(IN(float, x, 0), OUT(float, y, 1), PARAMS(NameParams, p, 2)) {
//       HERE;
//       …
//   }
//
// The number is the argument's place; PARAMS comes last, and brings what HERE makes `here` of: which block and thread this
// is. A function that asks `here` takes it as its first parameter. Every pointer and reference says what memory it is of:
// GLOBAL (every block's), GROUP (one block's) or THREAD (one thread's). Memory of a block is declared in the kernel itself,
// SHARED or DYNAMIC_SHARED, and handed on.
#pragma once
#include "language.h"

// Whether a struct's field is at this byte. For `gpu/twin.rs`; a compiler that cannot say it,
// as NVRTC, asserts sizes alone.
#define FIELD_AT(S, field, byte) true
#ifdef __has_builtin
#if __has_builtin(__builtin_offsetof)
#undef FIELD_AT
#define FIELD_AT(S, field, byte) (__builtin_offsetof(S, field) == byte)
#endif
#endif

// Of 64-bit integers, for which `min` and `max` are not everywhere.
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

// Ids that a kernel found out of range: the host learns of the first one with the next download (`gpu/device.rs`).
enum Flag { FLAG_EMBED_ROW, FLAG_MATMUL_ROW, FLAG_EXPERT, FLAG_SLOT, FLAG_POSITION, FLAG_BLOCK, FLAG_COPY_BLOCK };
// The padding id: a pair without an expert, a token without a sequence.
#define PADDING 0xffffffffu

DEV void raise(GLOBAL u32* flag, u32 code, u32 id, u32 index, u32 limit) {
    if (claim(flag, code + 1)) {
        flag[1] = id;
        flag[2] = index;
        flag[3] = limit;
    }
}
