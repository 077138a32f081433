//! The experts that a model's routers choose for a text.

mod blocks;
mod load;
mod picture;
mod usage;

pub use blocks::Blocks;
pub use load::read_load;
pub use picture::write as write_picture;
pub use usage::{LayerUsage, Report, count, top_k};
