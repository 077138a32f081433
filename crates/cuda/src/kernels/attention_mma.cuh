// Products of f32 numbers to 22 bits on tensor cores that multiply f16: keys and values are f16 already; queries and
// exponentials are split in a high and a low part, each multiplied. Long runs have no low parts at `Precision::Fast`.
#pragma once
#include "attention.cuh"

// Exponentials are taken times 2¹⁴, and queries scaled row by row, so that low parts are no subnormals.
#define ONE_EXPONENT 14.0f
#define ONE 16384.0f

// Two numbers as pairs of f16.
DEV void split_pair(float x, float y, u32& high, u32& low) {
    high = pack_half(x, y);
    low = pack_half(x - half_to_float(u16(high)), y - half_to_float(u16(high >> 16)));
}

// Powers of two by which a row of queries is multiplied, so that its largest element is in 2¹⁰ to 2¹¹, and by which that
// is undone. A row that is not finite stays as it is; a tiny one is scaled as far as both powers are normal.
struct RowScale {
    float apply, undo;
};

DEV RowScale row_scale(float largest) {
    u32 exponent = __float_as_uint(largest) >> 23;
    exponent = exponent == 255 ? 137 : exponent < 16 ? 16 : exponent;
    return {__uint_as_float((264 - exponent) << 23), __uint_as_float((exponent - 10) << 23)};
}

// The operand of columns 0 to 7, or of 8 to 15, of what `ldmatrix_x4` has loaded.
DEV const u32 (&half_of(const u32 (&b)[4], u32 half))[2] {
    return *reinterpret_cast<const u32(*)[2]>(&b[half * 2]);
}
