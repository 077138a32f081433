// Weights times few rows of activations: bound by reading weights.
//
// Compiled for a format (FORMAT), for int8 activations or exact ones (INT8 1 or 0), and for so many rows of activations
// at a time (TOKENS). A *team* of 1 to 128 neighbouring threads, a power of two, multiplies some weight rows; its threads
// take the rows' spans in turns, each with several in flight before it uses one. Sums stay in registers: first those of a
// thread in the order of its spans, then a tree over the team. So a result depends on the weight's shape alone, not on
// TOKENS, nor on the rows beside it.
//
// The same kernels serve dense weights and experts. For experts a block's rows of activations are those of a tile of
// `Groups`: pairs of one expert.
#include "act.h"
#include "activation.h"
#include "formats.h"
#include "team.h"

typedef FORMAT Format;

#define BLOCK_THREADS 128
// Blocks of a multiprocessor that the registers must suffice for.
#define LEAST_BLOCKS 3

// Twin of `GemvParams` in `gpu/cuda/gemv.rs`.
struct GemvParams {
    // Bytes of a weight row and of an expert's matrix.
    u64 row_bytes, matrix_bytes;
    // Elements from a row of Y to the next, and from a row id to the next.
    u64 y_stride, ids_stride;
    // Elements of the bias from an expert to the next.
    u64 bias_stride;
    // Outputs, and blocks of the format in a row.
    u32 outputs, blocks;
    // Rows of X and of Y.
    u32 x_rows, y_rows;
    // Threads of a team, as a power of two.
    u32 team_log2;
    // Pairs of experts that share a row of X.
    u32 share;
    // What becomes of a product, see `Finish`.
    u32 finish;
    Activation activation;
};

#if INT8
typedef Int8Block Element;
#else
typedef float Element;
#endif

// The rows of X that are multiplied at once.
struct Inputs {
    const Element* x;
    // Columns of X, and elements in a row.
    u32 cols, elements;
    // Rows that are there, at least one, and which.
    u32 count, rows[TOKENS];

    // Made when it is needed: pointers would take twice the registers.
    DEV const Element* row(int t) const { return x + u64(rows[t]) * elements; }

    // Asks for the rows' lines, so that they come while weights do: later reads find them in L1. All threads together.
    DEV void touch() const {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t > 0 && t >= count) break;
            const u8* bytes = reinterpret_cast<const u8*>(row(t));
            u32 length = elements * u32(sizeof(Element));
            for (u32 at = thread_x() * 128; at < length; at += BLOCK_THREADS * 128) ::touch(bytes + at);
        }
    }
};

// ---- Products of one span.

