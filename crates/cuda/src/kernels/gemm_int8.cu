// Weights times a few rows of activations on tensor cores, in bytes, dense or of experts. Between `gemv.cu`, whose work grows
// with the rows of X, and `gemm.cu`, whose tiles are large.
//
// A block multiplies some times 16 outputs with up to 8 rows of X, or 16 in two tiles. Its warps share the columns, 256 in turns: a warp loads 16
// weight rows' spans of 256 columns to registers, one step ahead, unpacks them to bytes and scales in shared memory, and
// multiplies them (`mma` m16n8k32) with the 256 columns of X, which stay in registers for all outputs of the block. Products of
// the 16 or 32 columns with one scale are whole numbers, scaled and added in f32. The warps' sums are added in order at the
// end, so a result depends on the weight's shape alone.
//
// An expert with more rows of X is read again for every 8 or 16, mostly from the second-level cache; of many rows
// `gemm_int8_tile.cu` has the same sums.
//
// Compiled for a format (FORMAT), for one weight or for gate and up (GATED 0 or 1), and for tiles of 8 rows of X that share
// unpacked weights (ROW_TILES 1 or 2).
#define TOKENS (8 * ROW_TILES)
#include "act.h"
#include "format.h"
#include "gated_out.cuh"
#include "int8_sums.cuh"
#include "row_chunks.cuh"

typedef FORMAT Format;

#if __CUDA_ARCH__ >= 800

// Columns that a warp takes at once; their blocks of 32, spans, and groups with one scale in a row of weights.
constexpr u32 COLUMNS = 256, BLOCKS = COLUMNS / 32, SPANS = COLUMNS / 16 / Format::PIECES, GROUPS = COLUMNS / Format::SCALED;
// Groups in a block of 32.
constexpr u32 PARTS = GROUPS / BLOCKS;
// Spans of 16 rows that a lane loads.
constexpr u32 LOADS = 16 * SPANS / 32;
// Blocks whose products are asked for before the first is used: it comes some 30 cycles later.
constexpr u32 AHEAD = 4;
// Groups of the formats that have most of them.
constexpr u32 MOST_GROUPS = COLUMNS / 16;

// Blocks of a multiprocessor that the registers must suffice for.
constexpr int LEAST_BLOCKS = PARTS == 2 && ROW_TILES == 2 || Format::HAS_MIN && (PARTS == 2 || sizeof(Format::Raw) > 48) ? 2 : 3;

// Where columns 16 · `at` of a row's codes lie in it. What eight lanes store or load at once lies in different banks: the
// same columns of eight rows, and what the spans of one or two rows are unpacked to.
DEV u32 place(u32 row, u32 at) { return 16 * (at ^ (at >> 3 & 1) << 1 ^ __brev(row) >> 29); }

// A warp's shared memory; the sums of all warps follow. Its size is `WARP_SCRATCH` in `plan/int8_few.rs`.
struct WarpScratch {
    u8 codes[16][COLUMNS];
    // Scale and minimum of each row, and a row more, so that neighbours lie in different banks.
    float2 scales[MOST_GROUPS][17];
    // Each row's scale, and the other number that the format wants: with minima its scaled sum; or WHOLE − ZERO · its sum.
    float2 columns[MOST_GROUPS][TOKENS];
};
// Sums of 16 outputs and 8 rows of X, as `mma` gives them: of lane 4g + t, outputs g and g + 8 of rows 2t and 2t + 1.
struct alignas(16) Sums {
    float of[32][4];
};

struct Multiplier {
    WarpScratch* scratch;
    // Row lane / 4 of each tile of X, and its blocks.
    const Int8Block* x[ROW_TILES];
    u32 x_blocks;
    // Tiles that have rows.
    u32 tiles;
    // Their parts of the 256 columns.
    u32 b[ROW_TILES][BLOCKS][2];

    // The lane's row of the 16 for its load `i`, and its span.
    static DEV u32 row(u32 i) { return here.lane() / SPANS + 32 / SPANS * i; }
    static DEV u32 span() { return here.lane() % SPANS; }

