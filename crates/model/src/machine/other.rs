//! Processors and memory on systems other than Linux, through `sysinfo`.

use sysinfo::System;

pub(super) fn logical_cpus() -> Option<usize> {
    None
}

pub(super) fn cpu_quota() -> Option<f64> {
    None
}

pub(super) fn cores() -> Option<usize> {
    System::physical_core_count().ok()
}

pub(super) fn available_memory() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    // `sysinfo` gives 0 for unknown, on macOS also under memory pressure; free memory is then a lower bound.
    [system.available_memory(), system.free_memory()].into_iter().find(|&bytes| bytes > 0)
}

pub(super) fn peak_memory() -> Option<u64> {
    None
}

pub(super) fn cpu_name() -> Option<String> {
    None
}
