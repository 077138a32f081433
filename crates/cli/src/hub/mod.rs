//! Models of the hub: the settings of the environment, and the one way from a model's name to its files.

pub(crate) mod models;
mod progress;
pub(crate) mod pull;
mod recommended;
mod resolve;
pub(crate) mod rm;

pub(crate) use resolve::{Choices, cache, cached, client, name, no_models, path, set_offline_here, stay_offline};
use resolve::{reference, references};
