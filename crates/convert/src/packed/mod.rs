//! Weights that GPTQ, AWQ, AutoRound, compressed-tensors and ModelOpt have quantised.
//!
//! ```text
//! quantization_config ── settings ──► method ┐
//! tensors of a module ── find ──────────────►┴─ integers: codes in groups, each with a scale and a zero point
//!                                             │    └─ reorder: columns of groups that are not consecutive
//!                                             └─ floats: FP8, MXFP8, MXFP4 and NVFP4, as MLX and DeepSeek have them
//! ```
//! Integers become blocks with the same values, which kernels read (`integers.rs`). `layout.rs` says where a code is.
//!
//! # Codes of other quantisers become formats that exist
//!
//! GPTQ, AWQ and compressed-tensors differ in how they pack codes and zero points. They become Q4_0, Q8_0, affine codes, or
//! `INT4_64`, whose head has a zero point instead of a bias, so no kernel is for one of these programs. FP8 is a float format
//! with blocks (`FP8_64`). GPUs read it as codes whose numbers are not their integers (`IsE4m3` in `weight.h`).
//! Columns that `desc_act` has scattered are put in the order of their groups, and the engine gathers the inputs
//! (`reorder.rs`).
//! *Names and types of tensors say how a module is stored; settings only confirm it, so no pattern of module names is read.*

mod find;
mod integers;
mod layout;
mod names;
mod reorder;
mod settings;

pub(super) use integers::{Integers, joined};
pub(super) use names::{SCALES_OF_ACTIVATIONS, WEIGHTS};
pub(super) use reorder::reorder;
pub(super) use settings::{Packed, config};
