// A thread's part of a recurrent state: QUAD neighbouring values, and of each of them the elements whose other parts PARTS lanes of
// a warp have. Both are the including source's.
#pragma once
#include "device.h"

// What the values of a thread have, each.
struct alignas(4 * QUAD) Quad {
    float at[QUAD];
};

// The element of a value's state that is a thread's i-th: four neighbours in each chunk of 4 · PARTS.
DEV u32 element_of(u32 part, u32 i) { return (i / 4 * PARTS + part) * 4 + i % 4; }

// `aligned`: address and rows allow accesses of a whole Quad.
DEV Quad load_quad(const GLOBAL float* from, bool aligned) {
    if (aligned) return *(const GLOBAL Quad*)from;
    Quad quad;
    for (u32 v = 0; v < QUAD; v++) quad.at[v] = from[v];
    return quad;
}
DEV void store_quad(GLOBAL float* to, Quad quad, bool aligned) {
    if (aligned) {
        *(GLOBAL Quad*)to = quad;
    } else {
        for (u32 v = 0; v < QUAD; v++) to[v] = quad.at[v];
    }
}
