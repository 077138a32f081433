// Matrix products on tensor cores: Y = X · Wᵀ for many rows of X, dense or grouped by expert.
//
// Weights are the 16 rows of an `mma` (m16n8k16), rows of X its 8 columns. A warp owns 16 or 32 rows of weights; each lane loads
// codes of two or four of them from global memory to registers and makes bfloat16 of them, so a weight is unpacked once for
// all rows of X. Rows of X come as bfloat16 through shared memory, `STAGES` steps in flight. Sums are f32.
//
// The column order within a step is free, as long as A and B agree. Four lanes share a row; each unpacks spans of its own (`weight.h`)
// and reads the same columns of X, eight neighbours, 16 bytes, at a time. A sum is taken in the order of steps, spans and
// pieces, whatever else is in the tile. Unpacking limits the speed, at about 5 instructions a weight.
//
// Defines: those of `gemm.cuh` (TOKENS a multiple of 16, FRAGMENTS times 16 rows of weights of a warp), TILE (rows of a full
// tile of experts), WARPS, SPLIT (parts of the warps, which take steps in turns; not for experts), BLOCKS (of a
// multiprocessor), STAGES.
#include "gemm.cuh"

// The host passes so many parameters; below sm_80 there is nothing to launch.
#if __CUDA_ARCH__ >= 800

// Weights as one lane of a quad unpacks them: `PIECES` times 16 columns in a step.
template <class F, bool IS_FLOAT = F::IS_FLOAT>
struct Lane;

template <class F>
struct Lane<F, false> {
    static constexpr int PIECES = 4, SPANS = PIECES / F::PIECES, STEP = 4 * PIECES * 16;
    // Whether a row may end within a step.
    static constexpr bool RAGGED = F::BLOCK < STEP;

    typename F::Raw raw[SPANS];

    // The span of lane t: 16-byte loads of the quad are neighbours.
    static DEV u32 span(int s, u32 t) { return 4 * s | t; }
    static DEV u32 at(int piece, u32 t) { return F::at(span(piece / F::PIECES, t), piece % F::PIECES); }
    // Whether the piece is its span's last.
    static DEV bool last(int piece) { return piece % F::PIECES == F::PIECES - 1; }

    DEV void load(Row row, u32 step, int s, u32 t) {
        u32 span = step * (4 * SPANS) | this->span(s, t);
        if (RAGGED && span >= row.blocks * F::SPANS) {
            // A scale of zero.
            raw[s] = typename F::Raw{};
        } else {
            raw[s] = F::load(row, span);
        }
    }

    DEV Scale scale(int piece) const {
        typename F::Raw span = raw[piece / F::PIECES];
        if (!RAGGED && piece >= F::PIECES) copy_head(span, raw[0]);
        return scale_of<F>(span, piece % F::PIECES);
    }
    typedef u32 Codes[4];
    DEV void codes(int piece, Codes& words) const { F::codes(raw[piece / F::PIECES], piece % F::PIECES, words); }

    // Half of a piece as pairs of bfloat16: the even or the odd columns, as they lie in X.
    static DEV void unpack(const Codes& codes, Scale scale, int half, u32 (&pairs)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = pair_of<F>(codes[i], scale, half);
    }
};

// bfloat16 as it is.
template <class F>
struct Lane<F, true> {
    static constexpr int PIECES = 1, SPANS = 1, STEP = 4 * PIECES * 16;
    uint4 raw[2];

    static DEV u32 at(int, u32 t) { return t; }
    static DEV bool last(int) { return true; }
    DEV void load(Row row, u32 step, int, u32 t) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            u32 span = 8 * step + 2 * t + i;
            raw[i] = span * 8 < row.blocks ? F::load(row, span) : make_uint4(0, 0, 0, 0);
        }
    }
    DEV Scale scale(int) const { return {1.0f, 0.0f}; }
    typedef uint4 Codes[2];
    DEV void codes(int, Codes& words) const {
        words[0] = raw[0];
        words[1] = raw[1];
    }
    static DEV void unpack(const Codes& codes, Scale, int half, u32 (&pairs)[4]) {
        const u32 columns = half == 0 ? 0x5410 : 0x7632;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            pairs[2 * i] = __byte_perm(codes[i].x, codes[i].y, columns);
            pairs[2 * i + 1] = __byte_perm(codes[i].z, codes[i].w, columns);
        }
    }
};

