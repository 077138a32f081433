//! The cases, one file for each family of operations.

pub mod attention;
mod common;
pub mod compose;
pub mod epilogue;
pub mod experts;
pub mod gated;
pub mod matmul;
pub mod norms;
mod parts;
pub mod recurrent;
pub mod refuse;
pub mod route;
pub mod rows;
pub mod sample;
pub mod scan;

pub use parts::{ALL, Part, is_checked, part};
