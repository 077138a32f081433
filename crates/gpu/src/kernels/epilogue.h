// What becomes of a product: see `gpu/epilogue.rs`.
#pragma once
#include "activation.h"

enum EpilogueKind {
    // Y is the product.
    STORE,
    // Y is the activation of the gate that is there with the product.
    GATE,
    // Y gets so many times the product more.
    ADD,
};

// Twin of `FinishParams` in `gpu/epilogue.rs`.
struct Epilogue {
    u32 kind;
    float scale;
    Activation activation;
};

DEV void apply_epilogue(Epilogue how, GLOBAL float* y, float product) {
    if (how.kind == STORE) {
        *y = product;
    } else if (how.kind == ADD) {
        *y = fmaf(how.scale, product, *y);
    } else {
        *y = activate(how.activation, *y, product);
    }
}