    // Takes columns 256 · `chunk` … of a tile of X. Past its end all is zero.
    DEV void take(u32 chunk, u32 tile) {
        u32 t = here.lane() % 4, g = here.lane() / 4;
#pragma unroll
        for (u32 j = 0; j < BLOCKS; j++) {
            u32 at = chunk * BLOCKS + j;
            b[tile][j][0] = at < x_blocks ? x[tile][at].q[t] : 0;
            b[tile][j][1] = at < x_blocks ? x[tile][at].q[4 + t] : 0;
        }
#pragma unroll
        for (u32 i = 0; i < GROUPS / 4; i++) {
            u32 group = 4 * i + t, at = chunk * BLOCKS + group / PARTS, half = group % PARTS;
            float scale = 0.0f, other = Format::HAS_MIN ? 0.0f : __int_as_float(WHOLE);
            if (at < x_blocks) {
                const Int8Block* block = x[tile] + at;
                scale = block->scale;
                if (Format::HAS_MIN) {
                    other = PARTS == 1 ? block->sum : block->scaled_half_sums[half];
                } else if (Format::ZERO != 0) {
                    int sum = PARTS == 1 ? block->half_sums[0] + block->half_sums[1] : block->half_sums[half];
                    other = __int_as_float(WHOLE - Format::ZERO * sum);
                }
            }
            scratch->columns[group][8 * tile + g] = make_float2(scale, other);
        }
    }

    DEV void keep_scale(const Format::Raw& raw, int piece, u32 group, u32 row) const {
        ScaleMin of = scale_and_min<Format>(Format::scale(raw, piece));
        scratch->scales[group][row] = make_float2(of.scale, of.min);
    }

    // Brings weights to shared memory as codes and scales.
    DEV void unpack(const Format::Raw (&raw)[LOADS]) const {
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
#pragma unroll
            for (int piece = 0; piece < Format::PIECES; piece++) {
                u32 words[4];
                Format::codes(raw[i], piece, words);
                u8* codes = scratch->codes[row(i)] + place(row(i), Format::at(span(), piece));
                *reinterpret_cast<uint4*>(codes) = make_uint4(words[0], words[1], words[2], words[3]);
            }
            if (Format::SCALED == 16) {
#pragma unroll
                for (int piece = 0; piece < Format::PIECES; piece++)
                    keep_scale(raw[i], piece, Format::at(span(), piece), row(i));
            } else if (SPANS < GROUPS) {
                // A span has several groups, each with two of its pieces or with one of its and one of another span's. The
                // group's first 16 columns bring the scale.
#pragma unroll
                for (int piece = 0; piece < Format::PIECES; piece++)
                    if (Format::at(span(), piece) % 2 == 0) keep_scale(raw[i], piece, Format::at(span(), piece) / 2, row(i));
            } else if (SPANS == GROUPS) {
                // Each of so many spans' lanes unpacks the scale of one group.
                int piece = Format::at(span(), 0) / 2 == span() ? 0 : 1;
                keep_scale(raw[i], piece, span(), row(i));
            } else if (span() % 2 == 0) {
                keep_scale(raw[i], 0, span() / 2, row(i));
            }
        }
    }

    // Adds the products with blocks `j` … of a tile, whose codes are in `a`, to its sums.
    DEV void add(u32 tile, u32 j, const u32 (&a)[AHEAD][4], float4& f) const {
        u32 t = here.lane() % 4, g = here.lane() / 4;
        int d[AHEAD * PARTS][4];
        float4 column[AHEAD * PARTS];
#pragma unroll
        for (u32 i = 0; i < AHEAD * PARTS; i++) {
            u32 block = j + i / PARTS, half = i % PARTS;
            column[i] = *reinterpret_cast<const float4*>(&scratch->columns[j * PARTS + i][8 * tile + 2 * t]);
            d[i][0] = d[i][2] = Format::ZERO != 0 && !Format::HAS_MIN ? __float_as_int(column[i].y) : WHOLE;
            d[i][1] = d[i][3] = Format::ZERO != 0 && !Format::HAS_MIN ? __float_as_int(column[i].w) : WHOLE;
            // For one half of a block's columns, the other half of X is zeros.
            const u32(&own)[2] = b[tile][block];
            u32 part[2] = {PARTS == 2 && half == 1 ? 0 : own[0], PARTS == 2 && half == 0 ? 0 : own[1]};
            mma_m16n8k32_s8(d[i], a[i / PARTS], part);
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD * PARTS; i++) {
            float2 low = scratch->scales[j * PARTS + i][g], high = scratch->scales[j * PARTS + i][g + 8];
            float4 c = column[i];
            add_scaled<Format>(d[i][0], {low.x, low.y}, c.x, c.y, f.x);
            add_scaled<Format>(d[i][1], {low.x, low.y}, c.z, c.w, f.y);
            add_scaled<Format>(d[i][2], {high.x, high.y}, c.x, c.y, f.z);
            add_scaled<Format>(d[i][3], {high.x, high.y}, c.z, c.w, f.w);
        }
    }
    // Adds the products with the 256 columns, each tile's to sums of its own.
    DEV void multiply(Sums* sums) const {
        float4 f[ROW_TILES];
#pragma unroll
        for (u32 tile = 0; tile < ROW_TILES; tile++) f[tile] = *reinterpret_cast<const float4*>(sums[tile].of[here.lane()]);
        const u8* codes = scratch->codes[here.lane() % 16];
#pragma unroll
        for (u32 j = 0; j < BLOCKS; j += AHEAD) {
            u32 a[AHEAD][4];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) ldmatrix_x4(a[i], codes + place(here.lane() % 16, 2 * (j + i) + here.lane() / 16));
#pragma unroll
            for (u32 tile = 0; tile < ROW_TILES; tile++)
                if (ROW_TILES == 1 || tile < tiles) add(tile, j, a, f[tile]);
        }
