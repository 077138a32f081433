// Products of f32 weights with rows of f32 activations: routers, whose logits must not be rounded. The order of each sum is that of
// the kernel, the weight's shape and the number of shares.
#include "device.h"

#include "GemmF32Params"

DEV float4 read_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
DEV void add_products(float& sum, float4 a, float4 b) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    sum = fmaf(a.w, b.w, sum);
}

// ---- Few rows. A thread has every 256th four columns to itself, and sums of FEW_ROWS × FEW_OUTPUTS of Y, so that it waits
// for memory once or twice; lanes and then warps add theirs.
#define FEW_ROWS 8
#define FEW_OUTPUTS 4
#define FEW_SUMS (FEW_ROWS * FEW_OUTPUTS)
#define FEW_THREADS 256

// Adds up over the lanes: lane i gets sum i. Halves of the sums are exchanged for halves of the lanes.
DEV void add_lanes(float (&sums)[FEW_SUMS]) {
#pragma unroll
    for (int half = FEW_SUMS / 2; half > 0; half /= 2) {
        int mask = half;
        bool upper = here.lane() & mask;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float keep = upper ? sums[i + half] : sums[i], give = upper ? sums[i] : sums[i + half];
            sums[i] = keep + shuffle_xor(give, mask);
        }
    }
}

KERNEL_BOUNDED(gemm_f32_few, FEW_THREADS, 2)
(IN(u8, weight, 0), IN(float, x, 1), IN(float, bias, 2), OUT(float, y, 3), PARAMS(GemmF32Params, p, 4)) {
    SHARED(float, parts, FEW_THREADS / 32 * FEW_SUMS);
    dependency_launch();
    u32 row = here.block_x() * FEW_ROWS, output = here.block_y() * FEW_OUTPUTS;
    float sums[FEW_SUMS] = {};
    dependency_wait();
    for (u32 at = 4 * here.thread_x(); at < p.cols; at += 4 * FEW_THREADS) {
        float4 columns[FEW_ROWS];
        // Out-of-range rows are clamped to the last.
#pragma unroll
        for (u32 i = 0; i < FEW_ROWS; i++) columns[i] = read_four(x + u64(min(row + i, p.rows - 1)) * p.cols + at);
#pragma unroll
        for (u32 o = 0; o < FEW_OUTPUTS; o++) {
            const u8* of_output = weight + min(output + o, p.outputs - 1) * p.row_bytes;
            float4 w = read_four(reinterpret_cast<const float*>(of_output) + at);
#pragma unroll
            for (u32 i = 0; i < FEW_ROWS; i++) add_products(sums[i * FEW_OUTPUTS + o], w, columns[i]);
        }
    }
    add_lanes(sums);
    parts[here.thread_x()] = sums[0];
    barrier();
    u32 i = here.thread_x();
    if (i >= FEW_SUMS || row + i / FEW_OUTPUTS >= p.rows || output + i % FEW_OUTPUTS >= p.outputs) return;
    float sum = 0.0f;
    for (u32 warp = 0; warp < FEW_THREADS / 32; warp++) sum += parts[warp * FEW_SUMS + i];
    output += i % FEW_OUTPUTS;
    y[(row + i / FEW_OUTPUTS) * p.y_stride + output] = sum + (bias == nullptr ? 0.0f : bias[output]);
}

// ---- Many rows. A block computes ROWS × OUTPUTS of Y, a lane some rows of some outputs. Columns go through shared memory in
// steps, of which the next is on its way in registers. Blocks along the grid's z share the columns; Y has one place for each
// share, in which rows follow one another (`gemm_sum.cu` adds them).
#define THREADS 128

template <u32 ROWS_, u32 OUTPUTS_, u32 STEP_, u32 LANE_ROWS_>
struct Tile {
    static constexpr u32 ROWS = ROWS_, OUTPUTS = OUTPUTS_, STEP = STEP_, LANE_ROWS = LANE_ROWS_;
    // Neighbouring lanes have neighbouring outputs, so that eight of them read eight rows of the weight.
    static constexpr u32 ACROSS = 16, LANE_OUTPUTS = OUTPUTS / ACROSS;
    // From a row in shared memory to the next: four more keep quarters of a warp on different banks.
    static constexpr u32 STRIDE = STEP + 4;
    // Rows of both tiles, one after another, and how many of a step's fours a thread copies.
    static constexpr u32 BOTH = ROWS + OUTPUTS, COPIES = BOTH * (STEP / 4) / THREADS;
    static_assert(ROWS * OUTPUTS == THREADS * LANE_ROWS * LANE_OUTPUTS, "a lane's part");
};

// What a thread copies: some rows of X and some of the weight, the same four columns of all.
template <class T>
struct Copier {
    const float *x, *w;
    u64 w_stride;
    u32 cols, end, rows, outputs, line, column;

