#line 2 "gpu-sim/hopper.cuh"
// The functions of gristmill's hopper.cuh in plain C++, written from the PTX ISA.
#pragma once

static inline u32 shared_address(const void* shared) { return gpu_sim::shared_offset(shared); }

// ---- Barriers of some warps.
static inline void named_barrier_sync(u32 id, u32 threads, GPU_SIM_HERE) { gpu_sim::named_barrier(id, threads, 1, site); }
static inline void named_barrier_arrive(u32 id, u32 threads, GPU_SIM_HERE) {
    gpu_sim::named_barrier(id, threads, 0, site);
}

// ---- Barriers in shared memory.
static inline void mbarrier_init(u64* barrier, u32 count, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_INIT, barrier, count, site);
}
static inline void mbarrier_inval(u64* barrier, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_INVAL, barrier, 0, site);
}
static inline void mbarrier_arrive(u64* barrier, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_ARRIVE, barrier, 0, site);
}
static inline void mbarrier_arrive_expect_tx(u64* barrier, u32 bytes, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_EXPECT, barrier, bytes, site);
}
// The device's may give up after a while; this one returns when the phase has ended.
static inline bool mbarrier_try_wait(u64* barrier, u32 parity, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_WAIT, barrier, parity, site);
    return true;
}
static inline void mbarrier_wait(u64* barrier, u32 parity, GPU_SIM_HERE) {
    gpu_sim::phase(gpu_sim::PHASE_WAIT, barrier, parity, site);
}

static inline bool is_elected() { return (threadIdx.x & 31) == 0; }

// ---- Copies that the device goes on with by itself.
struct TensorMap {
    u64 opaque[16];
};
static inline void fence_async(GPU_SIM_HERE) { gpu_sim::fence_async(site); }
static inline void copy_bulk(void* shared, const void* global, u32 bytes, u64* barrier, GPU_SIM_HERE) {
    gpu_sim::bulk(shared, global, bytes, barrier, site);
}
static inline void copy_tile(void* shared, const TensorMap& map, int column, int row, u64* barrier, GPU_SIM_HERE) {
    gpu_sim::tile(shared, &map, column, row, barrier, site);
}

// ---- Registers. There are always enough.
template <int COUNT>
static inline void registers_give() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a number of registers");
}
template <int COUNT>
static inline void registers_take() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a number of registers");
}

