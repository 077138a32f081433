// `F32` on a GPU.
#pragma once
#include "weight.h"

struct F32 {
    MEMBER int BLOCK = 1, SPAN = 4;
    MEMBER bool IS_FLOAT = true;
    typedef uint4 Raw;
    static DEV Raw load(Row row, u32 span) { return load_floats<4>(row, span); }
    static DEV void elements(const THREAD Raw& raw, THREAD float (&out)[SPAN]) {
        out[0] = float_of(raw.x);
        out[1] = float_of(raw.y);
        out[2] = float_of(raw.z);
        out[3] = float_of(raw.w);
    }
};