typedef Lane<FORMAT> Weights;
constexpr u32 STEP = Weights::STEP, THREADS = 32 * WARPS;
// A round is a step of each of SPLIT parts of the block. Units of 16 bytes, eight columns, of a row of X in a step and
// in a round; bytes of such a row and of a stage.
constexpr u32 STEP_UNITS = STEP / 8, UNITS = SPLIT * STEP_UNITS, X_ROW = 16 * UNITS, STAGE = TOKENS * X_ROW;
// Warps of a part; outputs of a warp and of a block.
constexpr u32 PART_WARPS = WARPS / SPLIT;
constexpr u32 WARP_OUTPUTS = (GATED ? 8 : 16) * FRAGMENTS, OUTPUTS = WARP_OUTPUTS * PART_WARPS;
// Rows of X by 8, which a `mma` takes, and by 16, which are computed or left out together.
constexpr int EIGHTS = TOKENS / 8, SIXTEENS = TOKENS / 16;

// Rows of X in one block-wide copy (even), and copies in a stage.
constexpr u32 LINES = THREADS / UNITS, COPIES = TOKENS / LINES;
static_assert(LINES % 2 == 0 && TOKENS % LINES == 0, "the swizzle of a thread's copies is one");

DEV uint4 read(const u8* shared) { return *reinterpret_cast<const uint4*>(shared); }

// Where a unit of a row of X lies in its row, but for the row's own part. Eight lanes read at once: two rows of X and
// four units, whose places in the weights' formats differ in the low or in the high bits; this spreads them over all
// banks. It only moves and mixes bits: the place of u ^ v is that of u ^ that of v.
DEV constexpr u32 place(u32 unit) { return (unit ^ ((unit >> 3 ^ unit >> 4) & 1) << 2 ^ (unit >> 3 & 1) << 1) * 16; }
// Where it lies in its stage.
DEV u32 unit_at(u32 token, u32 unit) { return token * X_ROW + (place(unit) ^ (token & 1) * 16); }

typedef u32 Fragment[4];

// Adds the products with so many times 16 rows of X, of which `columns` are eight columns of the lane.
template <int N>
DEV void multiply_by(const Fragment (&a)[FRAGMENTS][2], const u8* columns, float (&sums)[EIGHTS][FRAGMENTS][4]) {
    uint4 x[2 * N];
#pragma unroll
    for (int j = 0; j < 2 * N; j++) x[j] = read(columns + 8 * j * X_ROW);
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            const u32 b[2] = {k == 0 ? x[j].x : x[j].z, k == 0 ? x[j].y : x[j].w};
#pragma unroll
            for (int m = 0; m < FRAGMENTS; m++) mma_m16n8k16_bf16(sums[j][m], a[m][k], b);
        }
    }
}
template <int N = SIXTEENS>
DEV void multiply(u32 n, const Fragment (&a)[FRAGMENTS][2], const u8* columns, float (&sums)[EIGHTS][FRAGMENTS][4]) {
    if (n >= N) {
        multiply_by<N>(a, columns, sums);
    } else if constexpr (N > 1) {
        multiply<N - 1>(n, a, columns, sums);
    }
}

typedef Weights LaneWeights[FRAGMENTS][2];
typedef float Sums[EIGHTS][FRAGMENTS][4];

