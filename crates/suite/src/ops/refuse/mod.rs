//! Bad arguments: every operation refuses them with the right error and writes nothing. Those of operations with one
//! file of cases are in that file.

mod attention;
mod common;
mod compositions;
mod experts;
mod latent;
mod matrices;
mod memory;
mod norms;

pub use attention::attention;
pub use compositions::compositions;
pub use experts::experts;
pub use matrices::matrices;
pub use memory::memory;

pub(super) use common::{Kind, expect, ones, refused, runs_of, vector};
