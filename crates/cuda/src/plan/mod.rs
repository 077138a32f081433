//! Which kernel multiplies, with which tile and split: the only place that decides it. A [`Plan`] is a function of a
//! product's [`Shape`] and of the [`Card`]. The files beside this folder launch what a plan says, and
//! [`crate::units`] lists every unit that a plan can name.
//!
//! # CUDA products
//!
//! CUDA products have four families, chosen by the number of rows as known on the host (`plan/choose.rs`). Where one
//! becomes faster than another is a row of numbers for each architecture (`plan/thresholds.rs`).
//!
//! | kernel source | instructions | rows |
//! | --- | --- | --- |
//! | `gemv.cu` | dot products | 1 or 2 |
//! | `gemm_int8.cu` | int8 on tensor cores | up to 16 |
//! | `gemm.cu` | `mma` in bfloat16 | more than the families above |
//! | `gemm_wgmma.cu` | `wgmma` in bfloat16, on compute capability 9.0 | most |
//!
//! Weights are on the long side of the tensor core. The lane that loaded them unpacks them in registers, once for up to
//! 64 tokens. Only activations pass through shared memory, in `gemm_wgmma.cu` weights too. If tiles are fewer than
//! multiprocessors, several blocks share a tile's columns, and `gemm_sum.cu` adds their sums. In `gemm_wgmma.cu`, the device
//! copies activations by itself, started by warps that do not multiply. If the last two families compute experts, gate and
//! up write the bfloat16 activations that down reads. Down then writes bfloat16 that is summed
//! (`gpu/src/experts/rounded.rs`). *Products with int8 activations depend on the number of rows, within the tolerance
//! of int8.* A deterministic backend multiplies only by int8. For many rows it uses `gemm_int8_tile.cu`: the same sums
//! in the same order, with weights unpacked once for up to 64 rows.
//!
//! # Deterministic kernels
//!
//! Deterministic kernels (`Choice::Deterministic`, Metal's `Options::deterministic`) are chosen only by the weight.
//! `docs/determinism.md` lists for each operation what its choice depends on.
//!
//! - *A new choice by the number of rows has a line in that page. A deterministic backend makes such a choice only if a
//!   row's bits stay the same.*
//! - *Kernels that can compute the same row have the same order of sums. They write out roundings that a compiler could
//!   contract.*

mod card;
mod choose;
mod cut;
mod gemm;
mod gemm_f32;
mod gemv;
mod int8;
mod int8_few;
mod int8_many;
mod norm_matmul;
mod pairs;
mod shape;
mod thresholds;

pub(crate) use card::Card;
pub(crate) use choose::{Plan, representations, rounds_results, units};
pub(crate) use gemm::{GemmPlan, share_bytes};
pub(crate) use gemm_f32::GemmF32Plan;
pub(crate) use gemv::{GATE_OUTPUTS, GemvPlan, inputs, int8_define};
pub(crate) use int8::Int8Plan;
pub(crate) use norm_matmul::NormMatmulPlan;
pub(crate) use pairs::{LEAST_TILE_ROWS, few_tokens, tile_rows};
pub(crate) use shape::{Problem, Shape, reads_int8};

#[cfg(test)]
mod tests;
