// Weights times few rows of activations: dense ones, and those of experts, where one launch serves all pairs. The grid's x
// counts groups of weight rows, y tasks (`tasks.h`).
#include "experts.h"
#include "gemv.h"
#include "norm_matmul.h"
#include "tasks.h"

// Weight rows of a team: reading X is shared by them.
#define TEAM_ROWS 4

// Rows of X for a task's places from `first` on, with a bit of `missing` for each that has none and stays zero. What is read
// of those past the end is not used.
template <int TOKENS>
DEV Inputs<TOKENS> find_inputs(const ProductParams p, const Rows rows, const GLOBAL float* x, u32 first, u32 end,
                               THREAD u32& missing) {
    Inputs<TOKENS> inputs;
    inputs.cols = p.blocks * Format::BLOCK;
    missing = 0;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        u32 row = first + t < end ? input_row(p, rows, first + t) : NO_ROW;
        if (row == NO_ROW) missing |= 1u << t;
        inputs.rows[t] = x + (row == NO_ROW ? 0 : u64(row) * inputs.cols);
    }
    return inputs;
}

// The products of ROWS weight rows with a task's places from `first` on.
template <int ROWS, int TOKENS>
DEV u32 multiply_task(const THREAD Row (&w)[ROWS], Team team, const ProductParams p, const Rows rows,
                      const GLOBAL float* x, u32 first, u32 end, THREAD float (&sums)[ROWS][TOKENS]) {
    u32 missing = 0;
    Inputs<TOKENS> inputs = find_inputs<TOKENS>(p, rows, x, first, end, missing);
    // Without rows of X all are missing.
    if (p.x_rows > 0) multiply(w, team, inputs, sums);
    return missing;
}

// Y = X · Wᵀ + bias, TOKENS rows at a time.
template <int TOKENS>
DEV void matmul_of(Here here, const Parts parts, const GLOBAL float* x, const Rows rows, const GLOBAL float* bias,
                   GLOBAL float* y, const ProductParams p) {
    Team team = team_of(here, p.cut);
    u32 teams = BLOCK_THREADS >> p.cut, stride = task_stride(here, p);
    u32 begin = here.block_x() * teams * TEAM_ROWS, first_output = begin + team.number * TEAM_ROWS;
    if (here.block_y() == stride) {
        zero_pairs(here, p, rows, begin, begin + teams * TEAM_ROWS, y);
        return;
    }
    u32 count = task_count(p, rows, TOKENS);
    for (u32 number = here.block_y(); number < count; number += stride) {
        Task task = task_of(p, rows, number, TOKENS);
        Row w[TEAM_ROWS];
#pragma unroll
        for (int r = 0; r < TEAM_ROWS; r++) w[r] = weight_row(p, parts, task.expert, first_output + r);
        for (u32 first = task.first; first < task.end; first += TOKENS) {
            float sums[TEAM_ROWS][TOKENS] = {};
            u32 missing = multiply_task(w, team, p, rows, x, first, task.end, sums);
#pragma unroll
            for (int i = 0; i < TEAM_ROWS * TOKENS; i++) {
                u32 output = first_output + i % TEAM_ROWS, t = i / TEAM_ROWS;
                // Each is written by another lane.
                if ((i & (team.size - 1)) == team.member && output < p.outputs && first + t < task.end) {
                    float product = sums[i % TEAM_ROWS][t] + bias_of(p, bias, task.expert, output);
                    GLOBAL float* to = y + output_row(p, rows, first + t) * p.y_stride + output;
                    apply_epilogue(p.epilogue, to, missing >> t & 1 ? 0.0f : product);
                }
            }
        }
    }
}

#define MATMUL_ARGUMENTS                                                                                                 \
    (IN(u8, weight, 0), IN(u8, second, 1), IN(u8, third, 2), IN(float, x, 3), IN(u32, ids, 4), IN(u32, pairs, 5),        \
     IN(u32, tiles, 6), IN(u32, tile_count, 7), IN(float, bias, 8), INOUT(float, y, 9), INOUT(u32, flag, 10),            \
     PARAMS(ProductParams, p, 11))

