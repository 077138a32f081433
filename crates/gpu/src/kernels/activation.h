// The gated activation of an MLP: see `Activation` in `ops.rs`.
#pragma once
#include "device.h"

enum ActivationKind { SWIGLU, GEGLU, CLAMPED_SWIGLU, LIMITED_SWIGLU };

#include "Activation"

DEV float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) = x · sigmoid(2 · …)
DEV float gelu(float x) {
    float inner = fmaf(0.044715f * x * x, x, x);
    return x * sigmoid(2.0f * 0.7978846f * inner);
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

DEV float activate(Activation activation, float gate, float up) {
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
