// `F32` on a GPU.
#pragma once
#include "weight.h"

struct F32 {
    static constexpr int BLOCK = 1, SPAN = 4;
    static constexpr bool IS_FLOAT = true;
    typedef uint4 Raw;
    static DEV Raw load(Row row, u32 span) { return load_stream_16(row.base + 16 * span); }
    static DEV void elements(const Raw& raw, float (&out)[SPAN]) {
        out[0] = __uint_as_float(raw.x);
        out[1] = __uint_as_float(raw.y);
        out[2] = __uint_as_float(raw.z);
        out[3] = __uint_as_float(raw.w);
    }
};
