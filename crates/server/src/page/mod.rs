//! The page at `/`: files within the binary, which use the same interfaces as other clients.

mod assets;
mod policy;
pub(crate) mod serve;

pub use policy::{McpOrigin, McpOriginError};
pub(crate) use serve::{BASES, has, index, named};
