// Floats as integers of the same order.
#pragma once
#include "reduce.h"

DEV float infinity() { return float_of(0x7f800000u); }
DEV float not_a_number() { return float_of(0x7fc00000u); }
DEV bool finite(float value) { return fabsf(value) < infinity(); }

// Greater for greater values; −0 is 0, and NaN, 0, is the smallest.
DEV u32 order_of(float value) {
    u32 bits = bits_of(value);
    if (value != value) return 0;
    if (bits == 0x80000000u) bits = 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEV float of_order(u32 order) {
    if (order == 0) return not_a_number();
    return float_of(order >> 31 ? order & 0x7fffffffu : ~order);
}
// The order of −∞.
#define ORDER_OF_NOTHING 0x007fffffu
