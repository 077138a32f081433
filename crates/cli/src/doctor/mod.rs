//! `doctor`: checks drivers, devices, and the results of their operations.

mod ahead;
mod checks;
mod cuda;
mod finding;
#[cfg(target_os = "macos")]
mod metal;
mod model;
mod ops;
mod run;

pub(crate) use run::{DoctorArgs, run};
