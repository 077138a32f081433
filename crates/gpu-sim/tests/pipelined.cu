// A product of matrices as compute capability 9.0 wants it: c = a · bᵀ, both by rows. One warp copies tiles into a ring;
// four warps multiply them. `full` and `empty` count what has come to a stage and who has done with it.
//
// Two kernels: tiles with a swizzle by way of tensor maps; and lines of bytes without, a from registers.
#include "hopper.cuh"

#ifndef GPU_SIM
#define KERNEL(name) extern "C" __global__ void name
#define SHARED(T, name, count) __shared__ T name[count]
#define DYNAMIC_SHARED(T, name)            \
    extern __shared__ uint4 dynamic_shared[]; \
    T* name = (T*)dynamic_shared
#endif

// Rows of c in a block, columns of c, bytes of a row of a tile, tiles under way, threads that multiply, all threads.
enum { M = 64, N = 64, ROW = 128, STAGES = 3, CONSUMERS = 128, THREADS = 160 };
struct Stage {
    u8 a[M * ROW], b[N * ROW];
};

static __device__ u32 lane() { return threadIdx.x % 32; }

// Sum i of a thread goes to its place.
static __device__ void store(SUM* c, const SUM (&d)[N / 2], u32 columns) {
    u32 row = blockIdx.x * M + threadIdx.x / 32 * 16 + lane() / 4, column = blockIdx.y * N + 2 * (lane() % 4);
    for (u32 i = 0; i < N / 2; i++) c[(row + i / 2 % 2 * 8) * (u64)columns + column + i / 4 * 8 + i % 2] = d[i];
}

// a and c have multiples of 64 rows, c a multiple of 64 columns; `bytes` of a row of a and b are a multiple of 128.
KERNEL(tiles)(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, SUM* c, u32 bytes, u32 columns) {
    DYNAMIC_SHARED(u8, memory);
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    // The swizzle's pattern begins at multiples of 1,024.
    Stage* stages = (Stage*)(memory + (1024 - shared_address(memory) % 1024) % 1024);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1);
        for (int i = 0; i < STAGES; i++) mbarrier_init(empty + i, CONSUMERS);
        fence_async();
    }
    __syncthreads();
    dependency_wait();
    u32 rounds = bytes / ROW, elements = ROW / sizeof(ELEMENT);

    if (threadIdx.x >= CONSUMERS) {
        if (lane() != 0) return;
        for (u32 round = 0; round < rounds; round++) {
            u32 at = round % STAGES, parity = round / STAGES % 2;
            mbarrier_wait(empty + at, parity ^ 1);
            mbarrier_arrive_expect_tx(full + at, sizeof(Stage));
            copy_tile(stages[at].a, a, round * elements, blockIdx.x * M, full + at);
            copy_tile(stages[at].b, b, round * elements, blockIdx.y * N, full + at);
        }
        return;
    }

    SUM d[N / 2];
    for (u32 i = 0; i < N / 2; i++) d[i] = 0;
    for (u32 round = 0; round < rounds; round++) {
        u32 at = round % STAGES, parity = round / STAGES % 2;
        mbarrier_wait(full + at, parity);
        const Stage* stage = stages + at;
        wgmma_fence();
        for (u32 k = 0; k < ROW; k += 32) {
            u64 left = wgmma_matrix(stage->a + k, 0, 8 * ROW, SWIZZLE_128);
            u64 right = wgmma_matrix(stage->b + k, 0, 8 * ROW, SWIZZLE_128);
            MULTIPLY(d, left, right, true);
        }
        wgmma_commit();
        wgmma_wait<0>();
        mbarrier_arrive(empty + at);
    }
    store(c, d, columns);
}

// Lines of a stage are copied one by one. Consumers take a into registers, and put b into pieces of 8 rows of 16 bytes.
KERNEL(lines)(const u8* a, const u8* b, SUM* c, u32 bytes, u32 columns) {
    DYNAMIC_SHARED(u8, memory);
    SHARED(u64, full, STAGES);
    SHARED(u64, empty, STAGES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1);
        for (int i = 0; i < STAGES; i++) mbarrier_init(empty + i, CONSUMERS / 32);
        fence_async();
    }
    __syncthreads();
    Stage* stages = (Stage*)memory;
    u8* pieces = (u8*)(stages + STAGES);
    dependency_wait();
    u32 rounds = bytes / ROW, warp = threadIdx.x / 32;

    if (threadIdx.x >= CONSUMERS) {
        for (u32 round = 0; round < rounds; round++) {
            u32 at = round % STAGES, parity = round / STAGES % 2;
            mbarrier_wait(empty + at, parity ^ 1);
            if (lane() == 0) mbarrier_arrive_expect_tx(full + at, sizeof(Stage));
            __syncwarp();
            for (u32 row = lane(); row < M; row += 32) {
                u64 from = (u64)round * ROW;
                copy_bulk(stages[at].a + row * ROW, a + (blockIdx.x * M + row) * (u64)bytes + from, ROW, full + at);
                copy_bulk(stages[at].b + row * ROW, b + (blockIdx.y * N + row) * (u64)bytes + from, ROW, full + at);
            }
        }
        named_barrier_arrive(3, THREADS);
        return;
    }

    SUM d[N / 2];
    for (u32 i = 0; i < N / 2; i++) d[i] = 0;
    for (u32 round = 0; round < rounds; round++) {
        u32 at = round % STAGES, parity = round / STAGES % 2, registers[ROW / 32][4];
        mbarrier_wait(full + at, parity);
        const Stage* stage = stages + at;
        for (u32 i = threadIdx.x; i < N * ROW / 16; i += CONSUMERS) {
            u32 row = i % N, part = i / N;
            *(uint4*)(pieces + part * (N * 16) + row * 16) = *(const uint4*)(stage->b + row * ROW + part * 16);
        }
        for (u32 i = 0; i < ROW / 8; i++) {
            u32 row = 16 * warp + lane() / 4 + 8 * (i % 2), column = 16 * (i / 2) + 4 * (lane() % 4);
            registers[i / 4][i % 4] = *(const u32*)(stage->a + row * ROW + column);
        }
        __syncwarp();
        if (lane() == 0) mbarrier_arrive(empty + at);
        fence_async();
        named_barrier_sync(1, CONSUMERS);
        wgmma_fence();
        for (u32 k = 0; k < ROW / 32; k++) {
            u64 right = wgmma_matrix(pieces + k * (N * 32), N * 16, 128, SWIZZLE_NONE);
            MULTIPLY(d, registers[k], right, true);
        }
        wgmma_commit();
        wgmma_wait<0>();
        // A warp waits for its own part; others may still read the pieces.
        named_barrier_sync(2, CONSUMERS);
    }
    // The barriers' memory is for something else once nobody uses them.
    named_barrier_sync(3, THREADS);
    if (threadIdx.x < STAGES) {
        mbarrier_inval(full + threadIdx.x);
        mbarrier_inval(empty + threadIdx.x);
        full[threadIdx.x] = 0;
    }
    store(c, d, columns);
}
