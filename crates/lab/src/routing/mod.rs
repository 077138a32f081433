//! Experts that passes are forced to use: those of a trace, or generated with the locality of published models.

mod forced;
mod locality;
mod trace;

pub use forced::{Routing, RoutingArg};
pub use locality::{LOCALITIES, Locality};
pub use trace::TraceWriter;
