// SPDX-License-Identifier: Apache-2.0
//! What bounds the memory of this process, and how much of it is left. Beyond a control group's limit there is no error: the kernel kills.

use std::fs;
use std::path::{Path, PathBuf};

/// From here on a number of bytes means that there is no limit.
const NO_LIMIT: u64 = 1 << 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// What is mapped, used or not.
    Addresses,
    /// What is used, by the process and by the kernel for it.
    Use,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub bounds: Bounds,
    /// Which limit it is, for people.
    pub name: String,
    pub remedy: String,
    /// Bytes.
    pub limit: u64,
    pub left: u64,
}

/// Every limit that this process is under.
pub fn limits() -> Vec<Limit> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut all: Vec<_> = address_space().into_iter().collect();
    all.extend(directories(&groups, &mounts).iter().filter_map(|group| of_group(group)));
    all
}

fn address_space() -> Option<Limit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an rlimit that the call fills.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    if !read || limit.rlim_cur >= NO_LIMIT {
        return None;
    }
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
    // SAFETY: asks for a number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(Limit {
        bounds: Bounds::Addresses,
        name: "the limit on this process' address space".to_string(),
        remedy: "raise it (`ulimit -v`, LimitAS= of a unit)".to_string(),
        limit: limit.rlim_cur,
        left: limit.rlim_cur.saturating_sub(pages * page),
    })
}

/// The control groups that count this process' memory, from its own up to the outermost that can be seen.
fn directories(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in groups.lines() {
        // `NUMBER:CONTROLLERS:PATH`; the second version has no controllers there.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let wanted = match controllers {
            "" => None,
            _ if controllers.split(',').any(|it| it == "memory") => Some("memory"),
            _ => continue,
        };
        let Some((root, place)) = mounts.lines().find_map(|line| mounted(line, wanted)) else { continue };
        // A container may see a part of the tree only.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let own = Path::new(place).join(below);
        all.extend(own.ancestors().take_while(|it| it.starts_with(place)).map(Path::to_path_buf));
    }
    all
}

/// The root and the place of a mount, by its line in mountinfo (proc(5)). controller : `None`: the second version's tree.
fn mounted<'a>(line: &'a str, controller: Option<&str>) -> Option<(&'a str, &'a str)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    let mut system = system.split(' ');
    let kind = system.next()?;
    let found = match controller {
        None => kind == "cgroup2",
        Some(name) => kind == "cgroup" && system.nth(1)?.split(',').any(|option| option == name),
    };
    found.then_some((root, place))
}

fn of_group(group: &Path) -> Option<Limit> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Of the second version, of the first, and what the kernel takes back from files before it kills.
    let (file, used, caches) = match number("memory.max") {
        Some(_) => ("memory.max", "memory.current", ["inactive_file", "active_file"]),
        None => {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", ["total_inactive_file", "total_active_file"])
        }
    };
    let limit = number(file).filter(|limit| *limit < NO_LIMIT)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached: u64 = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| caches.contains(name))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    let used = number(used)?.saturating_sub(cached);
    Some(Limit {
        bounds: Bounds::Use,
        name: format!("the limit of the control group {}", group.display()),
        remedy: format!("raise it ({file}, MemoryMax= of a unit)"),
        limit,
        left: limit.saturating_sub(used),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 25 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 25 0:29 /outer /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw
";

    #[test]
    fn the_groups_are_those_that_count_memory_up_to_the_mount() {
        let found = |groups| {
            let found = directories(groups, MOUNTS);
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        let memory = "/sys/fs/cgroup/memory";
        assert_eq!(
            found("4:memory:/a/b\n1:cpu:/c\n"),
            [&format!("{memory}/a/b"), &format!("{memory}/a"), memory]
        );
        assert_eq!(found("0::/outer/inner\n"), ["/sys/fs/cgroup/unified/inner", "/sys/fs/cgroup/unified"]);
        assert_eq!(found("5:pids:/\nnonsense\n"), [""; 0]);
        assert_eq!(directories("4:memory:/a\n", "nonsense\n"), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn what_files_take_can_be_had_back() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 300\ninactive_file 300\nactive_file 100\n");
        assert_eq!(of_group(folder.path()), None);
        write("memory.max", "1000\n");
        let limit = of_group(folder.path()).unwrap();
        assert_eq!((limit.limit, limit.left), (1000, 700));
        assert!(limit.name.contains("control group") && limit.remedy.contains("memory.max"));
    }
}
