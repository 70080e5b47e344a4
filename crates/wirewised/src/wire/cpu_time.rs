// SPDX-License-Identifier: Apache-2.0
//! CPU time of threads, in nanoseconds: as the scheduler counts it (/proc/PID/task/TID/schedstat), not in ticks as /proc/stat does,
//! which on a machine that mostly sleeps between two packets sees next to nothing of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// hara2023 (Figure 5) tells these apart: `usr`, `sys` and `soft`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CpuTime {
    pub user_ns: f64,
    pub system_ns: f64,
    pub softirq_ns: f64,
}

impl CpuTime {
    pub fn sum_ns(&self) -> f64 {
        self.user_ns + self.system_ns + self.softirq_ns
    }
}

/// The threads whose time is measured.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// Of the kernel, which poll or run soft interrupts.
    pub softirq: Vec<u32>,
    /// All of whose threads count; `None`: nothing of it is in user space.
    pub process: Option<u32>,
}

/// What each thread has had so far.
#[derive(Debug)]
pub struct Reading(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    path: PathBuf,
    is_softirq: bool,
    run_ns: u64,
    /// In user and in system mode since it began, in ticks.
    ticks: (u64, u64),
}

impl Watched {
    pub fn read(&self) -> Reading {
        let softirq = self.softirq.iter().map(|id| (PathBuf::from(format!("/proc/{id}/task/{id}")), true));
        let tasks = self.process.into_iter().flat_map(|id| fs::read_dir(format!("/proc/{id}/task")));
        let own = tasks.flatten().flatten().map(|entry| (entry.path(), false));
        Reading(softirq.chain(own).filter_map(|(path, is_softirq)| Thread::read(path, is_softirq)).collect())
    }
}

impl Reading {
    /// From an earlier reading to this one.
    pub fn since(&self, before: &Reading) -> CpuTime {
        let mut sum = CpuTime::default();
        for thread in &self.0 {
            let earlier = before.0.iter().find(|earlier| earlier.path == thread.path);
            let run = thread.run_ns.saturating_sub(earlier.map_or(0, |it| it.run_ns)) as f64;
            if thread.is_softirq {
                sum.softirq_ns += run;
                continue;
            }
            // The kernel knows the sum; how much of it was in user mode it only samples, so all that it has seen so far counts.
            let (user, system) = thread.ticks;
            let share = if user + system == 0 { 0.0 } else { user as f64 / (user + system) as f64 };
            sum.user_ns += run * share;
            sum.system_ns += run * (1.0 - share);
        }
        sum
    }
}

impl Thread {
    /// `None`: it has ended.
    fn read(path: PathBuf, is_softirq: bool) -> Option<Self> {
        let run_ns =
            fs::read_to_string(path.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()?;
        let ticks = ticks(&fs::read_to_string(path.join("stat")).ok()?)?;
        Some(Self { path, is_softirq, run_ns, ticks })
    }
}

/// Of a `stat`: what follows the name, which may hold blanks and parentheses.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    const USER: usize = 11;
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(USER);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Processes, threads of the kernel among them, whose name starts so.
pub fn threads_called(start: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let name = |id: &u32| fs::read_to_string(Path::new("/proc").join(id.to_string()).join("comm"));
    ids.filter(|id| name(id).is_ok_and(|name| name.starts_with(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 250 50 9 9 20 0 1 0 5";
        assert_eq!(ticks(stat), Some((250, 50)));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn time_is_split_as_its_ticks_are() {
        let thread = |run_ns, ticks, is_softirq| Thread { path: "/proc/1".into(), is_softirq, run_ns, ticks };
        let own = Reading(vec![thread(1_000, (1, 1), false)]);
        let later = Reading(vec![thread(9_000, (3, 1), false)]);
        let time = later.since(&own);
        assert_eq!((time.user_ns, time.system_ns, time.softirq_ns), (6_000.0, 2_000.0, 0.0));
        assert_eq!(time.sum_ns(), 8_000.0);
        let polling = Reading(vec![thread(500, (0, 3), true)]);
        assert_eq!(polling.since(&Reading(Vec::new())).softirq_ns, 500.0);
    }

    #[test]
    fn this_process_takes_time() {
        let watched = Watched { softirq: Vec::new(), process: Some(std::process::id()) };
        let before = watched.read();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 50 {
            std::hint::spin_loop();
        }
        assert!(watched.read().since(&before).sum_ns() > 1e6);
    }
}