    // Zeros past the last row and the share's last column.
    DEV void load(u32 first, float4 (&fours)[T::COPIES]) const {
#pragma unroll
        for (u32 i = 0; i < T::COPIES; i++) {
            u32 row = line + i * (T::BOTH / T::COPIES), of_w = row - T::ROWS;
            bool is_x = row < T::ROWS, there = first + column < end && (is_x ? row < rows : of_w < outputs);
            const float* from = is_x ? x + u64(row) * cols : w + of_w * w_stride;
            fours[i] = there ? read_four(from + first + column) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
    DEV void store(const float4 (&fours)[T::COPIES], float* tile) const {
#pragma unroll
        for (u32 i = 0; i < T::COPIES; i++)
            *reinterpret_cast<float4*>(tile + (line + i * (T::BOTH / T::COPIES)) * T::STRIDE + column) = fours[i];
    }
};

template <class T>
DEV void multiply(const u8* weight, const float* x, const float* bias, float* y, const GemmF32Params& p, float* tiles) {
    u32 row = here.block_x() * T::ROWS, output = here.block_y() * T::OUTPUTS;
    const float* w = reinterpret_cast<const float*>(weight + output * p.row_bytes);
    u32 rows = min(p.rows - row, T::ROWS + 0), outputs = min(p.outputs - output, T::OUTPUTS + 0);
    const u32 share = here.block_z(), shares = here.grid_z(), steps = (p.cols + T::STEP - 1) / T::STEP;
    const u32 begin = steps * share / shares * T::STEP, end = min(steps * (share + 1) / shares * T::STEP, p.cols);
    y += u64(share) * p.rows * p.y_stride;
    Copier<T> copier = {x + u64(row) * p.cols, w, p.row_bytes / sizeof(float), p.cols, end, rows, outputs,
                        here.thread_x() / (T::STEP / 4), here.thread_x() % (T::STEP / 4) * 4};
    u32 own_row = here.thread_x() / T::ACROSS * T::LANE_ROWS, own_output = here.thread_x() % T::ACROSS;
    float sums[T::LANE_ROWS][T::LANE_OUTPUTS] = {};
    float4 next[T::COPIES];
    copier.load(begin, next);
    for (u32 first = begin; first < end; first += T::STEP) {
        float* tile = tiles + first / T::STEP % 2 * (T::BOTH * T::STRIDE);
        // The step before last, whose place this takes, has been used by all who have passed the last barrier.
        copier.store(next, tile);
        barrier();
        copier.load(first + T::STEP, next);
        const float *of_x = tile + own_row * T::STRIDE, *of_w = tile + (T::ROWS + own_output) * T::STRIDE;
#pragma unroll 4
        for (u32 k = 0; k < T::STEP; k += 4) {
            float4 b[T::LANE_OUTPUTS];
#pragma unroll
            for (u32 o = 0; o < T::LANE_OUTPUTS; o++) b[o] = read_four(of_w + o * T::ACROSS * T::STRIDE + k);
#pragma unroll
            for (u32 i = 0; i < T::LANE_ROWS; i++) {
                float4 a = read_four(of_x + i * T::STRIDE + k);
#pragma unroll
                for (u32 o = 0; o < T::LANE_OUTPUTS; o++) add_products(sums[i][o], a, b[o]);
            }
        }
    }
#pragma unroll
    for (u32 o = 0; o < T::LANE_OUTPUTS; o++) {
        u32 at = own_output + T::ACROSS * o;
        if (at >= outputs) continue;
        float add = bias == nullptr ? 0.0f : bias[output + at];
#pragma unroll
        for (u32 i = 0; i < T::LANE_ROWS; i++)
            if (own_row + i < rows) y[(row + own_row + i) * p.y_stride + output + at] = sums[i][o] + add;
    }
}

// For each entry: a tile, and the blocks on a multiprocessor.
#define GEMM_F32(name, TILE, blocks)                                                                              \
    KERNEL_BOUNDED(name, THREADS, blocks)                                                                         \
    (IN(u8, weight, 0), IN(float, x, 1), IN(float, bias, 2), OUT(float, y, 3), PARAMS(GemmF32Params, p, 4)) {     \
        SHARED(float4, tiles, 2 * TILE::BOTH * TILE::STRIDE / 4);                                                 \
        dependency_launch();                                                                                      \
        dependency_wait();                                                                                        \
        multiply<TILE>(weight, x, bias, y, p, reinterpret_cast<float*>(tiles));                                   \
    }

typedef Tile<32, 32, 64, 4> Small;
typedef Tile<64, 64, 32, 8> Large;
GEMM_F32(gemm_f32, Small, 4)
GEMM_F32(gemm_f32_large, Large, 3)
