//! Fault injection: which cases of the op suite detect a changed kernel, in checked mode.

mod bugs;
mod calls;
mod cases;
mod map;
mod remembered;

pub use bugs::{BUGS, Bug};
pub use calls::{Call, orders};
pub use map::{Map, each, missed, plant};
