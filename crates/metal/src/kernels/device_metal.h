// The macros and functions of `device.h` in the Metal Shading Language, compiled with safe math (NaN and infinity as in IEEE
// 754), for GPUs whose SIMD groups have 32 lanes.
#pragma once
#include <metal_stdlib>
using namespace metal;
// Only `fmaf` fuses a product and a sum.
#pragma METAL fp contract(off)

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef char i8;
typedef int i32;
typedef long i64;

#define DEV inline __attribute__((always_inline))
#define COLD static __attribute__((noinline))
#define GLOBAL device
#define GROUP threadgroup
#define THREAD thread

// So many threads a block at most. How many blocks are resident cannot be asked for.
#define KERNEL_BOUNDED(name, threads, blocks) [[kernel, max_total_threads_per_threadgroup(threads)]] void name
#define KERNEL(name) KERNEL_BOUNDED(name, 1024, 1)
#define IN(T, name, index) const device T* name [[buffer(index)]]
#define OUT(T, name, index) device T* name [[buffer(index)]]
#define INOUT(T, name, index) device T* name [[buffer(index)]]
#define PARAMS(T, name, index)                                      \
    constant T& name [[buffer(index)]],                             \
    threadgroup uint4* dynamic_shared [[threadgroup(0)]],           \
    uint3 here_block [[threadgroup_position_in_grid]],              \
    uint3 here_grid [[threadgroups_per_grid]],                      \
    uint3 here_width [[threads_per_threadgroup]],                   \
    uint here_thread [[thread_index_in_threadgroup]],               \
    uint here_lane [[thread_index_in_simdgroup]],                   \
    uint here_warp [[simdgroup_index_in_threadgroup]]

// A constant of a struct, and a table that no kernel writes.
#define MEMBER static constant constexpr const
#define CONSTANT(T, name, count) constant T name[count]
#define SHARED(T, name, count) threadgroup T name[count]
#define DYNAMIC_SHARED(T, name) threadgroup T* name = reinterpret_cast<threadgroup T*>(dynamic_shared)

// Weights lie as in the file (`weight.h`).
#define MAPPED_ROWS

// Which block and thread this is.
struct Here {
    uint3 block, grid;
    u32 width, thread_index, lane_index, warp_index;
    DEV u32 block_x() const { return block.x; }
    DEV u32 block_y() const { return block.y; }
    DEV u32 block_z() const { return block.z; }
    DEV u32 grid_x() const { return grid.x; }
    DEV u32 grid_y() const { return grid.y; }
    DEV u32 thread_x() const { return thread_index; }
    DEV u32 block_width() const { return width; }
    // Lane in the warp, and warp in the block.
    DEV u32 lane() const { return lane_index; }
    DEV u32 warp() const { return warp_index; }
};
#define HERE const Here here = {here_block, here_grid, here_width.x, here_thread, here_lane, here_warp}

// All threads of the block meet. Then each sees what the others wrote to the block's memory; after the second also what
// they wrote to memory that every block sees.
DEV void barrier() { threadgroup_barrier(mem_flags::mem_threadgroup); }
DEV void barrier_global() { threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); }
// After it, lanes of the warp see what its other lanes wrote to the block's memory.
DEV void warp_barrier() { simdgroup_barrier(mem_flags::mem_threadgroup); }
// Kernels do not start before the one before has ended, if they need what it wrote.
DEV void dependency_launch() {}
DEV void dependency_wait() {}

// 64-bit integers go in two parts.
template <class T>
DEV T shuffle(T value, u32 from) { return simd_shuffle(value, u16(from)); }
DEV u64 shuffle(u64 value, u32 from) { return as_type<u64>(simd_shuffle(as_type<uint2>(value), u16(from))); }
template <class T>
DEV T shuffle_up(T value, u32 by) { return simd_shuffle_up(value, u16(by)); }
DEV u64 shuffle_up(u64 value, u32 by) { return as_type<u64>(simd_shuffle_up(as_type<uint2>(value), u16(by))); }
template <class T>
DEV T shuffle_xor(T value, int mask) { return simd_shuffle_xor(value, u16(mask)); }
DEV u64 shuffle_xor(u64 value, int mask) { return as_type<u64>(simd_shuffle_xor(as_type<uint2>(value), u16(mask))); }
// The lanes that have the same value.
DEV u32 warp_same(u32 value) {
    u32 same = 0;
    for (u32 lane = 0; lane < 32; lane++) same |= u32(simd_shuffle(value, u16(lane)) == value) << lane;
    return same;
}
DEV u32 warp_largest(u32 value) { return simd_max(value); }

