//! Jinja's filters.

mod lists;
mod numbers;
mod table;
mod texts;

pub(super) use table::{MISSING, add, exists};
