//! Every operation in plain scalar Rust with f64 sums: the oracle of all tests.
//!
//! The code follows the contracts in [`crate::ops`] literally. Weights stay in the file's layout and are decoded on the
//! fly; activations stay f32. The router, the grouping and the sampler are the plain algorithms. No code that computes
//! is shared with other backends.

mod attention;
mod backend;
mod elementwise;
mod experts;
mod matrix;
mod recurrent;
mod rows;
mod sample;
mod scan;

pub use backend::Reference;
