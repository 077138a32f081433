//! How well a model predicts a text, and how far its predictions are from another model's.

mod divergence;
mod measure;
mod saved;
mod score;

pub use divergence::Divergence;
pub use measure::{Options, Report, Watch, measure, windows};
pub use saved::Saved;
pub use score::BATCH_ROWS;
