//! The models of a server. `registry` loads them for requests and unloads them, `slot` has the state of one model,
//! `served` is a loaded model that a request uses.

mod offered;
mod registry;
mod served;
mod slot;

pub(crate) use offered::ModelQuery;
pub use offered::{LoadError, LoadProgress, LoadedModel, OfferedModel};
pub(crate) use registry::Registry;
pub(crate) use served::ServedModel;
pub(crate) use slot::{Slot, Status};
