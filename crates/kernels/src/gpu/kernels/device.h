// The words in which kernels are written, so that one text can be CUDA and, with other definitions, Metal.
#pragma once
#include "ptx.cuh"

#define DEV __device__ __forceinline__
// Memory that every block sees, and memory of one block.
#define GLOBAL
#define GROUP

// KERNEL(name)(IN(float, x, 0), OUT(float, y, 1), PARAMS(NameParams, p, 2)) { … }
#ifdef GPU_SIM
#define KERNEL(name) GPU_SIM_KERNEL(name)
#define KERNEL_BOUNDED(name, threads, blocks) GPU_SIM_KERNEL(name)
#else
#define KERNEL(name) extern "C" __global__ void name
// So many threads a block at most, and so many blocks resident at least.
#define KERNEL_BOUNDED(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#endif
// Without __restrict__: a kernel may start while the one before it still writes (`dependency_wait`), and what the compiler
// takes for constant it would read by way of a cache that does not see those writes.
#define IN(T, name, index) const T* name
#define OUT(T, name, index) T* name
#define INOUT(T, name, index) T* name
#define PARAMS(T, name, index) const T name

// A table that no kernel writes.
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

DEV u32 block_x() { return blockIdx.x; }
DEV u32 block_y() { return blockIdx.y; }
DEV u32 block_z() { return blockIdx.z; }
DEV u32 grid_x() { return gridDim.x; }
DEV u32 grid_y() { return gridDim.y; }
DEV u32 thread_x() { return threadIdx.x; }
DEV u32 block_width() { return blockDim.x; }
// Lane in the warp, and warp in the block.
DEV u32 lane() { return threadIdx.x & 31; }
DEV u32 warp() { return threadIdx.x >> 5; }

DEV void barrier() { __syncthreads(); }
template <class T>
DEV T shuffle_xor(T value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Over all 32 lanes, in a fixed order; every lane gets the result.
DEV float warp_sum(float value) {
    for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}
DEV float warp_max(float value) {
    for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Ids that a kernel found out of range: the host learns of the first one with the next download (`gpu/device.rs`).
enum Flag { FLAG_EMBED_ROW, FLAG_MATMUL_ROW, FLAG_EXPERT, FLAG_SLOT, FLAG_POSITION, FLAG_BLOCK, FLAG_COPY_BLOCK };
// The padding id: a pair without an expert, a token without a sequence.
#define PADDING 0xffffffffu

DEV void raise(GLOBAL u32* flag, u32 code, u32 id, u32 index, u32 limit) {
    if (atomicCAS(flag, 0u, code + 1) == 0u) {
        flag[1] = id;
        flag[2] = index;
        flag[3] = limit;
    }
}
