//! A model's weights: which tensors of a file they are, [`survey`]ed before anything is loaded, and [`load`]ed.

mod cut;
mod find;
mod load;
mod loaded;
mod outer_scale;
mod streamed;
mod survey;
mod transposed;

pub(crate) use load::load;
pub(crate) use loaded::Weights;
pub(crate) use survey::{WeightShapes, survey};
