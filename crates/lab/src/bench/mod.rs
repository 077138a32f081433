//! The speed of a model, and its share of the machine's limit.

pub mod beside;
mod cost;
pub mod image;
pub mod machine;
mod measure;
mod measurement;
mod mixed;
mod profile;
mod report;
pub mod suite;
pub mod sweep;
#[cfg(test)]
mod tests;

pub use beside::Beside;
pub use image::{ImageReport, Images};
pub use machine::Machine;
pub use measure::{Bench, Workload};
pub use measurement::Measurement;
pub use mixed::{Served, serve};
pub use profile::{Phase, backend as profiled_backend};
pub use report::{Report, Row};
pub use suite::{Case, Outcome};
pub use sweep::{Plan as SweepPlan, Sweep};
