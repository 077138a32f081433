// Weights times few rows of activations: dense ones, and those of experts, where one launch serves all pairs. The grid's x
// counts groups of weight rows, y tasks (`tasks.h`).
#include "experts.h"
#include "gemv.h"
#include "norm_matmul.h"

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

// Y = X · Wᵀ + bias, or H = activation(gate · x + bias, up · x + bias), TOKENS rows at a time.
template <bool GATED, int TOKENS>
DEV void multiply_tasks(Here here, const Weights weights, const GLOBAL float* x, const Rows rows, GLOBAL float* y,
                        const ProductParams p) {
    constexpr u32 OUTPUTS = GATED ? GATE_ROWS : GROUP_ROWS, EACH = GROUP_ROWS / OUTPUTS;
    LaneGroup group = lane_group_of(here, p.cut);
    u32 groups = BLOCK_THREADS >> p.cut, stride = task_stride(here, p);
    u32 begin = here.block_x() * groups * OUTPUTS, first_output = begin + group.number * OUTPUTS;
    if (here.block_y() == stride) {
        zero_pairs(here, p, rows, begin, begin + groups * OUTPUTS, y);
        return;
    }
    u32 count = task_count(p, rows, TOKENS);
    for (u32 number = here.block_y(); number < count; number += stride) {
        Task task = task_of(p, rows, number, TOKENS);
        Row w[GROUP_ROWS];
        lane_group_weights<GATED>(p, weights, task.expert, first_output, w);
        for (u32 first = task.first; first < task.end; first += TOKENS) {
            float sums[GROUP_ROWS][TOKENS] = {};
            u32 missing = 0;
            Inputs<TOKENS> inputs = find_inputs<TOKENS>(p, rows, x, first, task.end, missing);
            // Without rows of X all are missing.
            if (p.x_rows > 0) multiply(w, group, inputs, sums);
#pragma unroll
            for (u32 i = 0; i < OUTPUTS * TOKENS; i++) {
                u32 o = i % OUTPUTS, t = i / OUTPUTS, output = first_output + o;
                // Each is written by another lane.
                if ((i & (group.size - 1)) != group.member || output >= p.outputs || first + t >= task.end) continue;
                GLOBAL float* to = y + output_row(p, rows, first + t) * p.y_stride + output;
                float product = sums[EACH * o][t] + bias_of(p, weights.bias, task.expert, output);
                if (GATED) {
                    float up = sums[EACH * o + EACH - 1][t] + bias_of(p, weights.up_bias, task.expert, output);
                    *to = activate(p.epilogue.activation, product, up);
                } else {
                    apply_epilogue(p.epilogue, to, missing >> t & 1 ? 0.0f : product);
                }
            }
        }
    }
}

KERNEL_BOUNDED(matmul, BLOCK_THREADS, 1)
MATMUL_ARGUMENTS {
    HERE;
    multiply_tasks<false, 1>(here, MATMUL_OPERANDS);
}

KERNEL_BOUNDED(matmul_several, BLOCK_THREADS, 1)
MATMUL_ARGUMENTS {
    HERE;
    multiply_tasks<false, 4>(here, MATMUL_OPERANDS);
}

KERNEL_BOUNDED(gate_up, BLOCK_THREADS, 1)
GATE_UP_ARGUMENTS {
    HERE;
    multiply_tasks<true, 1>(here, GATE_UP_OPERANDS);
}

KERNEL_BOUNDED(gate_up_several, BLOCK_THREADS, 1)
GATE_UP_ARGUMENTS {
    HERE;
    multiply_tasks<true, 4>(here, GATE_UP_OPERANDS);
}
