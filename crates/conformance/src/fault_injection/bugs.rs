//! Bugs that are put into the project's own kernels: mistakes that someone could make, written apart from the checker.

use gpu_sim::{Kind, Language};
use gristmill_cuda::family::Family;

/// A change of a kernel source, and the kinds of fault that count as noticing it.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// On which GPU.
    pub language: Language,
    /// The source.
    pub file: &'static str,
    /// A piece of the source; the first occurrence is replaced.
    pub find: &'static str,
    /// The text that replaces it.
    pub replace: &'static str,
    /// A part of the op suite that runs it.
    pub part: &'static str,
    /// With these kernels alone, if the backend seldom chooses them in small cases.
    pub family: Option<Family>,
    /// Kinds of fault: by the order of threads, memory is read too early or not written yet.
    pub kinds: &'static [Kind],
}

const fn bug(
    file: &'static str,
    find: &'static str,
    replace: &'static str,
    part: &'static str,
    kinds: &'static [Kind],
) -> Bug {
    Bug { language: Language::Cuda, file, find, replace, part, family: None, kinds }
}

/// The same where Metal runs it.
const fn metal(
    file: &'static str,
    find: &'static str,
    replace: &'static str,
    part: &'static str,
    kinds: &'static [Kind],
) -> Bug {
    Bug { language: Language::Metal, file, find, replace, part, family: None, kinds }
}

/// In `gemm_wgmma.cu`.
const fn wgmma(find: &'static str, replace: &'static str, part: &'static str, kinds: &'static [Kind]) -> Bug {
    Bug { family: Some(Family::Wgmma), ..bug("gemm_wgmma.cu", find, replace, part, kinds) }
}

/// In `staged.cuh`.
const fn staged(find: &'static str, replace: &'static str, part: &'static str, kinds: &'static [Kind]) -> Bug {
    Bug { family: Some(Family::Wgmma), ..bug("staged.cuh", find, replace, part, kinds) }
}

/// In `gemm_int8_tile.cu`.
const fn int8_tile(find: &'static str, replace: &'static str, part: &'static str, kinds: &'static [Kind]) -> Bug {
    Bug { family: Some(Family::Int8), ..bug("gemm_int8_tile.cu", find, replace, part, kinds) }
}

