// Rotary position embedding. Angles are kept as fractions of a turn in 64-bit integers, which wrap around as turns do: so
// the angle of every position is exact to 2^-33 of a turn, and no number larger than a turn is ever reduced.
#pragma once
#include "reduce.h"

#include "RopeParams"

struct Rotation {
    float sine, cosine;
};

// angle / 2π modulo 1, in units of 2^-64. 1 / 2π is 0xa2f9836e4e44152a · 2^-66.
DEV u64 turns(float angle) {
    u32 bits = bits_of(angle), exponent = bits >> 23 & 255;
    u64 mantissa = (bits & 0x7fffffu) | (exponent ? 0x800000u : 0u);
    const u64 inverse = 0xa2f9836e4e44152aul;
    u64 high = high_product(mantissa, inverse), low = mantissa * inverse;
    // angle = mantissa · 2^(exponent − 150), so the product is to be divided by 2^(152 − exponent).
    int shift = 152 - (int)max(exponent, 1u);
    u64 fraction = shift < 0 ? (shift > -64 ? low << -shift : 0)
                 : shift == 0 ? low
                 : shift < 64 ? low >> shift | high << (64 - shift)
                 : shift < 128 ? high >> (shift - 64) : 0;
    return bits >> 31 ? 0 - fraction : fraction;
}

// A sine and cosine to about 1 ulp: the nearest quarter turn, and the Taylor series of the rest (at most π/4).
DEV Rotation rotation(u64 turn) {
    u64 quarter = (turn + ((u64)1 << 61)) >> 62;
    float a = (float)(i64)(turn - (quarter << 62)) * 3.4061215800304e-19f;
    float square = a * a;
    float sine = fmaf(square, 2.75573192e-6f, -1.98412698e-4f);
    sine = fmaf(square, sine, 8.33333333e-3f);
    sine = fmaf(square, sine, -1.66666667e-1f);
    sine = fmaf(a * square, sine, a);
    float cosine = fmaf(square, -2.75573192e-7f, 2.48015873e-5f);
    cosine = fmaf(square, cosine, -1.38888889e-3f);
    cosine = fmaf(square, cosine, 4.16666667e-2f);
    cosine = fmaf(square * square, cosine, fmaf(square, -0.5f, 1.0f));
    switch (quarter & 3) {
        case 0: return {sine, cosine};
        case 1: return {cosine, -sine};
        case 2: return {-sine, -cosine};
        default: return {-cosine, sine};
    }
}

DEV Rotation rotation_at(u32 position, float frequency, float magnitude) {
    Rotation r = rotation(position * turns(frequency));
    // An infinite or undefined frequency has no angle.
    bool finite = (bits_of(frequency) >> 23 & 255) != 255;
    float factor = finite ? magnitude : float_of(0x7fc00000u);
    return {r.sine * factor, r.cosine * factor};
}

// Turns a pair. Roundings are written out, so that every kernel has the same.
template <class Pointer>
DEV void rotate(Rotation r, Pointer a, Pointer b) {
    float u = *a, v = *b;
    *a = fmaf(u, r.cosine, -rounded_product(v, r.sine));
    *b = fmaf(u, r.sine, rounded_product(v, r.cosine));
}

KERNEL(rope)
(INOUT(float, x, 0), IN(u32, positions, 1), IN(float, frequencies, 2), PARAMS(RopeParams, p, 3)) {
    HERE;
    u32 group = here.thread_x() / p.pair_threads, groups = here.block_width() / p.pair_threads;
    u32 first = here.block_y() * p.block_heads, end = min(first + p.block_heads, p.heads);
    dependency_launch();
    dependency_wait();
    GLOBAL float* row = x + here.block_x() * p.x_stride;
    u32 position = positions[here.block_x() * p.positions_stride];
    for (u32 pair = here.thread_x() % p.pair_threads; pair < p.pairs; pair += p.pair_threads) {
        Rotation r = rotation_at(position, frequencies[pair], p.magnitude);
        u32 a = p.interleaved ? 2 * pair : pair, b = p.interleaved ? a + 1 : pair + p.pairs;
        for (u32 head = first + group; head < end; head += groups) {
            GLOBAL float* at = row + (u64)head * p.head_width + p.first;
            rotate(r, at + a, at + b);
        }
    }
}
