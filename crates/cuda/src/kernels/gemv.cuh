// Weights times few rows of activations, limited by reading weights: what `gemv.cu`, `norm_matmul.cu` and `experts.cu` share.
//
// Compiled for a format (FORMAT), for int8 activations or exact ones (INT8 1 or 0), and for so many rows of activations at a
// time (TOKENS). A *thread group* of 1 to 256 neighbouring threads, a power of two, multiplies some weight rows; its threads
// take the rows' spans in turns, several in flight. Sums stay in registers: those of a thread in the order of its spans, then a
// tree over the group. So a result depends on the weight's shape alone.
#pragma once
#include "act.h"
#include "format.h"
#include "reduce.h"

typedef FORMAT Format;

// Threads of a block, and blocks of a multiprocessor that the registers must suffice for: other compilers than sm_90's need
// more of them. With two rows of X, four blocks are worth some spilled registers: products of 4,096 outputs have 512 blocks,
// which 132 multiprocessors take at once. On an H100, Q4_K and 4,096 × 4,096, that takes 10.8 µs instead of 14.8, and Q6_K,
// 4,096 × 12,288, which spills, 27 instead of 34.
#ifndef BLOCK_THREADS
#define BLOCK_THREADS 128
#endif
#define LEAST_BLOCKS LEAST_BLOCKS_OF(BLOCK_THREADS == 256 ? 2 : TOKENS <= 2 ? 4 : 3)
// The same for blocks of 256 threads with one row of X, of formats that need few registers.
#define LEAST_SMALL_BLOCKS LEAST_BLOCKS_OF(FewRegisters<Format>::value ? 3 : 2)
#define LEAST_BLOCKS_OF(count) (BLOCK_THREADS == 512 ? 1 : __CUDA_ARCH__ != 900 ? 2 : (count))

// Whether 80 registers suffice for the int8 products of four weight rows with one row of X: the format says so.
template <class F, class = void>
struct FewRegisters {
    MEMBER bool value = false;
};
template <class F>
struct FewRegisters<F, decltype(static_cast<void>(F::FEW_REGISTERS))> {
    MEMBER bool value = INT8 && F::FEW_REGISTERS;
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
            for (u32 at = here.thread_x() * 128; at < length; at += BLOCK_THREADS * 128) ::touch(bytes + at);
        }
    }
};

// ---- Products of one span.

#if INT8
// sums[r][t] += Σ over a span of weight row r · activation row t.
template <class F, int ROWS, class Inputs>
DEV void add_span(const typename F::Raw (&raw)[ROWS], u32 span, const Inputs& x, float (&sums)[ROWS][TOKENS]) {
#pragma unroll
    for (int piece = 0; piece < F::PIECES; piece++) {
        u32 at = F::at(span, piece), half = at % 2;
        u32 words[ROWS][4];
        ScaleMin of[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            F::codes(raw[r], piece, words[r]);
            of[r] = F::scale(raw[r], piece);
        }
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t > 0 && t >= x.count) break;
            auto block = x.row(t) + at / 2;
            uint4 q = *reinterpret_cast<const uint4*>(block->q + 4 * half);
            float x_scale = block->scale;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int product = F::ZERO == 0 ? 0 : -F::ZERO * block->half_sums[half];
                product = dp4a(words[r][0], q.x, product);
                product = dp4a(words[r][1], q.y, product);
                product = dp4a(words[r][2], q.z, product);
                product = dp4a(words[r][3], q.w, product);
                sums[r][t] = fmaf(static_cast<float>(product), __fmul_rn(of[r].scale, x_scale), sums[r][t]);
                if (F::HAS_MIN) sums[r][t] = fmaf(of[r].min, -block->scaled_half_sums[half], sums[r][t]);
            }
        }
    }
}
#else
// The same of f32 activations and quantised weights.
template <class F, int ROWS, bool IS_FLOAT>
struct Exact {
    template <class Inputs>
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
    template <class Inputs>
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
template <class F, int ROWS, class Inputs>
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
template <class F, int ROWS>
DEV constexpr int unroll() {
    // Three loads of 16 bytes.
    constexpr bool large = sizeof(typename F::Raw) > 48;
    if (TOKENS > 4 || (TOKENS > 1 && !INT8 && !F::IS_FLOAT)) return 1;
    if (TOKENS == 1 && (INT8 || F::IS_FLOAT)) return ROWS >= 4 ? 1 : (large ? 2 : 4) / ROWS;
    return large || ROWS > 2 ? 1 : 2;
}

// Neighbouring threads that multiply together, and which of them this is.
struct ThreadGroup {
    u32 log2, size, member;
};
DEV ThreadGroup thread_group(u32 log2) { return {log2, 1u << log2, here.thread_x() & ((1u << log2) - 1)}; }

// The thread's part of the products of ROWS weight rows, added to `sums`. The first weights are asked for before X, which
// `find` waits for: the kernel before this one may be writing it.
template <class F, int ROWS, class Find>
DEV void multiply(const Row (&w)[ROWS], ThreadGroup threads, Find find, float (&sums)[ROWS][TOKENS]) {
    constexpr int UNROLL = unroll<F, ROWS>();
    u32 spans = Spans<F, F::IS_FLOAT>::of(w[0].blocks);
    typename F::Raw raw[UNROLL][ROWS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        u32 span = threads.member + u * threads.size;
        if (span < spans) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) raw[u][r] = F::load(w[r], span);
        }
    }
    auto x = find();
    for (u32 first = threads.member; first < spans; first += UNROLL * threads.size) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            u32 span = first + u * threads.size, next = span + UNROLL * threads.size;
            if (span < spans) add_span<F>(raw[u], span, x, sums);
            if (next < spans) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) raw[u][r] = F::load(w[r], next);
            }
        }
    }
}

// Floats of shared memory for the parts of N sums.
#define PARTS(N) (BLOCK_THREADS * (N))

DEV void meet(ThreadGroup threads) {
    if (threads.size > 32)
        barrier();
    else
        warp_barrier();
}

// The thread group's sums: parts of its warps.
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

// Adds up within warps, and makes the parts known to the threads. Every thread calls it, and then `meet` before the next time.
template <int ROWS>
DEV Totals gather(float (&sums)[ROWS][TOKENS], ThreadGroup threads, float* parts) {
    constexpr u32 N = ROWS * TOKENS;
    u32 log2 = min(threads.log2, 5u), slot = here.thread_x() >> log2;
    // All sums in each step, because a shuffle's result comes some 25 cycles later.
#pragma unroll 1
    for (u32 mask = 1u << log2 >> 1; mask > 0; mask /= 2) {
#pragma unroll
        for (int i = 0; i < N; i++) sums[i / TOKENS][i % TOKENS] += shuffle_xor(sums[i / TOKENS][i % TOKENS], mask);
    }
    if ((here.thread_x() & ((1u << log2) - 1)) == 0) {
#pragma unroll
        for (int i = 0; i < N; i++) parts[slot * N + i] = sums[i / TOKENS][i % TOKENS];
    }
    meet(threads);
    u32 first = (here.thread_x() >> threads.log2) << (threads.log2 - log2);
    return {parts + first * N, 1u << (threads.log2 - log2), N};
}
