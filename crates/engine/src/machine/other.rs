//! What other systems than Linux tell, through `sysinfo`.

use sysinfo::System;

pub(super) fn cores() -> Option<usize> {
    System::physical_core_count().ok()
}

pub(super) fn available_memory() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    // 0 is how it says that it does not know; on macOS it may do so under pressure, when what is free still counts.
    [system.available_memory(), system.free_memory()].into_iter().find(|&bytes| bytes > 0)
}

pub(super) fn peak_memory() -> Option<u64> {
    None
}

pub(super) fn cpu_name() -> Option<String> {
    None
}
