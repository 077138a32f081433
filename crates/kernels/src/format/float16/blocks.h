// `F16` on a GPU.
#pragma once
#include "weight.h"

struct F16 {
    MEMBER int BLOCK = 1, SPAN = 8;
    MEMBER bool IS_FLOAT = true;
    typedef uint4 Raw;
    static DEV Raw load(Row row, u32 span) { return load_floats<2>(row, span); }
    static DEV void elements(const THREAD Raw& raw, THREAD float (&out)[SPAN]) {
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = half_of(words[i / 2] >> 16 * (i % 2));
    }
};
