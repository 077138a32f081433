//! Ranks on this machine, as processes. MPI reports the death of a process to no other; `mpirun` ends them all after it, without
//! leaving them the time to answer requests.

use std::fs;

/// Names this process for others: the machine and its numbering of processes, then the number. Empty if it is not known.
pub(super) fn name() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    match fs::read_link("/proc/self/ns/pid") {
        Ok(space) => format!("{} {} {}", boot.trim(), space.display(), std::process::id()),
        Err(_) => String::new(),
    }
}

/// The number of the process `other`, if it is of this machine.
pub(super) fn process(own: &str, other: &str) -> Option<u32> {
    let (machine, _) = own.rsplit_once(' ')?;
    let (its_machine, process) = other.rsplit_once(' ')?;
    if machine == its_machine { process.parse().ok() } else { None }
}

/// Whether a process has ended. Its parent may not know yet: then it is a zombie.
pub(super) fn has_ended(process: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    // The name, in parentheses, can contain anything.
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_ends_when_it_is_a_zombie() {
        let own = name();
        assert_eq!(process(&own, &own), Some(std::process::id()));
        assert_eq!(process(&own, "another machine 1"), None);
        assert_eq!(process("", ""), None);
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!has_ended(child.id()));
        child.kill().unwrap();
        let start = std::time::Instant::now();
        while !has_ended(child.id()) {
            assert!(start.elapsed().as_secs() < 10);
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }
}
