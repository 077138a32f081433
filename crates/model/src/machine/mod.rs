//! Processors and memory that this process may use. On Linux control groups count; an unknown value is `None`, never a
//! guess.

#[cfg(target_os = "linux")]
mod control_group;
mod facts;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

pub use facts::{available_memory, cpu_name, logical_cpus, peak_memory, physical_cores};