#if INT8
// sums[r][t] += Σ over a span of weight row r · activation row t.
template <class F, int ROWS>
DEV void add_span(const typename F::Raw (&raw)[ROWS], u32 span, const Inputs& x, float (&sums)[ROWS][TOKENS]) {
#pragma unroll
    for (int piece = 0; piece < F::PIECES; piece++) {
        u32 at = F::at(span, piece), half = at % 2;
        u32 words[ROWS][4];
        float scale[ROWS], min[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            F::codes(raw[r], piece, words[r]);
            F::scale(raw[r], piece, scale[r], min[r]);
        }
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t > 0 && t >= x.count) break;
            const Int8Block* block = x.row(t) + at / 2;
            uint4 q = *reinterpret_cast<const uint4*>(block->q + 4 * half);
            float x_scale = block->scale;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int product = F::ZERO == 0 ? 0 : -F::ZERO * block->half_sums[half];
                product = dp4a(words[r][0], q.x, product);
                product = dp4a(words[r][1], q.y, product);
                product = dp4a(words[r][2], q.z, product);
                product = dp4a(words[r][3], q.w, product);
                sums[r][t] = fmaf(static_cast<float>(product), __fmul_rn(scale[r], x_scale), sums[r][t]);
                if (F::HAS_MIN) sums[r][t] = fmaf(min[r], -block->scaled_half_sums[half], sums[r][t]);
            }
        }
    }
}
#else
// The same of f32 activations and quantised weights.
template <class F, int ROWS, bool IS_FLOAT>
struct Exact {
    static DEV void add(const typename F::Raw (&raw)[ROWS], u32 span, const Inputs& x, float (&sums)[ROWS][TOKENS]) {
#pragma unroll
        for (int piece = 0; piece < F::PIECES; piece++) {
            u32 at = F::at(span, piece);
            float w[ROWS][16];
#pragma unroll
            for (int r = 0; r < ROWS; r++) values<F>(raw[r], piece, w[r]);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                if (t > 0 && t >= x.count) break;
                const float4* four = reinterpret_cast<const float4*>(x.row(t) + u64(16) * at);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float4 v = four[j];
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        float sum = fmaf(w[r][4 * j], v.x, sums[r][t]);
                        sum = fmaf(w[r][4 * j + 1], v.y, sum);
                        sum = fmaf(w[r][4 * j + 2], v.z, sum);
                        sums[r][t] = fmaf(w[r][4 * j + 3], v.w, sum);
                    }
                }
            }
        }
    }
};
// And of float weights, whose rows may end within a span.
template <class F, int ROWS>
struct Exact<F, ROWS, true> {
    static DEV void add(const typename F::Raw (&raw)[ROWS], u32 span, const Inputs& x, float (&sums)[ROWS][TOKENS]) {
        float w[ROWS][F::SPAN];
#pragma unroll
        for (int r = 0; r < ROWS; r++) F::elements(raw[r], w[r]);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t > 0 && t >= x.count) break;
#pragma unroll
            for (int j = 0; j < F::SPAN; j += 4) {
                u32 k = span * F::SPAN + j;
                float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (x.cols % 4 == 0) {
                    // Rows of X are aligned, and end with four.
                    if (k < x.cols) {
                        float4 four = *reinterpret_cast<const float4*>(x.row(t) + k);
                        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < 4; i++) v[i] = k + i < x.cols ? x.row(t)[k + i] : 0.0f;
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
#pragma unroll
                    for (int r = 0; r < ROWS; r++) sums[r][t] = fmaf(w[r][j + i], v[i], sums[r][t]);
                }
            }
        }
    }
};
template <class F, int ROWS>
DEV void add_span(const typename F::Raw (&raw)[ROWS], u32 span, const Inputs& x, float (&sums)[ROWS][TOKENS]) {
    Exact<F, ROWS, F::IS_FLOAT>::add(raw, span, x, sums);
}
#endif

// Spans in a row.
template <class F, bool IS_FLOAT>
struct Spans {
    static DEV u32 of(u32 blocks) { return blocks * F::SPANS; }
};
template <class F>
struct Spans<F, true> {
    static DEV u32 of(u32 elements) { return (elements + F::SPAN - 1) / F::SPAN; }
};

// ---- Products of whole rows.

// Spans of a row that are loaded before the first is used: as many as there are registers for. Then the few spans that a
// thread has come with one wait for memory.
template <class F>
DEV constexpr int unroll() {
    // Three loads of 16 bytes.
    constexpr bool large = sizeof(typename F::Raw) > 48;
    if (TOKENS > 4 || (TOKENS > 1 && !INT8 && !F::IS_FLOAT)) return 1;
#if __CUDA_ARCH__ >= 900
    if (TOKENS == 1 && (INT8 || F::IS_FLOAT)) return large ? 2 : 4;
#endif
    return large ? 1 : 2;
}

// A team's threads, and which of them this is.
struct Team {
    u32 log2, size, member;
};
DEV Team team_of(u32 log2) { return {log2, 1u << log2, thread_x() & ((1u << log2) - 1)}; }

// The thread's part of the products of ROWS weight rows, added to `sums`. The first weights are asked for before X, which
// the kernel before this one may be writing, is waited for and `find` says which rows of it are wanted.
template <class F, int ROWS, class Find>
DEV void multiply(const Row (&w)[ROWS], Team team, Find find, float (&sums)[ROWS][TOKENS]) {
    constexpr int UNROLL = unroll<F>();
    u32 spans = Spans<F, F::IS_FLOAT>::of(w[0].blocks);
    typename F::Raw raw[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        u32 span = team.member + u * team.size;
        if (span < spans) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) raw[u][r] = F::load(w[r], span);
        }
    }
    dependency_wait();
    Inputs x = find();
    x.touch();
    for (u32 first = team.member; first < spans; first += UNROLL * team.size) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 span = first + u * team.size, next = span + UNROLL * team.size;
            if (span < spans) add_span<F>(raw[u], span, x, sums);
            if (next < spans) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) raw[u][r] = F::load(w[r], next);
            }
        }
    }
}

// Room for the parts of N sums: as many as teams have in all, or warps if teams are larger.
#define PARTS(N) (BLOCK_THREADS * (N))

DEV void meet(Team team) {
    if (team.size > 32)
        barrier();
    else
        warp_barrier();
}

