//! The facts, from the system where it states them.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(not(target_os = "linux"))]
use super::other as system;

/// Logical processors that this process may use: affinity and control-group quota are respected. At least 1.
pub fn logical_cpus() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Physical cores that this process may use, at least 1: hardware threads of one core count once, and a control-group
/// quota bounds the number. This is the sensible number of threads for kernels that are bound by memory.
pub fn physical_cores() -> usize {
    system::cores().unwrap_or(usize::MAX).clamp(1, logical_cpus())
}

/// The processor's name, for people; known on Linux, where its architecture reports it.
pub fn cpu_name() -> Option<String> {
    system::cpu_name()
}

/// Bytes that can be allocated without swapping: what the system calls available, or what the control group has left,
/// whichever is less.
pub fn available_memory() -> Option<u64> {
    system::available_memory()
}

/// The largest number of bytes of memory that this process has used so far; known on Linux.
pub fn peak_memory() -> Option<u64> {
    system::peak_memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_within_bounds() {
        assert!((1..=logical_cpus()).contains(&physical_cores()));
    }

    #[test]
    fn memory_is_known() {
        assert!(available_memory() > Some(0));
    }
}
