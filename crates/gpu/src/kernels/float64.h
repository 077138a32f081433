// Finite 64-bit floats in integers, for the few comparisons that 32 bits would decide otherwise: not every GPU has them. IEEE
// 754's format and rounding (to nearest, ties to even), but what is below 2^-1022 is 0. Exponents stay far below the largest.
#pragma once
#include "exponential.h"
#include "order.h"

struct Float64 {
    u64 bits;
};
DEV int exponent_of(Float64 a) { return (int)(a.bits >> 52 & 2047); }
DEV u64 mantissa_of(Float64 a) {
    u64 fraction = a.bits & 0xffffffffffffful;
    return exponent_of(a) == 0 ? 0 : fraction | (u64)1 << 52;
}

// ± mantissa · 2^exponent, rounded.
DEV Float64 float64(u64 negative, u64 mantissa, int exponent) {
    if (mantissa == 0) return {0};
    int zeros = leading_zeros(mantissa);
    mantissa <<= zeros;
    exponent += 1086 - zeros;
    u64 rounded = (mantissa >> 11) + ((mantissa & 2047) + (mantissa >> 11 & 1) > 1024 ? 1 : 0);
    // The leading bit, and what rounding carried into a new one, count the exponent up.
    u64 bits = ((u64)max(exponent - 1, 0) << 52) + rounded;
    if (exponent < 1) return {0};
    return {bits | negative << 63};
}

DEV Float64 float64_of(float value) {
    u32 bits = bits_of(value), exponent = bits >> 23 & 255;
    return float64(bits >> 31, (bits & 0x7fffffu) | (exponent ? 0x800000u : 0u), (int)max(exponent, 1u) - 150);
}
DEV Float64 float64_of(Power power) { return float64(0, power.mantissa, -62 - (int)power.halvings); }

DEV Float64 float64_negative(Float64 a) { return {a.bits ^ (u64)1 << 63}; }

DEV Float64 float64_sum(Float64 a, Float64 b) {
    if (a.bits << 1 < b.bits << 1) {
        Float64 smaller = a;
        a = b;
        b = smaller;
    }
    u64 negative = a.bits >> 63;
    bool differ = negative != b.bits >> 63;
    u64 large = mantissa_of(a) << 10, small = mantissa_of(b) << 10;
    u32 down = (u32)(exponent_of(a) - exponent_of(b));
    // The last bit remembers whether a set bit was shifted out.
    u64 lost = down > 63 ? small : small & (((u64)1 << down) - 1);
    small = (down > 63 ? 0 : small >> down) | (lost != 0);
    return float64(negative, differ ? large - small : large + small, exponent_of(a) - 1085);
}

DEV Float64 float64_product(float a, float b) {
    Float64 x = float64_of(a), y = float64_of(b);
    u64 negative = (x.bits ^ y.bits) >> 63;
    return float64(negative, (mantissa_of(x) >> 29) * (mantissa_of(y) >> 29), exponent_of(x) + exponent_of(y) - 2092);
}

// a / b for a ≥ 0 and b > 0, by long division.
DEV Float64 float64_quotient(Float64 a, Float64 b) {
    u64 rest = mantissa_of(a), divisor = mantissa_of(b), quotient = 0;
    if (rest == 0) return {0};
#pragma unroll 1
    for (u32 i = 0; i < 56; i++) {
        quotient *= 2;
        if (rest >= divisor) {
            rest -= divisor;
            quotient |= 1;
        }
        rest *= 2;
    }
    return float64(0, quotient * 2 | (rest != 0), exponent_of(a) - exponent_of(b) - 56);
}

// Greater for greater values; −0 is 0.
DEV u64 order_of(Float64 a) {
    if (a.bits << 1 == 0) a.bits = 0;
    return a.bits >> 63 ? ~a.bits : a.bits | (u64)1 << 63;
}
DEV Float64 float64_of_order(u64 order) { return {order >> 63 ? order ^ (u64)1 << 63 : ~order}; }
