// The activation of an MLP: see `Activation` in `ops.rs`.
#pragma once
#include "device.h"

enum ActivationKind { SWIGLU, GEGLU, CLAMPED_SWIGLU, LIMITED_SWIGLU, SQUARED_RELU };

#include "Activation"

DEV float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// 0.5 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) = sigmoid(2 · …)
DEV float normal_tanh(float x) {
    float inner = fmaf(0.044715f * x * x, x, x);
    return sigmoid(2.0f * 0.7978846f * inner);
}

DEV float gelu(float x) { return x * normal_tanh(x); }

// The distribution function of the standard normal distribution: in the form of Abramowitz and Stegun 7.1.26, with eight
// coefficients that were fitted to a relative error of 4.2e-8 up to five deviations.
DEV float normal(float x) {
    float size = fabsf(x), t = 1.0f / fmaf(size, 0.3f, 1.0f);
    float tail = 0.0369050577f;
    tail = fmaf(tail, t, -0.162073836f);
    tail = fmaf(tail, t, 0.214210466f);
    tail = fmaf(tail, t, -0.0603046641f);
    tail = fmaf(tail, t, 0.131658554f);
    tail = fmaf(tail, t, 0.099131003f);
    tail = fmaf(tail, t, 0.120847687f);
    tail = fmaf(tail, t, 0.119625747f);
    tail *= t * expf(-0.5f * size * size);
    return x < 0.0f ? tail : 1.0f - tail;
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^-|x| ≤ 1; ln(1 + e) = 2 · artanh(e / (2 + e)), by its series (the rest is
// below 1e-9 of it).
DEV float softplus(float x) {
    float e = expf(-fabsf(x)), s = e / (2.0f + e), square = s * s;
    float sum = 1.0f / 17.0f;
    sum = fmaf(sum, square, 1.0f / 15.0f);
    sum = fmaf(sum, square, 1.0f / 13.0f);
    sum = fmaf(sum, square, 1.0f / 11.0f);
    sum = fmaf(sum, square, 1.0f / 9.0f);
    sum = fmaf(sum, square, 1.0f / 7.0f);
    sum = fmaf(sum, square, 1.0f / 5.0f);
    sum = fmaf(sum, square, 1.0f / 3.0f);
    return fmaxf(x, 0.0f) + 2.0f * fmaf(sum * square, s, s);
}

// Without a gate, `gate` is not used.
DEV float activate(Activation activation, float gate, float up) {
    if (activation.kind == SQUARED_RELU) {
        up = up < 0.0f ? 0.0f : up;
        return up * up;
    }
    if (activation.kind == SWIGLU) return gate * sigmoid(gate) * up;
    if (activation.kind == GEGLU) return gelu(gate) * up;
    // Comparisons, not fminf: a NaN stays one.
    float limit = activation.limit;
    if (activation.kind == LIMITED_SWIGLU) gate *= sigmoid(gate);
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    if (activation.kind == LIMITED_SWIGLU) return gate * up;
    return gate * sigmoid(activation.alpha * gate) * (up + 1.0f);
}
