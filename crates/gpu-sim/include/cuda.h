// CUDA C++ for the host: qualifiers, built-in variables and types, barriers, votes, shuffles, atomics.
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
// Its features that are not in later ones: `wgmma`.
#if __CUDA_ARCH__ == 900
#define __CUDA_ARCH_FEAT_SM90_ALL
#endif
#define __device__
#define __grid_constant__
#define __host__
#define __constant__
#ifdef GPU_SIM_CHECKED
// So that the code's address tells all callers.
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __builtin_assume(condition) ((void)0)

#define threadIdx (gpu_sim::thread_index())
#define blockIdx (gpu_sim::block_index())
#define blockDim (gpu_sim::block_size())
#define gridDim (gpu_sim::grid_size())
#define warpSize 32

// ---- Vector types, aligned as on the device: a vector is loaded whole.
#define GPU_SIM_VECTORS(T, name, a2, a4)                                                             \
    struct alignas(a2) name##2 { T x, y; };                                                          \
    struct name##3 { T x, y, z; };                                                                   \
    struct alignas(a4) name##4 { T x, y, z, w; };                                                    \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
GPU_SIM_VECTORS(signed char, char, 2, 4)
GPU_SIM_VECTORS(unsigned char, uchar, 2, 4)
GPU_SIM_VECTORS(short, short, 4, 8)
GPU_SIM_VECTORS(unsigned short, ushort, 4, 8)
GPU_SIM_VECTORS(int, int, 8, 16)
GPU_SIM_VECTORS(unsigned int, uint, 8, 16)
GPU_SIM_VECTORS(float, float, 8, 16)
struct alignas(16) ulonglong2 { unsigned long long x, y; };
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
struct alignas(16) longlong2 { long long x, y; };
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }

// ---- Barriers.
static inline void __syncthreads(GPU_SIM_HERE) { gpu_sim::barrier(0, gpu_sim::ALL_MEMORY, site); }
static inline int __syncthreads_count(int predicate, GPU_SIM_HERE) {
    return (int)gpu_sim::barrier(predicate != 0, gpu_sim::ALL_MEMORY, site);
}
static inline int __syncthreads_or(int predicate, GPU_SIM_HERE) { return __syncthreads_count(predicate, site) != 0; }
static inline int __syncthreads_and(int predicate, GPU_SIM_HERE) { return __syncthreads_count(!predicate, site) == 0; }
static inline void __threadfence_block() {}
static inline void __threadfence() {}
static inline void __threadfence_system() {}
static inline void __trap(GPU_SIM_HERE) { gpu_sim::fail("__trap", gpu_sim::called(site)); }

namespace gpu_sim {

template <class T>
static inline T shuffle(u32 mask, T value, int source, Site site) {
    static const Collective collective = {shuffle_all<T>, "a shuffle", 0, 0};
    Shuffle<T> mine = {value, value, source, called(site)};
    converge(collective, mask, &mine, site);
    return mine.result;
}

template <class T, T (*F)(T, T)>
static inline T reduce(u32 mask, T value, Site site) {
    static const Collective collective = {reduce_all<T, F>, "a reduction", 0, 0};
    Reduce<T> mine = {value, value};
    converge(collective, mask, &mine, site);
    return mine.result;
}
// The lane from which lane `lane` reads, in its segment of `width` lanes.
static inline int lane_at(int source, int width) {
    int lane = (int)gpu_sim::lane();
    return (lane & ~(width - 1)) | (source & (width - 1));
}
static inline int lane_up(int delta, int width) {
    int lane = (int)gpu_sim::lane();
    return (lane & (width - 1)) < delta ? lane : lane - delta;
}
static inline int lane_down(int delta, int width) {
    int lane = (int)gpu_sim::lane();
    return (lane & (width - 1)) + delta >= width ? lane : lane + delta;
}
// A lane of a later segment cannot be read: the lane keeps its own value.
static inline int lane_xor(int mask, int width) {
    int lane = (int)gpu_sim::lane(), source = lane ^ mask;
    return source >= (lane & ~(width - 1)) + width ? lane : source;
}

}  // namespace gpu_sim

