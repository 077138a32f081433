// The macros and functions of `device.h` in CUDA C++.
#pragma once
#include "ptx.cuh"

typedef long long i64;

#define DEV __device__ __forceinline__
// A function that is seldom called: its code lies behind what a kernel runs, which it then need not fetch.
#define COLD static __device__ __noinline__
#define GLOBAL
#define GROUP
#define THREAD

#ifdef GPU_SIM
#define KERNEL(name) GPU_SIM_KERNEL(name)
#define KERNEL_BOUNDED(name, threads, blocks) GPU_SIM_KERNEL(name)
#else
#define KERNEL(name) extern "C" __global__ void name
// `__launch_bounds__(maxThreads, minBlocks)`.
#define KERNEL_BOUNDED(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#endif
// Without __restrict__: a kernel may start while the one before it still writes (`dependency_wait`), and the compiler would read
// constants through a cache that does not see those writes.
#define IN(T, name, index) const T* name
#define OUT(T, name, index) T* name
#define INOUT(T, name, index) T* name
#define PARAMS(T, name, index) const T name
// A matrix of which `copy_tile` brings tiles (hopper.cuh).
#define TENSOR_MAP(name, index) const __grid_constant__ TensorMap name

// A constant of a struct, and a table that no kernel writes.
#define MEMBER static constexpr
#define CONSTANT(T, name, count) static __device__ const T name[count]
#ifdef GPU_SIM
#define SHARED(T, name, count) GPU_SIM_SHARED(T, name, count)
#define DYNAMIC_SHARED(T, name) GPU_SIM_DYNAMIC_SHARED(T, name)
#else
#define SHARED(T, name, count) __shared__ T name[count]
#define DYNAMIC_SHARED(T, name) \
    extern __shared__ uint4 dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(dynamic_shared)
#endif

// Indices of block and thread. CUDA has them everywhere, so `here` is an empty global constant.
struct Here {
    DEV u32 block_x() const { return blockIdx.x; }
    DEV u32 block_y() const { return blockIdx.y; }
    DEV u32 block_z() const { return blockIdx.z; }
    DEV u32 grid_z() const { return gridDim.z; }
    DEV u32 grid_x() const { return gridDim.x; }
    DEV u32 grid_y() const { return gridDim.y; }
    DEV u32 thread_x() const { return threadIdx.x; }
    DEV u32 block_width() const { return blockDim.x; }
    // Lane in the warp, and warp in the block.
    DEV u32 lane() const { return threadIdx.x & 31; }
    DEV u32 warp() const { return threadIdx.x >> 5; }
};
static __device__ const Here here = {};
#define HERE

// All threads of the block meet. Then each sees what the others wrote to the block's memory; after the second also what
// they wrote to memory that every block sees.
DEV void barrier() { __syncthreads(); }
DEV void barrier_global() { __syncthreads(); }
// After it, lanes of the warp see what its other lanes wrote to the block's memory.
DEV void warp_barrier() { __syncwarp(); }

template <class T>
DEV T shuffle(T value, u32 from) { return __shfl_sync(0xffffffffu, value, from); }
template <class T>
DEV T shuffle_up(T value, u32 by) { return __shfl_up_sync(0xffffffffu, value, by); }
template <class T>
DEV T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
// The lanes that have the same value.
DEV u32 warp_same(u32 value) { return __match_any_sync(0xffffffffu, value); }
DEV u32 warp_largest(u32 value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, value);
#else
    for (int mask = 16; mask > 0; mask /= 2) value = max(value, shuffle_xor(value, mask));
    return value;
#endif
}

// Adds, and returns what was there.
DEV u32 add_atomic(u32* at, u32 value) { return atomicAdd(at, value); }
// Writes the value if nothing, 0, is there. Whether it did.
DEV bool claim(u32* at, u32 value) { return atomicCAS(at, 0u, value) == 0u; }

// A float's bits, and back.
DEV u32 bits_of(float value) { return __float_as_uint(value); }
DEV float float_of(u32 bits) { return __uint_as_float(bits); }
DEV i32 nearest_int(float value) { return __float2int_rn(value); }
// Rounded by themselves, never together with a sum.
DEV float rounded_product(float a, float b) { return __fmul_rn(a, b); }
DEV float rounded_difference(float a, float b) { return __fsub_rn(a, b); }
DEV float rounded_quotient(float a, float b) { return __fdiv_rn(a, b); }
// The upper half of a product.
DEV u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }
DEV u64 high_product(u64 a, u64 b) { return __umul64hi(a, b); }
DEV int leading_zeros(u64 value) { return __clzll((i64)value); }
DEV u32 count_ones(u32 value) { return __popc(value); }
// Four of the eight bytes of low and high, each named by four bits of `which`, of which the highest is 0.
DEV u32 select_bytes(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }
// Byte `i` of a word, less a small integer: exact, for 2^23 + byte is a float whose lowest bits are the byte.
DEV float byte_to_float(u32 word, int i, float less) {
    return float_of(select_bytes(word, 0x4b000000u, 0x7540 | i)) - (8388608.0f + less);
}
