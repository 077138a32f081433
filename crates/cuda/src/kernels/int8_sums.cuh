// Sums of products of bytes, as both kernels that multiply int8 activations on tensor cores round them: the products of the
// columns with one scale are a whole number, which is scaled and added in f32.
#pragma once
#include "weight.h"

// A float's bits whose lowest ones are a whole number between ±2²², so that numbers added to them need no conversion. Sums
// of 32 products of bytes stay below 2²⁰.
constexpr int WHOLE = 0x4b400000;
DEV float whole_to_float(int bits) { return __int_as_float(bits) - 12582912.0f; }

// A scale and minimum of weights as they are added: with minima, the zero becomes part of them, because both are multiplied by
// the same sum.
template <class F>
DEV ScaleMin scale_and_min(ScaleMin of) {
    if (F::HAS_MIN && F::ZERO != 0) of.min = fmaf(of.scale, float(F::ZERO), of.min);
    return of;
}

// Adds the product of columns with one scale to a sum: a whole number, as `WHOLE` plus it, times both scales, less the minimum
// times the scaled sum of the activations.
template <class F>
DEV void add_scaled(int whole, ScaleMin weights, float scale, float scaled_sum, float& sum) {
    sum = fmaf(whole_to_float(whole), __fmul_rn(weights.scale, scale), sum);
    if (F::HAS_MIN) sum = fmaf(-weights.min, scaled_sum, sum);
}