#pragma unroll
        for (u32 tile = 0; tile < ROW_TILES; tile++) *reinterpret_cast<float4*>(sums[tile].of[here.lane()]) = f[tile];
    }
};

// The outputs of a block, 16 for each of `slabs`. With gate and up there are as many slabs of up behind those of gate.
struct Slabs {
    const ProductParams& p;
    const u8 *weight, *up;
    u32 slabs, first;

    // A lane's words of 256 columns of 16 outputs. Out-of-range rows are clamped to the last.
    DEV void load(u32 expert, u32 chunk, u32 slab, Format::Raw (&raw)[LOADS]) const {
        bool second = GATED && slab >= slabs;
        const u8* matrix = (second ? up : weight) + expert * p.matrix_bytes;
        u32 output = first + 16 * (second ? slab - slabs : slab), span = chunk * SPANS + Multiplier::span();
#pragma unroll
        for (u32 i = 0; i < LOADS; i++) {
            Row row = {matrix + min(output + Multiplier::row(i), p.outputs - 1) * p.row_bytes, p.blocks};
            // A row may end within the 256: scales of zero.
            if (Format::BLOCK == COLUMNS || span < p.blocks * Format::SPANS)
                raw[i] = Format::load(row, span);
            else
                raw[i] = Format::Raw{};
        }
    }
    // Adds up what the warps found for rows `begin..end` of X: to Y, or with gate and up to `staged`, a row of X after another.
    DEV void join(u32 expert, u32 begin, u32 end, const Sums* sums, const float* const (&biases)[2], const Rows& rows,
                  const u32* missing, float* y, float* staged) const {
        const u32 warps = here.block_width() / 32, all = slabs * (GATED ? 2 : 1);
        for (u32 i = here.thread_x(); i < slabs * ROW_TILES * 128; i += here.block_width()) {
            // One of the four sums of a lane, of an output in the slab and a row of X in the tile.
            u32 part = i / 128, slab = part / ROW_TILES, tile = part % ROW_TILES;
            u32 at = i % 32, k = i / 32 % 4, o = at / 4 + 8 * (k / 2), t = 8 * tile + 2 * (at % 4) + k % 2;
            u32 output = first + 16 * slab + o;
            bool there = output < p.outputs && begin + t < end;
            float product[2] = {0.0f, 0.0f};
            for (u32 w = 0; w < warps; w++) {
                product[0] += sums[w * all * ROW_TILES + part].of[at][k];
                if (GATED) product[1] += sums[(w * all + slabs) * ROW_TILES + part].of[at][k];
            }
#pragma unroll
            for (int k = 0; k < 1 + GATED; k++)
                if (biases[k] != nullptr && there) product[k] += biases[k][expert * p.bias_stride + output];
            if (GATED) {
                float value = there ? activate(p.epilogue.activation, product[0], product[1]) : 0.0f;
                staged[t * slabs * 16 + 16 * slab + o] = value;
            } else if (there) {
                apply_epilogue(p.epilogue, y + output_row(rows, begin + t) * p.y_stride + output, missing[t] ? 0.0f : product[0]);
            }
        }
    }
    // Writes zeros to a row of Y without an expert.
    DEV void zero(u32 row, const Gated& out, Four* staged, float* y) const {
        if (GATED) {
            out.zero(staged, here.block_x() * slabs / 2, slabs / 2, here.block_width() / 32, row);
        } else {
            u32 stop = min(first + slabs * 16, p.outputs);
            for (u32 o = first + here.thread_x(); o < stop; o += here.block_width()) y[row * p.y_stride + o] = 0.0f;
        }
    }
};