// ---- Products of four warps.
namespace gpu_sim {

struct Part {
    void* d;
    const u32* registers;
    u64 a, b;
    u32 accumulate;
    Site site;
};
typedef void (*Compute)(void* const* d, const char* a, const char* b, u32 columns, u32 accumulate);
// How b lies: row after row, or as its transpose.
enum Layout : u32 { BY_ROWS, BY_COLUMNS };

// All lanes must bring the same matrices; the last one begins the product for the warp.
template <Compute COMPUTE, u32 COLUMNS, Layout LAYOUT>
GPU_SIM_UNCHECKED void product_all(Engine* e, void* const* lanes, u32) {
    const Part& first = *(const Part*)lanes[0];
    Product product = {COMPUTE, first.a, first.b, COLUMNS, first.accumulate, first.registers != nullptr, LAYOUT == BY_COLUMNS,
                       {}, {}, {}};
    for (int lane = 0; lane < 32; lane++) {
        const Part& part = *(const Part*)lanes[lane];
        if (part.a != first.a || part.b != first.b || part.accumulate != first.accumulate)
            fail("wgmma: the lanes of a warp name different matrices", part.site);
        product.d[lane] = part.d;
        product.registers[lane] = part.registers;
        if (part.registers)
            for (int i = 0; i < 4; i++) product.fragments[lane][i] = part.registers[i];
    }
    e->hooks->product(e, &product, &first.site);
}
template <Compute COMPUTE, u32 COLUMNS, Layout LAYOUT>
GPU_SIM_UNCHECKED void product(void* d, const u32* registers, u64 a, u64 b, bool accumulate, Site site) {
    GPU_SIM_CALLED(site);
    static const Collective collective = {product_all<COMPUTE, COLUMNS, LAYOUT>, "wgmma", 1, 0};
    Part mine = {d, registers, a, b, accumulate, site};
    engine->hooks->converge(engine, &collective, 0xffffffffu, &mine, &site);
}

// Sum i of a lane: of the warp's 16 rows, row lane / 4, + 8 for odd i / 2; column 8 (i / 4) + 2 (lane % 4) + i % 2.
static inline u32 row_of(u32 lane, u32 i) { return lane / 4 + i / 2 % 2 * 8; }
static inline u32 column_of(u32 lane, u32 i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

static inline int of_s8(u8 bits) { return (i8)bits; }
// One warp's part: d of type T, of elements of type E.
template <class T, class E, T (*VALUE)(E)>
GPU_SIM_UNCHECKED void multiply(void* const* d, const char* a, const char* b, u32 columns, u32 accumulate) {
    enum { K = 32 / sizeof(E) };
    T left[16][K], right[K][256], sums[16][256];
    for (u32 row = 0; row < 16; row++)
        for (u32 k = 0; k < K; k++) left[row][k] = VALUE(((const E*)a)[row * K + k]);
    for (u32 column = 0; column < columns; column++)
        for (u32 k = 0; k < K; k++) right[k][column] = VALUE(((const E*)b)[column * K + k]);
    for (u32 lane = 0; lane < 32; lane++)
        for (u32 i = 0; i < columns / 2; i++)
            sums[row_of(lane, i)][column_of(lane, i)] = accumulate ? ((const T*)d[lane])[i] : 0;
    for (u32 row = 0; row < 16; row++)
        for (u32 k = 0; k < K; k++)
            for (u32 column = 0; column < columns; column++) sums[row][column] += left[row][k] * right[k][column];
    for (u32 lane = 0; lane < 32; lane++)
        for (u32 i = 0; i < columns / 2; i++)
            ((T*)d[lane])[i] = sums[row_of(lane, i)][column_of(lane, i)];
}

GPU_SIM_UNCHECKED void fence_all(Engine* e, void* const*, u32) { e->hooks->product_fence(e); }
GPU_SIM_UNCHECKED void commit_all(Engine* e, void* const*, u32) { e->hooks->product_commit(e); }

}  // namespace gpu_sim

enum Swizzle : u32 { SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32 };
static inline u64 wgmma_matrix(const void* shared, u32 leading, u32 stride, Swizzle swizzle) {
    return (u64)(shared_address(shared) >> 4 & 0x3fff) | (u64)(leading >> 4 & 0x3fff) << 16 |
           (u64)(stride >> 4 & 0x3fff) << 32 | (u64)swizzle << 62;
}

static inline u64 wgmma_columns(u64 matrix, u32 columns) { return matrix + columns / 8; }

static inline void wgmma_fence(GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::fence_all, "wgmma.fence", 1, 0};
    gpu_sim::converge(collective, 0xffffffffu, nullptr, site);
}
static inline void wgmma_commit(GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::commit_all, "wgmma.commit_group", 1, 0};
    gpu_sim::converge(collective, 0xffffffffu, nullptr, site);
}
template <int LEFT>
static inline void wgmma_wait(GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::nothing, "wgmma.wait_group", 1, 0};
    gpu_sim::converge(collective, 0xffffffffu, nullptr, site);
    gpu_sim::product_wait(LEFT, site);
}

// Everything is computed where the source has it.
static inline void compute_before_wait(float value, float* shared) { *shared = value; }
template <int N>
static inline void pin_registers(float (&)[N]) {}
template <int N>
static inline void pin_registers(u32 (&)[N][4]) {}

#define GPU_SIM_WGMMA_REGISTERS(name, T, E, value, layout)                                                            \
    template <int SUMS>                                                                                               \
    static inline void name(T (&d)[SUMS], const u32 (&a)[4], u64 b, bool accumulate, GPU_SIM_HERE) {                  \
        gpu_sim::product<gpu_sim::multiply<T, E, value>, 2 * SUMS, gpu_sim::layout>(d, a, 0, b, accumulate, site);    \
    }
#define GPU_SIM_WGMMA(name, T, E, value)                                                                              \
    template <int SUMS>                                                                                               \
    static inline void name(T (&d)[SUMS], u64 a, u64 b, bool accumulate, GPU_SIM_HERE) {                              \
        gpu_sim::product<gpu_sim::multiply<T, E, value>, 2 * SUMS, gpu_sim::BY_ROWS>(d, nullptr, a, b, accumulate, site); \
    }                                                                                                                 \
    GPU_SIM_WGMMA_REGISTERS(name, T, E, value, BY_ROWS)
GPU_SIM_WGMMA(wgmma_bf16, float, u16, gpu_sim::of_bf16)
GPU_SIM_WGMMA(wgmma_f16, float, u16, gpu_sim::from_half)
GPU_SIM_WGMMA_REGISTERS(wgmma_f16_by_columns, float, u16, gpu_sim::from_half, BY_COLUMNS)
GPU_SIM_WGMMA(wgmma_s8, int, u8, gpu_sim::of_s8)
