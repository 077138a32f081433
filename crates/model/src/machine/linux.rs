//! Processors and memory from Linux's /proc and /sys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::control_group::ControlGroups;

pub(super) fn available_memory() -> Option<u64> {
    let system = proc_kib("/proc/meminfo", "MemAvailable");
    [system, ControlGroups::of_process().and_then(|groups| groups.memory())].into_iter().flatten().min()
}

pub(super) fn peak_memory() -> Option<u64> {
    proc_kib("/proc/self/status", "VmHWM")
}

pub(super) fn cpu_name() -> Option<String> {
    proc_field("/proc/cpuinfo", "model name")
}

/// The processors in the process's affinity mask.
fn allowed_cpus() -> Option<Vec<usize>> {
    Some(cpu_list(&proc_field("/proc/self/status", "Cpus_allowed_list")?))
}

pub(super) fn logical_cpus() -> Option<usize> {
    allowed_cpus().map(|cpus| cpus.len())
}

pub(super) fn cpu_quota() -> Option<f64> {
    ControlGroups::of_process()?.cpus()
}

/// Cores whose hardware threads are in the process's affinity mask.
pub(super) fn cores() -> Option<usize> {
    cores_of(Path::new("/sys/devices/system/cpu"), &allowed_cpus()?)
}

/// Cores that have one of these hardware threads.
fn cores_of(system: &Path, cpus: &[usize]) -> Option<usize> {
    let siblings =
        |cpu: &usize| fs::read_to_string(system.join(format!("cpu{cpu}/topology/thread_siblings_list"))).ok();
    let cores: Option<BTreeSet<String>> = cpus.iter().map(siblings).collect();
    cores.map(|cores| cores.len())
}

/// Expands a list such as `0-3,8`. The kernel wrote it; invalid entries are skipped.
fn cpu_list(list: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

/// The rest of a line `name: rest` of a file in /proc.
fn proc_field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(rest.trim().to_owned())
}

/// A field such as `MemAvailable: 12 kB` in bytes.
fn proc_kib(path: &str, name: &str) -> Option<u64> {
    proc_field(path, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("5"), [5]);
        assert_eq!(cpu_list(""), [0; 0]);
    }

    #[test]
    fn hardware_threads_of_a_core_count_once() {
        let system = std::env::temp_dir().join(format!("gristmill-cores-{}", std::process::id()));
        let _ = fs::remove_dir_all(&system);
        for (cpu, siblings) in ["0,4", "1,5", "2,6", "3", "0,4", "1,5", "2,6"].iter().enumerate() {
            let topology = system.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        let cores = |list| cores_of(&system, &cpu_list(list));
        assert_eq!(["0-6", "0-3", "4-6", "0,4", "3"].map(cores), [4, 4, 3, 1, 1].map(Some));
        // A system that does not state it.
        assert_eq!(cores("0-7"), None);
        let _ = fs::remove_dir_all(&system);
    }

    #[test]
    fn the_peak_counts_what_was_used() {
        let block = vec![1_u8; 8 << 20];
        assert!(peak_memory() >= Some(std::hint::black_box(&block).len() as u64));
    }
}
