// Epilogues of products: see `epilogue.rs`.
#pragma once
#include "activation.h"

enum EpilogueKind {
    // Y is the product.
    STORE,
    // Y is the activation of the gate in Y with the product.
    GATE,
    // Y grows by `scale` times the product.
    ADD,
    // Y is the activation of the product, which has no gate.
    ACTIVATE,
};

#include "Epilogue"

DEV void apply_epilogue(Epilogue how, GLOBAL float* y, float product) {
    if (how.kind == STORE) {
        *y = product;
    } else if (how.kind == ADD) {
        *y = fmaf(how.scale, product, *y);
    } else if (how.kind == ACTIVATE) {
        *y = activate(how.activation, 0.0f, product);
    } else {
        *y = activate(how.activation, *y, product);
    }
}
