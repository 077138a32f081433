// e^-x in integers, so that sums of it have one value in whatever order they are taken, on every device. About 2^-48
// exact: near enough to 64-bit floats that choices made by it are those of the CPU.
#pragma once
#include "device.h"

// How differences become exponents of two: (a − b) · 2^shift, rounded to an integer, times factor · 2^-64, is the exponent
// in units of 2^-53. It must be below 2,048.
struct Rate {
    u64 factor;
    int shift;
};
// For e^-(a − b), a − b < 1,024: factor is 2^63 / ln 2.
DEV Rate natural_rate() { return {0xb8aa3b295c17f0bcul, 54}; }

// mantissa · 2^(−62 − halvings), with a mantissa in (2^61, 2^62].
struct Power {
    u64 mantissa;
    u32 halvings;
};

// value · 2^shift, rounded, modulo 2^64.
DEV u64 fixed_point(float value, int shift) {
    u32 bits = bits_of(value), exponent = bits >> 23 & 255;
    u64 magnitude = (bits & 0x7fffffu) | (exponent ? 0x800000u : 0u);
    shift += (int)max(exponent, 1u) - 150;
    if (shift >= 0)
        magnitude = shift < 64 ? magnitude << shift : 0;
    else
        magnitude = shift > -26 ? (magnitude + ((u64)1 << (-shift - 1))) >> -shift : 0;
    return bits >> 31 ? 0 - magnitude : magnitude;
}

// 2^(-i / 32), in units of 2^-63.
CONSTANT(u64, two_to_minus, 32) = {
    0x8000000000000000ul, 0x7d41d96db915019dul, 0x7a92be8a92436616ul, 0x77f25ccdee6d7ae6ul,
    0x75606373ee921c97ul, 0x72dc8373be41a454ul, 0x70666f76154a7089ul, 0x6dfddbcbed791babul,
    0x6ba27e656b4eb57aul, 0x69540ec8f895722dul, 0x6712460a8fc24072ul, 0x64dcdec3371793d1ul,
    0x62b39508aa836d6ful, 0x6096266533384a2bul, 0x5e8451cfac061b5ful, 0x5c7dd7a3b17dcf75ul,
    0x5a827999fcef3242ul, 0x5891fac0e95612c8ul, 0x56ac1f752150a563ul, 0x54d0ad5a753e077cul,
    0x52ff6b54d8a89c75ul, 0x513821818624b40cul, 0x4f7a993048d088d7ul, 0x4dc69cdceaa72a9cul,
    0x4c1bf828c6dc54b8ul, 0x4a7a77d47f7b84b1ul, 0x48e1e9b9d588e19bul, 0x47521cc5a2e6a9e0ul,
    0x45cae0f1f545eb73ul, 0x444c0740496d4294ul, 0x42d561b3e6243d8aul, 0x4166c34c5615d0ecul,
};

// base^-(a − b) for finite a ≥ b.
DEV Power power(float a, float b, Rate rate) {
    u64 exponent = high_product(fixed_point(a, rate.shift) - fixed_point(b, rate.shift), rate.factor);
    u64 fraction = exponent << 11;
    // The fraction's first 5 bits from the table; with the rest, z = rest · ln 2 < 0.0217, the series of e^-z. z is in
    // units of 2^-69, its square of 2^-74; the inner terms are in units of 2^-32.
    u64 z = high_product(fraction << 5, 0xb17217f7d1cf79acul);
    u32 coarse = (u32)(z >> 32);
    u32 inner = 5965232u - (high_product(coarse, 852176u) >> 5);
    inner = 35791394u - (high_product(coarse, inner) >> 5);
    inner = 178956971u - (high_product(coarse, inner) >> 5);
    inner = 715827883u - (high_product(coarse, inner) >> 5);
    u64 linear = ((u64)1 << 63) - (high_product(z, (u64)inner << 32) >> 5);
    u64 square = high_product(high_product(z, z), linear);
    u64 rest = ((u64)1 << 63) - (z >> 6) + (square >> 11);
    return {high_product(two_to_minus[fraction >> 59], rest), (u32)(exponent >> 53)};
}

// An integer in units of 2^-bits, rounded. bits ≤ 60.
DEV u64 power_fixed(Power power, u32 bits) {
    u32 down = 62 - bits + power.halvings;
    return down > 63 ? 0 : (power.mantissa + ((u64)1 << (down - 1))) >> down;
}

// factor · 2^-halvings, halved in steps so that a small result is rounded once.
DEV float halved(float factor, u32 halvings) {
    u32 first = min(halvings / 2, 126u), second = min(halvings - first, 126u);
    float first_part = factor * float_of((127 - first) << 23) * float_of((127 - second) << 23);
    return first + second < halvings ? 0.0f : first_part;
}