// Multiplies with the rows of X of a step, and loads the next step's weights in their place. `columns`: the lane's first ones.
DEV void multiply_step(const LaneRows& row, u32 next_step, u32 t, const u8* stage, u32 columns, u32 sixteens, LaneWeights& w, Sums& sums) {
    // All scales first: then the next ones can be loaded in their place.
    Scale scale[Weights::PIECES][FRAGMENTS][2];
#pragma unroll
    for (int i = 0; i < Weights::PIECES; i++) {
#pragma unroll
        for (int m = 0; m < FRAGMENTS; m++) {
            scale[i][m][0] = w[m][0].scale(i);
            scale[i][m][1] = w[m][1].scale(i);
        }
    }
#pragma unroll
    for (int i = 0; i < Weights::PIECES; i++) {
        Weights::Codes codes[FRAGMENTS][2];
#pragma unroll
        for (int m = 0; m < FRAGMENTS; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                w[m][h].codes(i, codes[m][h]);
                const int span = i * Weights::SPANS / Weights::PIECES;
                if (Weights::last(i)) w[m][h].load(row[m][h], next_step, span, t);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Fragment a[FRAGMENTS][2];
#pragma unroll
            for (int m = 0; m < FRAGMENTS; m++) {
                u32 pairs[2][4];
                Weights::unpack(codes[m][0], scale[i][m][0], half, pairs[0]);
                Weights::unpack(codes[m][1], scale[i][m][1], half, pairs[1]);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    a[m][k][0] = pairs[0][2 * k];
                    a[m][k][1] = pairs[1][2 * k];
                    a[m][k][2] = pairs[0][2 * k + 1];
                    a[m][k][3] = pairs[1][2 * k + 1];
                }
            }
            // The columns of lane t are those of lane 0 with other bits set.
            const u8* at = stage + (columns ^ place(2 * Weights::at(i, 0) + half));
            multiply(sixteens, a, at, sums);
        }
    }
}

// Adds the sums of the other parts to those of the first, in order. Whether this is the first.
DEV bool add_parts(float* shared, u32 part, Sums& sums) {
    constexpr int SUMS = EIGHTS * FRAGMENTS * 4;
    float* all = shared + here.warp() % PART_WARPS * SUMS * 32 + here.lane();
    auto own = [&](int i) -> float& { return sums[i / 4 / FRAGMENTS][i / 4 % FRAGMENTS][i % 4]; };
    barrier();
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        if (part > 0) all[((part - 1) * PART_WARPS * SUMS + i) * 32] = own(i);
    }
    barrier();
    if (part > 0) return false;
#pragma unroll
    for (int other = 0; other < SPLIT - 1; other++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++) own(i) += all[(other * PART_WARPS * SUMS + i) * 32];
    }
    return true;
}

// Starts to copy what is multiplied in a round. A thread copies the same unit of some rows of X.
struct Copier {
    u8* stages;
    const u8* x;
    const u64* x_of;  // bytes before each row
    u32 x_bytes, sixteens, line, unit;

    DEV void copy(u32 round) const {
        u8* stage = stages + round % STAGES * STAGE + unit_at(line, unit);
        u64 at = u64(round) * X_ROW + 16 * unit;
        bool valid = at < x_bytes;
        const u8* from = x + (valid ? at : 0);
#pragma unroll
        for (u32 i = 0; i < COPIES; i++) {
            const u8* row = from + x_of[line * COPIES + i];
            if (i * LINES < 16 * sixteens) cp_async_16(stage + i * LINES * X_ROW, row, valid);
        }
    }
};

