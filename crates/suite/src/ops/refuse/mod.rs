//! Bad arguments: every operation refuses them with the right error and writes nothing.

mod attention;
mod common;
mod compositions;
mod experts;
mod latent;
mod matrices;
mod memory;
mod norms;
mod recurrent;
mod rows;
mod sampling;

pub use attention::attention;
pub use compositions::compositions;
pub use experts::experts;
pub use matrices::matrices;
pub use memory::memory;
pub use recurrent::recurrent;
pub use rows::rows;
pub use sampling::sampling;
