// Words that the device and threads of the host share, and a clock. The simulator has the same functions in plain C++
// (crates/gpu-sim/include/system.cuh).
#pragma once
#include "device.h"

// What the host wrote before it stored the value is visible after the load.
DEV u64 load_acquire_system(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
// What the block wrote before its last barrier is visible to the host before the value.
DEV void store_release_system(u32* at, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// Nanoseconds since a fixed time. Some devices count in steps of a microsecond.
DEV u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}
// Lets other work run between two looks at a word.
DEV void pause_shortly() { __nanosleep(100); }