static inline void __syncwarp(unsigned mask = 0xffffffffu, GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::nothing, "__syncwarp", 0, gpu_sim::ALL_MEMORY};
    gpu_sim::converge(collective, mask, nullptr, site);
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, GPU_SIM_HERE) {
    return gpu_sim::shuffle(mask, value, gpu_sim::lane_at(source, width), site);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, GPU_SIM_HERE) {
    return gpu_sim::shuffle(mask, value, gpu_sim::lane_up((int)delta, width), site);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, GPU_SIM_HERE) {
    return gpu_sim::shuffle(mask, value, gpu_sim::lane_down((int)delta, width), site);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, GPU_SIM_HERE) {
    return gpu_sim::shuffle(mask, value, gpu_sim::lane_xor(lanes, width), site);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::vote_all, "a vote", 0, 0};
    gpu_sim::Vote mine = {(unsigned)(predicate != 0), 0};
    gpu_sim::converge(collective, mask, &mine, site);
    return mine.result;
}
static inline int __any_sync(unsigned mask, int predicate, GPU_SIM_HERE) {
    return __ballot_sync(mask, predicate, site) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, GPU_SIM_HERE) {
    return __ballot_sync(mask, !predicate, site) == 0;
}
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, GPU_SIM_HERE) {
    static const gpu_sim::Collective collective = {gpu_sim::match_all<T>, "a match", 0, 0};
    gpu_sim::Match<T> mine = {value, 0};
    gpu_sim::converge(collective, mask, &mine, site);
    return mine.result;
}
#define GPU_SIM_REDUCE(name, T, f) \
    static inline T name(unsigned mask, T value, GPU_SIM_HERE) { return gpu_sim::reduce<T, gpu_sim::f<T>>(mask, value, site); }
GPU_SIM_REDUCE(__reduce_add_sync, unsigned, sum)
GPU_SIM_REDUCE(__reduce_add_sync, int, sum)
GPU_SIM_REDUCE(__reduce_min_sync, unsigned, smaller)
GPU_SIM_REDUCE(__reduce_min_sync, int, smaller)
GPU_SIM_REDUCE(__reduce_max_sync, unsigned, larger)
GPU_SIM_REDUCE(__reduce_max_sync, int, larger)
GPU_SIM_REDUCE(__reduce_and_sync, unsigned, both)
GPU_SIM_REDUCE(__reduce_or_sync, unsigned, either)
GPU_SIM_REDUCE(__reduce_xor_sync, unsigned, differ)

// ---- Atomics.
namespace gpu_sim {
static u32 wrap_up(u32 a, u32 b) { return a >= b ? 0 : a + 1; }
static u32 wrap_down(u32 a, u32 b) { return a == 0 || a > b ? b : a - 1; }
}  // namespace gpu_sim
#define GPU_SIM_ATOMIC(name, T, f)                          \
    static inline T name(T* at, T value) {                  \
        gpu_sim::touch_atomic(at);                          \
        return gpu_sim::change<T, gpu_sim::f>(at, value);   \
    }
#define GPU_SIM_ATOMICS(T)                       \
    GPU_SIM_ATOMIC(atomicAdd, T, sum<T>)         \
    GPU_SIM_ATOMIC(atomicExch, T, second<T>)
#define GPU_SIM_ATOMICS_INTEGER(T)               \
    GPU_SIM_ATOMIC(atomicMin, T, smaller<T>)     \
    GPU_SIM_ATOMIC(atomicMax, T, larger<T>)      \
    GPU_SIM_ATOMIC(atomicAnd, T, both<T>)        \
    GPU_SIM_ATOMIC(atomicOr, T, either<T>)       \
    GPU_SIM_ATOMIC(atomicXor, T, differ<T>)      \
    static inline T atomicCAS(T* at, T expected, T value) { \
        gpu_sim::touch_atomic(at);               \
        return gpu_sim::change_if(at, expected, value); \
    }
GPU_SIM_ATOMICS(float)
GPU_SIM_ATOMICS(int)
GPU_SIM_ATOMICS(unsigned)
GPU_SIM_ATOMICS(unsigned long long)
GPU_SIM_ATOMICS_INTEGER(int)
GPU_SIM_ATOMICS_INTEGER(unsigned)
GPU_SIM_ATOMICS_INTEGER(unsigned long long)
GPU_SIM_ATOMIC(atomicSub, int, difference<int>)
GPU_SIM_ATOMIC(atomicSub, unsigned, difference<unsigned>)
GPU_SIM_ATOMIC(atomicInc, unsigned, wrap_up)
GPU_SIM_ATOMIC(atomicDec, unsigned, wrap_down)

// ---- Loads and stores with a wish for the caches.
template <class T> static inline T __ldg(const T* at) { return *at; }
template <class T> static inline T __ldcg(const T* at) { return *at; }
template <class T> static inline T __ldca(const T* at) { return *at; }
template <class T> static inline T __ldcs(const T* at) { return *at; }
template <class T> static inline T __ldlu(const T* at) { return *at; }
template <class T> static inline T __ldcv(const T* at) { return *at; }
template <class T> static inline void __stwb(T* at, T value) { *at = value; }
template <class T> static inline void __stcg(T* at, T value) { *at = value; }
template <class T> static inline void __stcs(T* at, T value) { *at = value; }
template <class T> static inline void __stwt(T* at, T value) { *at = value; }
