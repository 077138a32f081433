//! Draft tokens: where they come from. `lookup` and `model` make them, `planner` decides how many.

pub(crate) mod acceptance;
mod drafter;
mod lookup;
mod model;
pub(crate) mod planner;
mod source;
mod times;

pub(crate) use drafter::{DraftRequest, DraftSampling, Drafter};
pub use source::{DraftSource, Drafts};
