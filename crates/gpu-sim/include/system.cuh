#line 2 "gpu-sim/system.cuh"
// The functions of gristmill's system.cuh in plain C++. Threads of the host run meanwhile: a launch occupies one thread.
#pragma once
#include "device.h"

extern "C" int clock_gettime(int clock, long* time);
extern "C" int sched_yield();

namespace gpu_sim {

GPU_SIM_UNCHECKED u64 load_acquire(const u64* at, Site site) {
    look(at, sizeof(u64), site);
    u64 value = *(const volatile u64*)at;
    asm volatile("" ::: "memory");
    return value;
}
GPU_SIM_UNCHECKED void store_release(unsigned* at, unsigned value, Site site) {
    GPU_SIM_CALLED(site);
#ifdef GPU_SIM_CHECKED
    engine->hooks->touch(engine, at, sizeof(unsigned), WRITE, site.code);
#endif
    asm volatile("" ::: "memory");
    *(volatile unsigned*)at = value;
}
GPU_SIM_UNCHECKED u64 clock() {
    long time[2];
    clock_gettime(1, time);
    return (u64)time[0] * 1000000000 + (u64)time[1];
}

}  // namespace gpu_sim

static inline u64 load_acquire_system(const u64* at, GPU_SIM_HERE) { return gpu_sim::load_acquire((const gpu_sim::u64*)at, site); }
static inline void store_release_system(u32* at, u32 value, GPU_SIM_HERE) { gpu_sim::store_release(at, value, site); }
static inline u64 nanoseconds() { return gpu_sim::clock(); }
static inline void pause_shortly() { sched_yield(); }
