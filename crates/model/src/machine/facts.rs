//! The facts, from the system where it states them.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

#[cfg(target_os = "linux")]
use super::linux as system;
#[cfg(not(target_os = "linux"))]
use super::other as system;

/// Logical processors that this process may use: affinity and control-group quota are respected. At least 1.
pub fn logical_cpus() -> usize {
    let allowed = system::logical_cpus().unwrap_or_else(|| available_parallelism().map_or(1, NonZeroUsize::get));
    within_quota(allowed, system::cpu_quota())
}

/// The number of processors that use up a quota, at least 1.
fn within_quota(cpus: usize, quota: Option<f64>) -> usize {
    // Rounded up: two threads use all of a quota of 1.5 processors, one thread uses two thirds of it.
    quota.map_or(cpus, |quota| cpus.min(quota.ceil() as usize)).max(1)
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
    fn quotas_are_used_up() {
        let cases = [(None, 4), (Some(1.5), 2), (Some(2.0), 2), (Some(0.1), 1), (Some(64.0), 4), (Some(1e300), 4)];
        assert_eq!(cases.map(|(quota, _)| within_quota(4, quota)), cases.map(|(_, cpus)| cpus));
        assert_eq!(within_quota(0, None), 1);
    }

    #[test]
    fn memory_is_known() {
        assert!(available_memory() > Some(0));
    }
}