// One weight: Y = epilogue(X · Wᵀ + bias). Gate and up: activation(gate · x + bias, up · x + bias), as it is, or as
// activations, or both; then a block has a multiple of 32 outputs. The grid's x counts blocks of outputs.
KERNEL_BOUNDED(gemm_int8, 128, LEAST_BLOCKS)
(IN(u8, weight, 0), IN(u8, up, 1), IN(Int8Block, x, 2), IN(u32, ids, 3), IN(u32, pairs, 4), IN(u32, tiles, 5),
 IN(u32, tile_count, 6), IN(float, bias, 7), IN(float, up_bias, 8), INOUT(float, y, 9), OUT(float, exact, 10),
 OUT(Int8Block, int8, 11), OUT(u32, bf16, 12), INOUT(u32, flag, 13), PARAMS(ProductParams, p, 14)) {
    DYNAMIC_SHARED(WarpScratch, scratches);
    SHARED(u32, missing, TOKENS);
    const u32 warps = here.block_width() / 32, slabs = p.cut, all = slabs * (GATED ? 2 : 1);
    const u32 chunks = (p.blocks * Format::BLOCK + COLUMNS - 1) / COLUMNS;
    // Sums of each warp, of gate and then of up, for 16 outputs and each tile.
    Sums* sums = reinterpret_cast<Sums*>(scratches + warps);
    if (tiles != nullptr) dependency_wait();
    dependency_launch();
    Slabs block = {p, weight, up, slabs, here.block_x() * slabs * 16};
    Rows rows = {ids, pairs, tiles, tile_count, flag};
    Gated out = {y, exact, int8, bf16, p.y_stride, p.outputs};
    // Rows of X by the block's outputs, in place of the codes.
    float* staged = reinterpret_cast<float*>(scratches);

    auto serve = [&](u32 expert, u32 begin, u32 end) {
        Format::Raw raw[LOADS];
        if (here.warp() < chunks) block.load(expert, here.warp(), 0, raw);
        Sums* own = sums + here.warp() * all * ROW_TILES;
        for (u32 i = 0; i < all * ROW_TILES; i++)
            *reinterpret_cast<float4*>(own[i].of[here.lane()]) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        dependency_wait();
        // Without rows of X all are missing; of one that is missing nothing is kept.
        u32 x_blocks = (p.blocks * Format::BLOCK + 31) / 32;
        Multiplier multiplier;
        multiplier.scratch = scratches + here.warp();
        multiplier.x_blocks = p.x_rows == 0 ? 0 : x_blocks;
        multiplier.tiles = (end - begin + 7) / 8;
#pragma unroll
        for (u32 tile = 0; tile < ROW_TILES; tile++) {
            u32 t = 8 * tile + here.lane() / 4, from = begin + t < end ? input_row(p, rows, begin + t) : NO_ROW;
            if (here.warp() == 0 && here.lane() % 4 == 0) missing[t] = from == NO_ROW;
            multiplier.x[tile] = x + u64(from == NO_ROW ? 0 : from) * x_blocks;
        }
        for (u32 chunk = here.warp(); chunk < chunks; chunk += warps) {
#pragma unroll
            for (u32 tile = 0; tile < ROW_TILES; tile++)
                if (ROW_TILES == 1 || tile < multiplier.tiles) multiplier.take(chunk, tile);
#pragma unroll 1
            for (u32 slab = 0; slab < all; slab++) {
                multiplier.unpack(raw);
                warp_barrier();
                bool last = slab + 1 == all;
                u32 next = last ? chunk + warps : chunk;
                if (next < chunks) block.load(expert, next, last ? 0 : slab + 1, raw);
                multiplier.multiply(own + slab * ROW_TILES);
                warp_barrier();
            }
        }
        barrier();
        const float* const biases[2] = {bias, up_bias};
        block.join(expert, begin, end, sums, biases, rows, missing, y, staged);
        barrier();
        if (GATED) {
            for (u32 i = 0; i < slabs / 2; i++)
                out.write(reinterpret_cast<const Four*>(staged) + 8 * i, slabs * 4, end - begin, here.block_x() * slabs / 2 + i, warps,
                          [&](u32 t) { return output_row(rows, begin + t); });
            barrier();
        }
    };
    auto zero = [&](u32 row) { block.zero(row, out, reinterpret_cast<Four*>(staged), y); };
    each_row_chunk(p, rows, serve, zero);
}
#endif
