//! The paged cache and attention over it.

mod cases;
mod layout;
mod parameters;

pub(super) use cases::short_and_one_long;
pub use cases::{attention, attention_long, copy};
pub(super) use layout::{Layout, Written};
pub(super) use parameters::{FORMATS, Parameters, some_temperature, some_window};
