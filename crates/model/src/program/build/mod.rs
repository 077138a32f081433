//! Builds the program of a model. This is the only code that walks the structure of a layer.

mod builder;
mod channels;
mod heads;
mod heads_of_rank;
mod inputs;
mod latent;
mod mixers;
mod mlp;
mod norms;
mod scan;
mod walk;

pub(crate) use walk::build;