KERNEL_BOUNDED(gemm, 32 * WARPS, BLOCKS)
(IN(u8, weight, 0), IN(u8, up, 1), IN(u8, x, 2), IN(u32, ids, 3), IN(u32, pairs, 4), IN(u32, tiles, 5),
 IN(u32, tile_count, 6), IN(float, bias, 7), IN(float, up_bias, 8), INOUT(Result, y, 9), INOUT(u32, flag, 10),
 PARAMS(GemmParams, p, 11)) {
    DYNAMIC_SHARED(u8, stages);
    SHARED(u64, x_of, TOKENS);
    SHARED(u32, y_of, TOKENS);
    const u32 row_blocks = (p.outputs + OUTPUTS - 1) / OUTPUTS;
    const u32 tile = here.block_x() / row_blocks, block_output = here.block_x() % row_blocks * OUTPUTS;
    const u32 group = here.lane() / 4, t = here.lane() % 4;
    const u32 steps = (p.blocks * FORMAT::BLOCK + STEP - 1) / STEP, rounds = (steps + SPLIT - 1) / SPLIT;
    const u32 part = SPLIT == 1 ? 0 : here.warp() / PART_WARPS, x_bytes = 64 * p.x_blocks;
    u32 first_round = 0, end_round = rounds, end_step = steps;
    if (SHARED_COLUMNS) {
        // Y has one place for each share.
        const u32 share = here.block_y(), shares = here.grid_y();
        first_round = rounds * share / shares;
        end_round = rounds * (share + 1) / shares;
        end_step = min(end_round * SPLIT, steps);
        y += u64(share) * p.y_rows * p.y_stride;
    }

    if (tiles != nullptr) dependency_wait();
    Rows rows = rows_of(tile, here.grid_x() / row_blocks, block_output, block_output + OUTPUTS, pairs, tiles, tile_count, y, p);
    u32 expert = rows.expert, first = rows.first, end = rows.end;
    if (first == end) return;

    const u32 first_output = block_output + WARP_OUTPUTS * (here.warp() % PART_WARPS) + group;
    auto output_of = [&](int m, int h) { return first_output + (GATED ? 8 * m : 16 * m + 8 * h); };
    LaneRows row;
    find_rows(weight, up, expert, output_of, p, row);

    // A tile of experts may have more rows than are multiplied at once.
    for (bool again = false; first < end; first += TOKENS, again = true) {
        // The next rows take the place of those before.
        if (TOKENS < TILE && again) barrier();
        LaneWeights w;
#pragma unroll
        for (int m = 0; m < FRAGMENTS; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int s = 0; s < Weights::SPANS; s++) w[m][h].load(row[m][h], min(first_round * SPLIT + part, end_step - 1), s, t);
            }
        }
        const u32 count = min(end - first, u32(TOKENS)), sixteens = (count + 15) / 16;

        dependency_launch();
        if (tiles == nullptr) dependency_wait();
        for (u32 i = here.thread_x(); i < TOKENS; i += THREADS) {
            Line line = line_of(i, first, count, ids, pairs, flag, p);
            y_of[i] = line.y;
            x_of[i % LINES * COPIES + i / LINES] = u64(line.x) * x_bytes;
        }
        barrier();

        const Copier copier = {stages, x, x_of, x_bytes, sixteens, here.thread_x() / UNITS, here.thread_x() % UNITS};
#pragma unroll
        for (u32 i = 0; i < STAGES - 1; i++) {
            if (first_round + i < end_round) copier.copy(first_round + i);
            cp_async_commit();
        }

        const u32 columns = unit_at(group, part * STEP_UNITS + 2 * Weights::at(0, t));
        Sums sums = {};
        for (u32 round = first_round; round < end_round; round++) {
            cp_async_wait<STAGES - 2>();
            // This round's columns are there for all, and all have used what the next copy overwrites.
            barrier();
            if (round + STAGES - 1 < end_round) copier.copy(round + STAGES - 1);
            cp_async_commit();
            if (SPLIT > 1 && round * SPLIT + part >= end_step) break;
            const u8* stage = stages + round % STAGES * STAGE;
            // At the end the last step again: a branch around the loads would make what follows wait for them.
            const u32 next_step = min((round + 1) * SPLIT + part, end_step - 1);
            multiply_step(row, next_step, t, stage, columns, sixteens, w, sums);
        }
        if (SPLIT > 1 && !add_parts(reinterpret_cast<float*>(stages), part, sums)) continue;

        auto sum = [&](int m, int h, int j, int i) { return sums[j][m][2 * h + i]; };
        write_sums<EIGHTS>(output_of, sum, y_of, count, expert, bias, up_bias, y, p);
        if (TOKENS >= TILE) break;
    }
}
#endif
