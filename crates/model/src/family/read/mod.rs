//! Reads metadata into parts of a spec, and records the keys that were read, so unused keys can be listed.

mod attention;
mod keys;
mod latent;
mod layers;
mod mlp;
mod model;
mod recurrent;
mod source;
mod tower;
mod windows;

pub(in crate::family) use attention::Sections;
pub(in crate::family) use keys::KeyReader;
pub(crate) use source::Source;
pub(in crate::family) use tower::projector;
