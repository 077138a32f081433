//! AMX: tiles of bfloat16, beside the vectors of [`Avx512`].
//!
//! Products with few activation rows, and all other operations, are those of level `avx512`, so this level adds one loop
//! (`amx/product.rs`) and compiles no kernel a second time. A row has other bits among eight or more rows than alone:
//! int8 activations become bfloat16, whose error is about thirteen times smaller (docs/determinism.md).
//!
//! The intrinsics are unstable (Rust issue 126622), so `asm!` has the instructions. The compiler never uses tile
//! registers, so none is a clobber.

#![allow(unsafe_code)]

mod activations;
mod product;
mod token;
mod weights;

use super::Avx512;
pub(crate) use activations::TileRows;
pub(crate) use product::TileProduct;
pub use token::Amx;
use token::{Line, Tile, ZERO};
