// Activations as matrix operations read them: see `act.rs`. Eight lanes take 32 elements of a row, four each.
#include "act.h"

// Twin of `QuantiseParams` in `gpu/cuda/matmul.rs`.
struct QuantiseParams {
    // Elements from a row of X to the next.
    u64 x_stride;
    u32 rows, cols;
    // Rows of X and of the copy can be read by four elements.
    u32 wide, padding;
};

// Over the 4 or 8 lanes that share a half or a block.
DEV i32 half_sum(i32 value) {
    value += shuffle_xor(value, 1);
    return value + shuffle_xor(value, 2);
}
DEV float block_max(float value) {
    for (int mask = 4; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

KERNEL(quantise)(IN(float, x, 0), OUT(float, exact, 1), OUT(Int8Block, int8, 2), OUT(u32, bf16, 3),
                 PARAMS(QuantiseParams, p, 4)) {
    dependency_launch();
    dependency_wait();
    u32 blocks = (p.cols + 31) / 32, part = lane() % 8;
    u64 at = (u64(block_x()) * block_width() + thread_x()) / 8;
    // The lanes meet below; those past the last block work on it again, and write nothing.
    bool live = at < u64(p.rows) * blocks;
    u64 row = live ? at / blocks : 0;
    u32 column = (live ? u32(at % blocks) : 0) * 32 + 4 * part;
    const float* from = x + row * p.x_stride + column;
    float* copy = exact + row * p.cols + column;
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (p.wide && column + 4 <= p.cols) {
        float4 four = *reinterpret_cast<const float4*>(from);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        if (live) *reinterpret_cast<float4*>(copy) = four;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (column + i >= p.cols) continue;
            v[i] = from[i];
            if (live) copy[i] = v[i];
        }
    }
    if (int8 == nullptr) return;

    // A block that is not finite gets a NaN as its scale: it must show in the output, not vanish.
    float unsafe = 0.0f, most = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (!(v[i] * 0.0f == 0.0f)) unsafe = 1.0f;
        most = fmaxf(most, fabsf(v[i]));
    }
    bool finite = block_max(unsafe) == 0.0f;
    most = block_max(most);
    float largest = finite ? most : 0.0f;
    float scale = finite ? largest / 127.0f : __uint_as_float(0x7fc00000u);
    // A block of denormals has no inverse in f32; it quantises to zeros.
    float inverse = finite && largest > 1e-36f ? 127.0f / largest : 0.0f;
    u32 word = 0;
    i32 sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        // To nearest, ties to even, as adding 1.5 · 2^23 does.
        i32 q = finite ? __float2int_rn(__fmul_rn(v[i], inverse)) : 0;
        word |= (static_cast<u32>(q) & 0xff) << 8 * i;
        sum += q;
    }
    sum = half_sum(sum);
    i32 other = shuffle_xor(sum, 4);
    if (!live) return;
    Int8Block* block = int8 + at;
    block->q[part] = word;
    // Whole blocks, with zeros past the last column.
    uint2 pair = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
    *reinterpret_cast<uint2*>(bf16 + 16 * at + 2 * part) = pair;
    if (part % 4 == 0) {
        block->half_sums[part / 4] = sum;
        block->scaled_half_sums[part / 4] = __fmul_rn(scale, static_cast<float>(sum));
        block->padding[part / 4] = 0;
    }
    if (part == 0) {
        block->scale = scale;
        block->sum = __fmul_rn(scale, static_cast<float>(sum + other));
    }
}
