//! The operations that all GPUs share, host side: shapes to launches. One file for each family.

pub(crate) mod elementwise;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod sample;