// The team's sums: parts of its warps.
struct Totals {
    const float* parts;
    u32 count, stride;

    DEV float at(u32 i) const {
        float total = parts[i];
#pragma unroll 1
        for (u32 part = 1; part < count; part++) total += parts[part * stride + i];
        return total;
    }
};

// Adds up within warps, and makes the parts known to the team. Every thread calls it, and then `meet` before the next time.
template <int ROWS>
DEV Totals gather(float (&sums)[ROWS][TOKENS], Team team, float* parts) {
    constexpr u32 N = ROWS * TOKENS;
    u32 log2 = min(team.log2, 5u), slot = thread_x() >> log2;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
#pragma unroll 1
            for (u32 mask = 1u << log2 >> 1; mask > 0; mask /= 2) sums[r][t] += shuffle_xor(sums[r][t], mask);
            if ((thread_x() & ((1u << log2) - 1)) == 0) parts[slot * N + r * TOKENS + t] = sums[r][t];
        }
    }
    meet(team);
    u32 first = (thread_x() >> team.log2) << (team.log2 - log2);
    return {parts + first * N, 1u << (team.log2 - log2), N};
}

// ---- Which rows of X and Y a block serves.

// What the kernels are told of rows: null pointers for what there is not.
struct Rows {
    // Which rows of X, or all.
    const u32* ids;
    // The parts of `Groups`.
    const u32 *pairs, *tiles, *tile_count;
    u32* flag;
};

// A pair for experts, else a row of Y.
DEV u32 output_row(const Rows& rows, u32 at) { return rows.tiles == nullptr ? at : rows.pairs[at]; }

#define NO_ROW 0xffffffffu
// The row of X for this pair or row of Y, or NO_ROW.
DEV u32 input_row(const GemvParams& p, const Rows& rows, u32 at) {
    if (rows.tiles != nullptr) return rows.pairs[at] / p.share;
    if (rows.ids == nullptr) return at;
    u32 id = rows.ids[at * p.ids_stride];
    if (id < p.x_rows) return id;
    if (id != PADDING) raise(rows.flag, FLAG_MATMUL_ROW, id, at, p.x_rows);
    return NO_ROW;
}

// Calls `serve(expert, first, end)` for stretches of at most TOKENS rows, `zero(row)` with rows of Y that have no expert.
// The grid's y counts such stretches, or tiles and one more.
template <class Serve, class Zero>
DEV void each_stretch(const GemvParams& p, const Rows& rows, Serve serve, Zero zero) {
    bool experts = rows.tiles != nullptr;
    u32 tasks = experts ? *rows.tile_count : (p.y_rows + TOKENS - 1) / TOKENS;
    u32 stride = grid_y() - (experts ? 1 : 0);
    if (block_y() == stride) {
        // Pairs without an expert follow those of the last tile.
        const u32* last = rows.tiles + 3 * (u64(tasks) - 1);
        for (u32 i = tasks == 0 ? 0 : last[1] + last[2]; i < p.y_rows; i++) zero(rows.pairs[i]);
        return;
    }
    for (u32 task = block_y(); task < tasks; task += stride) {
        u32 expert = 0, first = task * TOKENS, end = min(first + TOKENS, p.y_rows);
        if (experts) {
            const u32* tile = rows.tiles + u64(3) * task;
            expert = tile[0];
            first = tile[1];
            end = first + tile[2];
        }
        for (; first < end; first += TOKENS) serve(expert, first, min(first + TOKENS, end));
    }
}

// Rows `first` to `end`, with a bit of `missing` for each that has no row of X and stays zero.
DEV Inputs find_inputs(const GemvParams& p, const Rows& rows, const Element* x, u32 first, u32 end, u32& missing) {
    u32 cols = p.blocks * Format::BLOCK;
    Inputs inputs = {x, cols, INT8 ? (cols + 31) / 32 : cols, end - first, {}};
    missing = 0;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        u32 row = first + t < end ? input_row(p, rows, first + t) : NO_ROW;
        if (row == NO_ROW) missing |= 1u << t;
        // Nothing is made of what is read of a missing one.
        inputs.rows[t] = row == NO_ROW ? 0 : row;
    }
    return inputs;
}

// ---- Kernels. The grid's x counts groups of weight rows.

// Weight rows of a team.
#define TEAM_ROWS 2

