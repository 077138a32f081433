//! Limits of the process's control group, of version 2 or 1, and of the groups above it.

use std::fs;
use std::path::{Path, PathBuf};

/// The groups of a process.
pub(super) struct ControlGroups {
    /// Lines of `/proc/self/cgroup`: `number:controllers:path`, without controllers in version 2.
    membership: String,
    /// Where the file systems of the groups are mounted.
    root: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

impl ControlGroups {
    pub(super) fn of_process() -> Option<Self> {
        let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(Self { membership, root: PathBuf::from("/sys/fs/cgroup") })
    }

    /// Bytes of memory that are left.
    pub(super) fn memory(&self) -> Option<u64> {
        self.groups("memory").into_iter().filter_map(|(version, group)| memory_left(version, &group)).min()
    }

    /// The quota of processor time, in processors.
    pub(super) fn cpus(&self) -> Option<f64> {
        let quotas = self.groups("cpu").into_iter().filter_map(|(version, group)| cpu_quota(version, &group));
        quotas.min_by(f64::total_cmp)
    }

    /// The folders of the process's group for a controller and of the groups above it.
    fn groups(&self, controller: &str) -> Vec<(Version, PathBuf)> {
        let of_line = |line: &str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            let (version, root) = match controllers {
                "" => (Version::Two, self.root.clone()),
                _ if controllers.split(',').any(|name| name == controller) => {
                    (Version::One, self.root.join(controller))
                }
                _ => return None,
            };
            // Inside a container the path may be that of the host, and its group is then mounted as the root.
            let group = root.join(path);
            Some(group.ancestors().take_while(|dir| dir.starts_with(&root)).map(|dir| (version, dir.into())).collect())
        };
        self.membership.lines().filter_map(of_line).flat_map(|groups: Vec<_>| groups).collect()
    }
}

fn number<T: std::str::FromStr>(group: &Path, file: &str) -> Option<T> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

fn memory_left(version: Version, group: &Path) -> Option<u64> {
    let (limit, usage, cache) = match version {
        Version::Two => ("memory.max", "memory.current", "inactive_file"),
        Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    };
    // File pages that can be dropped count as used until they are.
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()).unwrap_or(0);
    let usage: u64 = number(group, usage)?;
    Some(number::<u64>(group, limit)?.saturating_sub(usage.saturating_sub(cached)))
}

/// Without a quota, version 2 has the word `max` and version 1 a negative number.
fn cpu_quota(version: Version, group: &Path) -> Option<f64> {
    let (quota, period) = match version {
        Version::Two => {
            let text = fs::read_to_string(group.join("cpu.max")).ok()?;
            let mut numbers = text.split_whitespace().map(|number| number.parse::<f64>().ok());
            (numbers.next()??, numbers.next()??)
        }
        Version::One => (number(group, "cpu.cfs_quota_us")?, number(group, "cpu.cfs_period_us")?),
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of a process in a folder of files.
    fn groups(name: &str, membership: &str, files: &[(&str, &str)]) -> ControlGroups {
        let root = std::env::temp_dir().join(format!("gristmill-groups-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        ControlGroups { membership: membership.to_owned(), root }
    }

    #[test]
    fn the_least_quota_of_all_groups_counts() {
        let quota = |name, membership, files: &[(&str, &str)]| {
            let groups = groups(name, membership, files);
            let found = groups.cpus();
            let _ = fs::remove_dir_all(&groups.root);
            found
        };
        let two = "0::/a/b\n";
        assert_eq!(quota("none", two, &[]), None);
        assert_eq!(quota("max", two, &[("a/b/cpu.max", "max 100000\n"), ("a/cpu.max", "max 100000\n")]), None);
        assert_eq!(quota("own", two, &[("a/b/cpu.max", "150000 100000\n"), ("a/cpu.max", "max 100000\n")]), Some(1.5));
        assert_eq!(
            quota("above", two, &[("a/b/cpu.max", "300000 100000\n"), ("a/cpu.max", "5000 10000\n")]),
            Some(0.5)
        );
        // A container sees its own group as the root.
        assert_eq!(quota("root", "0::/of/the/host\n", &[("cpu.max", "200000 100000\n")]), Some(2.0));
        let one = "9:memory:/a\n4:cpu,cpuacct:/a\n0::/\n";
        let v1 = |quota| [("cpu/a/cpu.cfs_quota_us", quota), ("cpu/a/cpu.cfs_period_us", "100000\n")];
        assert_eq!(quota("v1", one, &v1("250000\n")), Some(2.5));
        assert_eq!(quota("v1-none", one, &v1("-1\n")), None);
        assert_eq!(quota("v1-bad", one, &v1("many\n")), None);
    }

    #[test]
    fn memory_is_what_is_left() {
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 500\ninactive_file 200\n"),
            ("memory.max", "max\n"),
        ];
        let groups = groups("memory", "0::/a\n", &files);
        assert_eq!(groups.memory(), Some(500));
        let _ = fs::remove_dir_all(&groups.root);
    }
}
