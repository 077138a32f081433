//! Quantises a folder as MLX does: one with the same files, whose matrices are affine codes.
//!
//! Matrices of whole groups get codes, embeddings and output head too; routers and all other tensors stay as they are.
//! Experts are stacked, as mlx-lm names them.

mod affine;
mod plan;
mod quantizer;
mod settings;
mod write;

pub use quantizer::{MlxQuantizer, MlxWidths};