// Y = X · Wᵀ + bias.
KERNEL_BOUNDED(matmul, BLOCK_THREADS, LEAST_BLOCKS)
(IN(u8, weight, 0), IN(Element, x, 1), IN(u32, ids, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),
 IN(float, bias, 6), INOUT(float, y, 7), INOUT(u32, flag, 8), PARAMS(GemvParams, p, 9)) {
    SHARED(float, parts, PARTS(TEAM_ROWS * TOKENS));
    dependency_launch();
    // Tiles say which weights are wanted.
    if (tiles != nullptr) dependency_wait();
    Team team = team_of(p.team_log2);
    u32 teams = BLOCK_THREADS >> p.team_log2;
    u32 first = (block_x() * teams + (thread_x() >> p.team_log2)) * TEAM_ROWS;
    Rows rows = {ids, pairs, tiles, tile_count, flag};
    auto serve = [&](u32 expert, u32 begin, u32 end) {
        Row w[TEAM_ROWS];
        const u8* matrix = weight + expert * p.matrix_bytes;
#pragma unroll
        for (int r = 0; r < TEAM_ROWS; r++) w[r] = {matrix + min(first + r, p.outputs - 1) * p.row_bytes, p.blocks};
        // Without rows of X all are missing.
        u32 missing = 0xffffffffu;
        float sums[TEAM_ROWS][TOKENS] = {};
        auto find = [&]() { return find_inputs(p, rows, x, begin, end, missing); };
        if (p.x_rows > 0) multiply<Format>(w, team, find, sums);
        Totals totals = gather(sums, team, parts);
        for (u32 i = team.member; i < TEAM_ROWS * TOKENS; i += team.size) {
            u32 output = first + i / TOKENS, t = i % TOKENS;
            if (output < p.outputs && begin + t < end) {
                float product = totals.at(i) + (bias == nullptr ? 0.0f : bias[expert * p.bias_stride + output]);
                if (missing >> t & 1) product = 0.0f;
                float* out = y + output_row(rows, begin + t) * p.y_stride + output;
                *out = p.finish == STORE ? product : activate(p.activation, *out, product);
            }
        }
        meet(team);
    };
    auto zero = [&](u32 row) {
        u32 begin = block_x() * teams * TEAM_ROWS, end = min(begin + teams * TEAM_ROWS, p.outputs);
        for (u32 output = begin + thread_x(); output < end; output += BLOCK_THREADS) y[row * p.y_stride + output] = 0.0f;
    };
    each_stretch(p, rows, serve, zero);
}

// H = activation(gate · x + bias, up · x + bias), of two weights of one shape and format.
KERNEL_BOUNDED(gate_up, BLOCK_THREADS, LEAST_BLOCKS)
(IN(u8, gate, 0), IN(u8, up, 1), IN(Element, x, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),
 IN(float, gate_bias, 6), IN(float, up_bias, 7), OUT(float, h, 8), PARAMS(GemvParams, p, 9)) {
    SHARED(float, parts, PARTS(2 * TOKENS));
    dependency_launch();
    if (tiles != nullptr) dependency_wait();
    Team team = team_of(p.team_log2);
    u32 output = block_x() * (BLOCK_THREADS >> p.team_log2) + (thread_x() >> p.team_log2);
    Rows rows = {nullptr, pairs, tiles, tile_count, nullptr};
    auto serve = [&](u32 expert, u32 begin, u32 end) {
        u64 at = expert * p.matrix_bytes + min(output, p.outputs - 1) * p.row_bytes;
        Row w[2] = {{gate + at, p.blocks}, {up + at, p.blocks}};
        u32 missing;
        float sums[2][TOKENS] = {};
        multiply<Format>(w, team, [&]() { return find_inputs(p, rows, x, begin, end, missing); }, sums);
        Totals totals = gather(sums, team, parts);
        for (u32 t = team.member; t < TOKENS; t += team.size) {
            if (output < p.outputs && begin + t < end) {
                u64 bias = expert * p.bias_stride + output;
                float g = totals.at(t) + (gate_bias == nullptr ? 0.0f : gate_bias[bias]);
                float u = totals.at(TOKENS + t) + (up_bias == nullptr ? 0.0f : up_bias[bias]);
                h[output_row(rows, begin + t) * p.y_stride + output] = activate(p.activation, g, u);
            }
        }
        meet(team);
    };
    auto zero = [&](u32 row) {
        if (team.member == 0 && output < p.outputs) h[row * p.y_stride + output] = 0.0f;
    };
    each_stretch(p, rows, serve, zero);
}
