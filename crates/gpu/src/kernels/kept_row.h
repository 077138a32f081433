// A row that a block of threads keeps in registers, in groups of four elements.
#pragma once
#include "reduce.h"

// Groups of a thread.
#define KEPT 2

// Where a thread's groups begin, how many elements of the row are left from there on, and whether they can be accessed at once.
struct KeptGroups {
    u32 at[KEPT], left[KEPT];
    bool aligned[KEPT];
};
DEV KeptGroups kept_groups(Here here, u32 width, u32 aligned) {
    KeptGroups groups;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        groups.at[k] = (k * here.block_width() + here.thread_x()) * 4;
        groups.left[k] = groups.at[k] < width ? width - groups.at[k] : 0;
        groups.aligned[k] = aligned && groups.left[k] > 0;
    }
    return groups;
}

// A thread's part of a row.
struct Kept {
    Four four[KEPT];
};
DEV Kept load_kept(const GLOBAL float* row, KeptGroups groups) {
    Kept kept;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) kept.four[k] = load_four(row + groups.at[k], groups.left[k], groups.aligned[k]);
    return kept;
}
DEV void store_kept(GLOBAL float* row, Kept kept, KeptGroups groups) {
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) store_four(row + groups.at[k], kept.four[k], groups.left[k], groups.aligned[k]);
}
DEV float squares(Kept kept) {
    float sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        for (u32 i = 0; i < 4; i++) sum = fmaf(kept.four[k].at[i], kept.four[k].at[i], sum);
    }
    return sum;
}

DEV Four normed_four(Four v, float factor, Four weight) {
    for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor * weight.at[i];
    return v;
}