/// At least three of each kind.
#[rustfmt::skip]
pub const BUGS: &[Bug] = &[
    bug("elementwise.h", "Four a = load_four(x + row * p.x_stride + col, left,", "Four a = load_four(x + row * p.x_stride + col, left + 1,", "add", &[Kind::OutOfBounds]),
    bug("embed.gpu", "span < row.blocks * F::SPANS", "span < (row.blocks + 1) * F::SPANS", "embed", &[Kind::OutOfBounds, Kind::RaceInGrid]),
    bug("activations.gpu", "bool live = at < u64(p.rows) * blocks", "bool live = at <= u64(p.rows) * blocks", "matmul_rows", &[Kind::OutOfBounds]),
    bug("norm.h", "load_four(weight + at, p.width - at, p.aligned);\n        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor", "load_four(weight + at, p.width + 4 - at, p.aligned);\n        for (u32 i = 0; i < 4; i++) v.at[i] = v.at[i] * factor", "rms_norm", &[Kind::OutOfBounds]),
    bug("elementwise.h", "col, left, p.aligned), b =", "col, left, 1), b =", "add", &[Kind::Misaligned]),
    bug("norm.h", "load_four(x + at, p.width - at, p.aligned);\n        for (u32 i = 0; i < 4; i++) squares", "load_four(x + at, p.width - at, 1);\n        for (u32 i = 0; i < 4; i++) squares", "rms_norm", &[Kind::Misaligned]),
    bug("activations.gpu", "column, left, p.aligned && left > 0);\n    if", "column, left, left > 0);\n    if", "matmul_rows", &[Kind::Misaligned]),
    bug("norm.h", "rms_segment(here, x, weight, out, p.out_stride,", "rms_segment(here, x, weight, (float*)x, p.x_stride,", "rms_norm", &[Kind::Undeclared]),
    bug("elementwise.h", "b.at[i] = fmaf(factor, a.at[i], b.at[i]);\n    store_four(y + row * p.y_stride", "b.at[i] += factor * a.at[i];\n    store_four((float*)x + row * p.x_stride", "add", &[Kind::Undeclared]),
    bug("norm.h", "factor * w.at[i];\n        store", "factor * w.at[i] + out[at];\n        store", "rms_norm", &[Kind::Undeclared]),
    bug("group.h", "        warp_barrier();\n        if (inside", "        if (inside", "group_by_expert", &[Kind::RaceInWarp]),
    bug("group.h", "*place += count_ones(same);\n        warp_barrier();", "*place += count_ones(same);", "group_by_expert", &[Kind::RaceInWarp]),
    bug("reduce.h", "if (here.lane() == 31) scratch[here.warp()] = value;", "scratch[here.warp()] = value;", "group_by_expert", &[Kind::RaceInWarp]),
    bug("reduce.h", "if (here.lane() == 0) scratch[here.warp()] = value;\n    barrier();\n    return warp_sum", "if (here.lane() == 0) scratch[here.warp() % 2] = value;\n    barrier();\n    return warp_sum", "rms_norm", &[Kind::RaceInBlock]),
    bug("gemm.cu", "            barrier();\n            if (round + STAGES", "            if (round + STAGES", "matmul", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    bug("gemm_int8.cu", "multiplier.unpack(raw);\n                warp_barrier();", "multiplier.unpack(raw);", "matmul", &[Kind::RaceInWarp, Kind::Uninitialised]),
    Bug { family: Some(Family::Int8), ..bug("gemm_int8.cu", "multiplier.multiply(own + slab * ROW_TILES);\n                warp_barrier();", "multiplier.multiply(own + slab * ROW_TILES);", "matmul", &[Kind::RaceInWarp]) },
    int8_tile("            barrier();\n            const bool ends_share", "            const bool ends_share", "matmul", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    int8_tile("cp_async_wait<0>();", "cp_async_wait<1>();", "matmul", &[Kind::InFlight]),
    int8_tile("u32 row = x_of[token] == NO_ROW ? 0 : x_of[token];", "u32 row = x_of[token];", "matmul", &[Kind::OutOfBounds]),
    bug("delta_rule.gpu", "GROUP Stage& stage = stages[done / TOKENS % 2];", "GROUP Stage& stage = stages[0];", "delta_rule", &[Kind::RaceInBlock, Kind::RaceInWarp]),
    bug("delta_rule.gpu", "bool valid = token < left;\n        const", "bool valid = true;\n        const", "delta_rule", &[Kind::OutOfBounds]),
    bug("sample.h", "    barrier();\n    u64 sum = 0;", "    u64 sum = 0;", "sample", &[Kind::RaceInBlock, Kind::RaceInWarp]),
    bug("norm.h", "return {here.block_x(), here.thread_x()", "return {here.block_x() / 2, here.thread_x()", "rms_norm", &[Kind::RaceInGrid]),
    bug("embed.gpu", "out += here.block_x() * p.out_stride", "out += here.block_x() / 2 * p.out_stride", "embed", &[Kind::RaceInGrid]),
    bug("elementwise.h", "u64 row = here.block_x(), col = first_column(here), left = p.cols - col;\n    if (row >= p.rows || col >= p.cols) return;\n    Four b", "u64 row = here.block_x() / 2, col = first_column(here), left = p.cols - col;\n    if (row >= p.rows || col >= p.cols) return;\n    Four b", "scale", &[Kind::RaceInGrid]),
    bug("reduce.h", "    barrier();\n    return warp_sum(here.lane()", "    if (here.lane() == 0) barrier();\n    else\n    barrier();\n    return warp_sum(here.lane()", "rms_norm", &[Kind::Divergence]),
    bug("group.h", "    barrier();\n    PairRange mine", "    if (here.thread_x() < 20) barrier();\n    else\n    barrier();\n    PairRange mine", "group_by_expert", &[Kind::Divergence]),
    bug("gemm.cu", "        barrier();\n\n        const Copier", "        if (here.thread_x() < 32) barrier();\n        else\n        barrier();\n\n        const Copier", "matmul", &[Kind::Divergence]),
    bug("gemm.cu", "cp_async_wait<STAGES - 2>()", "cp_async_wait<STAGES - 1>()", "matmul", &[Kind::InFlight]),
    bug("gemm.cu", "cp_async_wait<STAGES - 2>();", "", "moe_matmul", &[Kind::InFlight]),
    bug("attention_latent.cuh", "cp_async_wait<0>();", "cp_async_wait<1>();", "attention", &[Kind::InFlight]),
    bug("attention_latent.cuh", "        barrier();\n        weigh(", "        weigh(", "attention", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    bug("attention_tile.cu", "cp_async_wait<1>();", "cp_async_wait<2>();", "attention", &[Kind::InFlight]),
    bug("attention_wgmma.cu", "wgmma_wait<1>();", "wgmma_wait<2>();", "attention", &[Kind::InFlight]),
    bug("attention_wgmma.cu", "    fence_async();\n    named_barrier_sync(WRITTEN", "    named_barrier_sync(WRITTEN", "attention", &[Kind::Unfenced]),
    bug("attention_wgmma.cu", "mbarrier_init(&empty[here.thread_x()], WARPS);", "mbarrier_init(&empty[here.thread_x()], WARPS - 1);", "attention_long", &[Kind::InFlight, Kind::RaceInBlock, Kind::Phase]),
    bug("reduce.h", "    barrier();\n    return warp_sum(here.lane()", "    return warp_sum(here.lane()", "rms_norm", &[Kind::Uninitialised]),
    bug("group.h", "i += here.block_width()) tables[i] = 0;", "i += here.block_width() + 1) tables[i] = 0;", "group_by_expert", &[Kind::Uninitialised]),
    bug("gemm.cu", "    for (u32 i = here.thread_x(); i < TOKENS; i += THREADS) {", "    for (u32 i = here.thread_x(); i < TOKENS - 1; i += THREADS) {", "matmul", &[Kind::Uninitialised]),
    staged("min(GATED ? own % 8 : own, last)", "(GATED ? own % 8 : own)", "matmul", &[Kind::OutOfBounds]),
    staged("bool valid = byte < left", "bool valid = true", "matmul", &[Kind::OutOfBounds]),
    wgmma("thread < TOKENS) y_of", "thread < TOKENS - 1) y_of", "matmul", &[Kind::Uninitialised]),
    wgmma("mbarrier_init(&full[here.thread_x()], COPIERS);", "mbarrier_init(&full[here.thread_x()], COPIERS - 1);", "matmul", &[Kind::Phase, Kind::RaceInBlock]),
    // Rows so long that stages are used again.
    wgmma("mbarrier_init(&empty[here.thread_x()], WARPS);", "mbarrier_init(&empty[here.thread_x()], WARPS + 1);", "matmul", &[Kind::Deadlock, Kind::Phase]),
    wgmma("wgmma_wait<1>();", "wgmma_wait<2>();", "matmul_rows", &[Kind::InFlight]),
    wgmma("wgmma_wait<0>();\n    stages.release(step - 1);", "stages.release(step - 1);\n    wgmma_wait<0>();", "matmul", &[Kind::InFlight, Kind::RaceInBlock]),
    wgmma("    wgmma_wait<0>();\n", "", "gate_up", &[Kind::InFlight, Kind::RaceInBlock]),
    wgmma("cp_async_wait<CHUNKS - 2>();", "cp_async_wait<CHUNKS - 1>();", "matmul", &[Kind::InFlight, Kind::Uninitialised, Kind::RaceInBlock]),
    // Bugs that only Metal can have: memory that a barrier does not order, weights as the file has them, its words.
    metal("route_and_group.h", "barrier_global();", "barrier();", "route_and_group", &[Kind::RaceInBlock]),
    metal("sample.h", "    }\n    barrier_global();\n    for (u64 token", "    }\n    barrier();\n    for (u64 token", "sample", &[Kind::RaceInBlock, Kind::RaceInWarp]),
    metal("reduce.h", "scratch[here.warp()] = value;\n    barrier();\n    return warp_sum", "scratch[here.warp()] = value;\n    return warp_sum", "rms_norm", &[Kind::RaceInBlock, Kind::Uninitialised]),
    metal("device_metal.h", "threadgroup_barrier(mem_flags::mem_threadgroup); }", "threadgroup_barrier(mem_flags::mem_device); }", "group_by_expert", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    metal("device_metal.h", "simdgroup_barrier(mem_flags::mem_threadgroup)", "simdgroup_barrier(mem_flags::mem_none)", "group_by_expert", &[Kind::RaceInWarp]),
    metal("weight.h", "if (left >= 16) return field.four_words();", "if (left > 0) return field.four_words();", "embed", &[Kind::OutOfBounds]),
    metal("weight.h", "if (row.blocks % (16 / BYTES) == 0) return", "return", "embed", &[Kind::Misaligned, Kind::OutOfBounds]),
    metal("weight.h", "if (STRIDE % 2 == 0) return load_16(from) | load_16(from + 2) << 16;", "if (STRIDE % 2 == 0) return load_32(from);", "embed", &[Kind::Misaligned]),
    metal("gemm.metal", "        // All threads have read the step before.\n        barrier();", "", "matmul_rows", &[Kind::RaceInBlock, Kind::RaceInWarp]),
    metal("gemm.metal", "        barrier();\n#pragma unroll\n        for (int k = 0; k < BLOCKS; k++) {", "#pragma unroll\n        for (int k = 0; k < BLOCKS; k++) {", "gate_up", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    metal("gemm.metal", "load_columns(x_from, column + 4, x_cols)", "load_columns(x_from, column + 4, x_cols + 8)", "matmul", &[Kind::OutOfBounds]),
    metal("tasks.h", "u64 row = min(output, p.outputs - 1);", "u64 row = output;", "matmul", &[Kind::OutOfBounds]),
    metal("tasks.h", "{tile[0], tile[1], tile[1] + tile[2]}", "{tile[0], tile[1], tile[1] + tile[2] + 1}", "moe_matmul", &[Kind::RaceInGrid, Kind::OutOfBounds]),
    metal("tasks.h", "    if (cols % 4 == 0) {\n        if (column < cols) four", "    {\n        if (column < cols) four", "matmul", &[Kind::Misaligned, Kind::OutOfBounds]),
    metal("norm_matmul.h", "    if (here.block_x() > 0) return;\n", "", "norm_matmul", &[Kind::RaceInGrid]),
    metal("experts.h", "        barrier();\n        if (here.thread_x() < rows)", "        if (here.thread_x() < rows)", "experts", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    metal("group.h", "i < GRIDS; i +=", "i <= GRIDS; i +=", "group_by_expert", &[Kind::OutOfBounds]),
    metal("attention_walk.h", "    // All lanes have read the patch before.\n    warp_barrier();", "", "attention", &[Kind::RaceInWarp]),
    metal("attention_walk.h", "        barrier();\n        weigh(", "        weigh(", "attention", &[Kind::RaceInBlock, Kind::RaceInWarp, Kind::Uninitialised]),
    metal("attention.h", "to.out + token * p.out_stride + column", "to.out + token / 2 * p.out_stride + column", "attention", &[Kind::RaceInGrid, Kind::RaceInBlock, Kind::RaceInWarp]),
    metal("attention.h", "column, four, p.value_width - d, p.aligned_out);\n    if (p.prepared)", "column, four, p.value_width - d, true);\n    if (p.prepared)", "attention", &[Kind::Misaligned, Kind::OutOfBounds]),
    metal("attention.h", "            float factor = shuffle(share, split);\n            if (!inside) continue;", "            if (!inside) continue;\n            float factor = shuffle(share, split);", "attention", &[Kind::Collective, Kind::Divergence]),
];
