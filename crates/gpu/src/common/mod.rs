//! The operations that all GPUs share, host side: shapes to launches. One file for each family. The sources in
//! `kernels/` declare the parameter structs too.

#[macro_use]
pub(crate) mod on_device;

pub mod activations;
pub(crate) mod add_norm;
pub(crate) mod argmax;
pub mod elementwise;
pub(crate) mod embed;
mod grid;
pub mod group;
pub mod kv;
pub(crate) mod latent_write;
pub(crate) mod multiply_act;
pub(crate) mod norm;
pub mod norm_act;
pub mod qkv_write;
pub(crate) mod recurrent;
pub(crate) mod rope;
pub mod route;
mod row_alignment;
pub(crate) mod sample;
pub(crate) mod scan;
mod units;

pub use row_alignment::{RowAlignment, aligned};
pub(super) use units::SHARED_STRUCTS;
pub use units::units;
