//! The kernel sources of the backend, and the structs that they share with the host.

use super::{attention, experts, gather_rows, gemm, gemm_f32, gemm_sum, host_experts, norm_matmul, rates};
use gristmill_gpu::shared_struct::{SharedStruct, StructLayout};
use gristmill_gpu::source::{COMMON, Library};

/// The kernel sources of the backend.
pub const SOURCES: &[Library] = &[COMMON, gristmill_offload::SOURCES, OWN];

const OWN: Library = gristmill_gpu::library!("cuda", language Some("device_cuda.h"), SHARED_STRUCTS,
    [
        "attention.cuh",
        "attention_combine.cu",
        "attention_decode.cu",
        "attention_decode.cuh",
        "attention_kv_write.cuh",
        "attention_latent.cu",
        "attention_latent.cuh",
        "attention_latent_split.cu",
        "attention_mma.cuh",
        "attention_neighbours.cu",
        "attention_result.cuh",
        "attention_rows.cuh",
        "attention_runs.cuh",
        "attention_split.cu",
        "attention_tile.cu",
        "attention_wgmma.cu",
        "device_cuda.h",
        "experts.cu",
        "gated.cuh",
        "gated_out.cuh",
        "gather_rows.cu",
        "gemm.cu",
        "gemm.cuh",
        "gemm_f32.cu",
        "gemm_int8.cu",
        "gemm_int8_tile.cu",
        "gemm_sum.cu",
        "gemm_wgmma.cu",
        "gemv.cu",
        "gemv.cuh",
        "host_experts.cu",
        "hopper.cuh",
        "int8_sums.cuh",
        "norm_matmul.cu",
        "ptx.cuh",
        "quarter_row.cuh",
        "rates.cu",
        "row_chunks.cuh",
        "shared_act.cuh",
        "staged.cuh",
        "system.cuh",
    ]
);

/// Structs that the sources declare and the host fills.
const SHARED_STRUCTS: &[StructLayout] = &[
    attention::AttentionParams::LAYOUT,
    attention::KvWriteParams::LAYOUT,
    attention::DecodeParams::LAYOUT,
    experts::ExpertsParams::LAYOUT,
    gather_rows::GatherRowsParams::LAYOUT,
    gemm::GemmParams::LAYOUT,
    gemm_f32::GemmF32Params::LAYOUT,
    gemm_sum::GemmSumParams::LAYOUT,
    host_experts::PostParams::LAYOUT,
    host_experts::ReceiveParams::LAYOUT,
    norm_matmul::NormMatmulParams::LAYOUT,
    rates::ReadParams::LAYOUT,
    rates::MultiplyParams::LAYOUT,
];
