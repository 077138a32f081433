//! Processors and memory from Linux's /proc and /sys.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

pub(super) fn available_memory() -> Option<u64> {
    let system = proc_kib("/proc/meminfo", "MemAvailable");
    [system, control_group_memory()].into_iter().flatten().min()
}

pub(super) fn peak_memory() -> Option<u64> {
    proc_kib("/proc/self/status", "VmHWM")
}

pub(super) fn cpu_name() -> Option<String> {
    proc_field("/proc/cpuinfo", "model name")
}

/// Cores whose hardware threads are in the process's affinity mask.
pub(super) fn cores() -> Option<usize> {
    let cpus = cpu_list(&proc_field("/proc/self/status", "Cpus_allowed_list")?);
    let siblings = |cpu: &usize| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    };
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

/// The memory, in bytes, that the process's control group (version 2 or 1) and the groups above it have left.
fn control_group_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(group_memory).min()
}

/// One line of `/proc/self/cgroup`: `number:controllers:path`, without controllers in version 2.
fn group_memory(line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let path = fields.next()?.trim_start_matches('/');
    let (root, limit, usage, cache) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        }
        _ => return None,
    };
    // Inside a container the path may be that of the host, and its group is then mounted as the root.
    let group = PathBuf::from(root).join(path);
    let left = |group: PathBuf| {
        let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        // File pages that can be dropped count as used until they are.
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()).unwrap_or(0);
        Some(number(limit)?.saturating_sub(number(usage)?.saturating_sub(cached)))
    };
    group.ancestors().take_while(|dir| dir.starts_with(root)).filter_map(|dir| left(dir.to_owned())).min()
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
    fn the_peak_counts_what_was_used() {
        let block = vec![1_u8; 8 << 20];
        assert!(peak_memory() >= Some(std::hint::black_box(&block).len() as u64));
    }
}
