// Activations as matrix operations read them: see `act.rs`. A warp takes 32 elements of a row.
#include "act.h"

// Twin of `QuantiseParams` in `gpu/cuda/quantise.rs`.
struct QuantiseParams {
    // Elements from a row of X to the next.
    u64 x_stride;
    u32 rows, cols;
};

// Over the 16 lanes of a half.
DEV i32 half_sum(i32 value) {
    for (int mask = 8; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

KERNEL(quantise)(IN(float, x, 0), OUT(float, exact, 1), OUT(Int8Block, int8, 2), OUT(u32, bf16, 3),
                 PARAMS(QuantiseParams, p, 4)) {
    dependency_launch();
    dependency_wait();
    u32 blocks = (p.cols + 31) / 32;
    u64 at = u64(block_x()) * (block_width() / 32) + warp();
    // The whole warp, so its lanes meet below.
    if (at >= u64(p.rows) * blocks) return;
    u32 row = at / blocks, column = at % blocks * 32 + lane();
    bool inside = column < p.cols;
    float value = inside ? x[row * p.x_stride + column] : 0.0f;
    if (inside) exact[u64(row) * p.cols + column] = value;
    if (int8 == nullptr) return;

    float next = shuffle_xor(value, 1);
    if (lane() % 2 == 0) bf16[at * 16 + lane() / 2] = pack_bf16(value, next);

    // A block that is not finite gets a NaN as its scale: it must show in the output, not vanish.
    float unsafe = value * 0.0f == 0.0f ? 0.0f : 1.0f;
    bool finite = warp_max(unsafe) == 0.0f;
    float largest = finite ? warp_max(fabsf(value)) : 0.0f;
    float scale = finite ? largest / 127.0f : __uint_as_float(0x7fc00000u);
    // A block of denormals has no inverse in f32; it quantises to zeros.
    float inverse = finite && largest > 1e-36f ? 127.0f / largest : 0.0f;
    // To nearest, ties to even, as adding 1.5 · 2^23 does.
    i32 q = finite ? __float2int_rn(__fmul_rn(value, inverse)) : 0;
    i32 sum = half_sum(q), other = shuffle_xor(sum, 16);
    u32 word = (static_cast<u32>(q) & 0xff) << 8 * (lane() % 4);
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    Int8Block* block = int8 + at;
    if (lane() % 4 == 0) block->q[lane() / 4] = word;
    if (lane() % 16 == 0) {
        block->half_sums[lane() / 16] = sum;
        block->scaled_half_sums[lane() / 16] = __fmul_rn(scale, static_cast<float>(sum));
        block->padding[lane() / 16] = 0;
    }
    if (lane() == 0) {
        block->scale = scale;
        block->sum = __fmul_rn(scale, static_cast<float>(sum + other));
    }
}