// Adds, and returns what was there.
DEV u32 add_atomic(device u32* at, u32 value) {
    return atomic_fetch_add_explicit(reinterpret_cast<device atomic_uint*>(at), value, memory_order_relaxed);
}
DEV u32 add_atomic(threadgroup u32* at, u32 value) {
    return atomic_fetch_add_explicit(reinterpret_cast<threadgroup atomic_uint*>(at), value, memory_order_relaxed);
}
// Writes the value if nothing, 0, is there. Whether it did.
DEV bool claim(device u32* at, u32 value) {
    device atomic_uint* word = reinterpret_cast<device atomic_uint*>(at);
    u32 found = 0;
    // The weak form may fail although 0 is there.
    while (found == 0) {
        if (atomic_compare_exchange_weak_explicit(word, &found, value, memory_order_relaxed, memory_order_relaxed))
            return true;
    }
    return false;
}

#define fmaf(a, b, c) fma(a, b, c)
#define fmaxf(a, b) fmax(a, b)
#define fminf(a, b) fmin(a, b)
#define fabsf(x) fabs(x)
#define sqrtf(x) sqrt(x)
#define rintf(x) rint(x)
#define expf(x) exp(x)
#define tanhf(x) tanh(x)

// A float's bits, and back.
DEV u32 bits_of(float value) { return as_type<u32>(value); }
DEV float float_of(u32 bits) { return as_type<float>(bits); }
DEV i32 nearest_int(float value) { return i32(rint(value)); }
// Rounded by themselves, never together with a sum.
DEV float rounded_product(float a, float b) { return a * b; }
DEV float rounded_difference(float a, float b) { return a - b; }
DEV float rounded_quotient(float a, float b) { return a / b; }
// The upper half of a product. That of 64 bits is made of products of 32.
DEV u32 high_product(u32 a, u32 b) { return mulhi(a, b); }
DEV u64 high_product(u64 a, u64 b) {
    u64 a_low = u32(a), a_high = a >> 32, b_low = u32(b), b_high = b >> 32;
    u64 middle = a_high * b_low + (a_low * b_low >> 32), rest = a_low * b_high + u32(middle);
    return a_high * b_high + (middle >> 32) + (rest >> 32);
}
DEV int leading_zeros(u64 value) {
    u32 high = u32(value >> 32);
    return int(high ? clz(high) : 32 + clz(u32(value)));
}
DEV u32 count_ones(u32 value) { return popcount(value); }
// Four of the eight bytes of low and high, each named by four bits of `which`, of which the highest is 0.
DEV u32 select_bytes(u32 low, u32 high, u32 which) {
    u64 both = u64(high) << 32 | low;
    u32 result = 0;
    for (u32 i = 0; i < 4; i++) result |= (u32(both >> 8 * (which >> 4 * i & 7)) & 255) << 8 * i;
    return result;
}
// Byte `i` of a word, less a small integer.
DEV float byte_to_float(u32 word, int i, float less) { return float(word >> 8 * i & 255) - less; }

// ---- 16-bit floats, rounded to nearest even; a NaN becomes 0x7fff.
DEV float half_to_float(u16 bits) { return float(as_type<half>(bits)); }
DEV u16 float_to_half(float value) { return value != value ? u16(0x7fff) : as_type<u16>(half(value)); }
DEV u32 pack_half(float low, float high) { return u32(float_to_half(low)) | u32(float_to_half(high)) << 16; }
DEV float bf16_to_float(u16 bits) { return float_of(u32(bits) << 16); }
DEV u16 float_to_bf16(float value) {
    u32 bits = bits_of(value);
    return value != value ? u16(0x7fff) : u16((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
DEV u32 pack_bf16(float low, float high) { return u32(float_to_bf16(low)) | u32(float_to_bf16(high)) << 16; }

// ---- Loads. 16 bytes, aligned, that nobody writes while the kernel runs.
DEV uint4 load_stream_16(const device void* from) { return *reinterpret_cast<const device uint4*>(from); }
#define make_uint2(...) uint2(__VA_ARGS__)
#define make_uint4(...) uint4(__VA_ARGS__)