KERNEL_BOUNDED(matmul, BLOCK_THREADS, 1)
MATMUL_ARGUMENTS {
    HERE;
    matmul_of<1>(here, {weight, second, third}, x, {ids, pairs, tiles, tile_count, flag}, bias, y, p);
}

KERNEL_BOUNDED(matmul_several, BLOCK_THREADS, 1)
MATMUL_ARGUMENTS {
    HERE;
    matmul_of<4>(here, {weight, second, third}, x, {ids, pairs, tiles, tile_count, flag}, bias, y, p);
}

// H = activation(gate · x + bias, up · x + bias), TOKENS rows at a time.
template <int TOKENS>
DEV void gate_up_of(Here here, const GLOBAL u8* gate, const GLOBAL u8* up, const GLOBAL float* x, const Rows rows,
                    const GLOBAL float* gate_bias, const GLOBAL float* up_bias, GLOBAL float* h, const ProductParams p) {
    Team team = team_of(here, p.cut);
    u32 teams = BLOCK_THREADS >> p.cut, stride = task_stride(here, p);
    u32 begin = here.block_x() * teams * GATE_ROWS, first_output = begin + team.number * GATE_ROWS;
    if (here.block_y() == stride) {
        zero_pairs(here, p, rows, begin, begin + teams * GATE_ROWS, h);
        return;
    }
    u32 count = task_count(p, rows, TOKENS);
    for (u32 number = here.block_y(); number < count; number += stride) {
        Task task = task_of(p, rows, number, TOKENS);
        Row w[2 * GATE_ROWS];
#pragma unroll
        for (int r = 0; r < GATE_ROWS; r++) {
            w[2 * r] = weight_row(p, {gate, gate, gate}, task.expert, first_output + r);
            w[2 * r + 1] = weight_row(p, {up, up, up}, task.expert, first_output + r);
        }
        for (u32 first = task.first; first < task.end; first += TOKENS) {
            float sums[2 * GATE_ROWS][TOKENS] = {};
            multiply_task(w, team, p, rows, x, first, task.end, sums);
#pragma unroll
            for (int i = 0; i < GATE_ROWS * TOKENS; i++) {
                u32 r = i % GATE_ROWS, t = i / GATE_ROWS, output = first_output + r;
                if ((i & (team.size - 1)) == team.member && output < p.outputs && first + t < task.end) {
                    float gates = sums[2 * r][t] + bias_of(p, gate_bias, task.expert, output);
                    float ups = sums[2 * r + 1][t] + bias_of(p, up_bias, task.expert, output);
                    h[output_row(p, rows, first + t) * p.y_stride + output] = activate(p.epilogue.activation, gates, ups);
                }
            }
        }
    }
}

#define GATE_UP_ARGUMENTS                                                                                                \
    (IN(u8, gate, 0), IN(u8, up, 1), IN(float, x, 2), IN(u32, pairs, 3), IN(u32, tiles, 4), IN(u32, tile_count, 5),      \
     IN(float, gate_bias, 6), IN(float, up_bias, 7), OUT(float, h, 8), PARAMS(ProductParams, p, 9))

KERNEL_BOUNDED(gate_up, BLOCK_THREADS, 1)
GATE_UP_ARGUMENTS {
    HERE;
    gate_up_of<1>(here, gate, up, x, {nullptr, pairs, tiles, tile_count, nullptr}, gate_bias, up_bias, h, p);
}

KERNEL_BOUNDED(gate_up_several, BLOCK_THREADS, 1)
GATE_UP_ARGUMENTS {
    HERE;
    gate_up_of<4>(here, gate, up, x, {nullptr, pairs, tiles, tile_count, nullptr}, gate_bias, up_bias, h, p);
}
