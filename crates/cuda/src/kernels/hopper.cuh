// The inline PTX of compute capability 9.0 and later: barriers that count bytes, copies and products that the device goes
// on with by itself. It goes with ptx.cuh, and the simulator has the same functions (crates/gpu-sim/include/hopper.cuh).
#pragma once
#include "ptx.cuh"

#define PTX static __device__ __forceinline__

// ---- Barriers of some warps of the block: `id` from 1 to 15, `threads` a multiple of 32. By whole warps.
PTX void named_barrier_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// Arrives and does not wait.
PTX void named_barrier_arrive(u32 id, u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#if __CUDA_ARCH__ >= 900
// ---- Barriers in shared memory. A phase ends when `count` threads have arrived and all announced bytes have come; then
// the next one begins. A barrier that one thread makes is seen by others after a barrier of the block, and by copies
// after `fence_async`.
PTX void mbarrier_init(u64* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
// The memory may be used for something else.
PTX void mbarrier_inval(u64* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
PTX void mbarrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Announces bytes that copies will bring, and arrives.
PTX void mbarrier_arrive_expect_tx(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
// Whether the last phase of this parity has ended; the thread may sleep for a while first. The first phase has parity 0,
// and one of parity 1 counts as ended before it.
PTX bool mbarrier_try_wait(u64* barrier, u32 parity) {
    u32 ended;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
}
PTX void mbarrier_wait(u64* barrier, u32 parity) {
    while (!mbarrier_try_wait(barrier, parity)) {}
}

// Whether this is the lane of the warp that starts what the device goes on with by itself. The compiler knows that it is one: of
// another condition it makes a loop over lanes for each copy. By a whole warp.
PTX bool is_elected() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected)::"memory");
    return elected != 0;
}

// ---- Copies to shared memory that the device goes on with by itself; `barrier` counts their bytes.
// Before such a copy, or a product, touches what threads wrote: they do this and meet.
PTX void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// All of it multiples of 16 bytes.
PTX void copy_bulk(void* shared, const void* global, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
// A matrix in global memory and the tile of it that one copy brings, made by the driver (cuTensorMapEncodeTiled). A kernel
// takes it as `const __grid_constant__ TensorMap`.
struct __align__(64) TensorMap {
    u64 opaque[16];
};
// The tile whose first element is this one; what is outside of the matrix becomes zero. `shared` is aligned to 128 bytes,
// with a swizzle to 1,024.
PTX void copy_tile(void* shared, const TensorMap& map, int column, int row, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
            "r"(shared_address(shared)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// ---- Registers of each thread of a warpgroup from here on, by all its warps: less than before, which others may take, or
// more, once there are so many. From 24 to 256, a multiple of 8.
template <int COUNT>
PTX void registers_give() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
PTX void registers_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Products of four warps, the first a multiple of 4: d += a · bᵀ, or = without `accumulate`. a has 64 rows and b as
// many as d has columns, each of 32 bytes: 16 elements of 16 bits, or 32 bytes. A thread of the four warps holds half as
// many sums as there are columns: sum i is row 16 · warp + lane / 4, + 8 for odd i / 2, and column 8 (i / 4) +
// 2 (lane % 4) + i % 2.
//
// The order: fence, products, commit, wait, and only then d may be touched; the fence comes after the registers were.

// A matrix in shared memory. Without a swizzle it lies in pieces of 8 rows of 16 bytes, one row after another: `leading`
// bytes from a piece to that of the next 16 columns' bytes, `stride` to that of the next 8 rows. With a swizzle, in rows
// of as many bytes, as `copy_tile` leaves them: `stride` bytes from 8 rows to the next 8, `leading` means nothing, and
// 32 bytes further on lie the next columns.
//
// By columns, a matrix lies as its transpose: 16 rows, each of a column of the matrix. Without a swizzle in pieces of 8 of them
// and 16 bytes: `leading` bytes to the next 8, `stride` to the next 16 bytes. With a swizzle, `stride` bytes from 8 of them to
// the next 8, and `leading` from so many bytes as a row has to the next.
enum Swizzle : u32 { SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32 };
PTX u64 wgmma_matrix(const void* shared, u32 leading, u32 stride, Swizzle swizzle) {
    return (u64)(shared_address(shared) >> 4 & 0x3fff) | (u64)(leading >> 4 & 0x3fff) << 16 |
           (u64)(stride >> 4 & 0x3fff) << 32 | (u64)swizzle << 62;
}

// The same matrix from so many columns of 16 bits on, a multiple of 16, within the bytes of the swizzle.
PTX u64 wgmma_columns(u64 matrix, u32 columns) { return matrix + columns / 8; }

PTX void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Makes one group of the products since the last.
PTX void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all groups but the last LEFT.
template <int LEFT>
PTX void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// The compiler moves no use of these registers across this place: it does not know that products write d until the wait, and
// that a fence covers what is before it.
template <int N>
PTX void pin_registers(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
PTX void pin_registers(u32 (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// The value is computed before a wait that comes next. (ptxas moves waits before arithmetic that touches no registers of
// products, which then run while nothing is computed. It does not move them before a store, so the value is stored.)
PTX void compute_before_wait(float value, float* shared) {
    asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(shared_address(shared)), "f"(value) : "memory");
}

// The registers of d in an instruction, and as its operands.
#define R4 "%0, %1, %2, %3"
#define R8 R4 ", %4, %5, %6, %7"
#define R16 R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define R32 R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R64                                                                                                 \
    R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
        "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define R128                                                                                                      \
    R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "  \
        "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "      \
        "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
        "%120, %121, %122, %123, %124, %125, %126, %127"
#define D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define D8(c, i) D4(c, i), D4(c, i + 4)
#define D16(c, i) D8(c, i), D8(c, i + 8)
#define D32(c, i) D16(c, i), D16(c, i + 16)
#define D64(c, i) D32(c, i), D32(c, i + 32)
#define D128(c, i) D64(c, i), D64(c, i + 64)

// With so many sums of a thread, hence columns. The operands' numbers come after those of d; `signs` is what floats have
// besides: neither is negated, nor lies b (and a) by columns, but for the b of `wgmma_f16_by_columns`.
#define WGMMA_SHARED(name, T, c, shape, types, sums, columns, n0, n1, n2, n3, n4, n5, signs)                          \
    PTX void name(T(&d)[sums], u64 a, u64 b, bool accumulate) {                                                       \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" n2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns shape  \
                     types " {" R##sums "}, %" n0 ", %" n1 ", p" signs ";\n}"                                         \
                     : D##sums(c, 0)                                                                                  \
                     : "l"(a), "l"(b), "r"((u32)accumulate)                                                           \
                     : "memory");                                                                                     \
    }
#define WGMMA_REGISTERS(name, T, c, shape, types, sums, columns, n0, n1, n2, n3, n4, n5, signs)                       \
    PTX void name(T(&d)[sums], const u32 (&a)[4], u64 b, bool accumulate) {                                           \
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %" n5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns shape  \
                     types " {" R##sums "}, {%" n0 ", %" n1 ", %" n2 ", %" n3 "}, %" n4 ", p" signs ";\n}"            \
                     : D##sums(c, 0)                                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate)                       \
                     : "memory");                                                                                     \
    }
#define WGMMA_FLOAT(c) "+f"(c)
#define WGMMA_INT(c) "+r"(c)
#define WGMMAS(sums, columns, ...)                                                                                      \
    WGMMA_SHARED(wgmma_bf16, float, WGMMA_FLOAT, "k16", ".f32.bf16.bf16", sums, columns, __VA_ARGS__, ", 1, 1, 0, 0")   \
    WGMMA_REGISTERS(wgmma_bf16, float, WGMMA_FLOAT, "k16", ".f32.bf16.bf16", sums, columns, __VA_ARGS__, ", 1, 1, 0")   \
    WGMMA_SHARED(wgmma_f16, float, WGMMA_FLOAT, "k16", ".f32.f16.f16", sums, columns, __VA_ARGS__, ", 1, 1, 0, 0")      \
    WGMMA_REGISTERS(wgmma_f16, float, WGMMA_FLOAT, "k16", ".f32.f16.f16", sums, columns, __VA_ARGS__, ", 1, 1, 0")      \
    WGMMA_REGISTERS(wgmma_f16_by_columns, float, WGMMA_FLOAT, "k16", ".f32.f16.f16", sums, columns, __VA_ARGS__, ", 1, 1, 1") \
    WGMMA_SHARED(wgmma_s8, int, WGMMA_INT, "k32", ".s32.s8.s8", sums, columns, __VA_ARGS__, "")                         \
    WGMMA_REGISTERS(wgmma_s8, int, WGMMA_INT, "k32", ".s32.s8.s8", sums, columns, __VA_ARGS__, "")
WGMMAS(4, "8", "4", "5", "6", "7", "8", "9")
WGMMAS(8, "16", "8", "9", "10", "11", "12", "13")
WGMMAS(16, "32", "16", "17", "18", "19", "20", "21")
WGMMAS(32, "64", "32", "33", "34", "35", "36", "37")
WGMMAS(64, "128", "64", "65", "66", "67", "68", "69")
WGMMAS(128, "256", "128", "129", "130", "131", "132", "133")

#undef R4
#undef R8
#undef R16
#undef R32
#undef R64
#undef R128
#undef D4
#undef D8
#undef D16
#undef D32
#undef D64
#undef D128
#undef WGMMA_SHARED
#undef WGMMA_REGISTERS
#undef WGMMA_FLOAT
#undef WGMMA_INT
#undef WGMMAS
#endif
#undef PTX
