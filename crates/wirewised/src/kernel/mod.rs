// SPDX-License-Identifier: Apache-2.0
//! What this process may do and what this kernel is.

pub(crate) mod assembler;
pub mod bpffs;
pub(crate) mod change;
pub(crate) mod jiffies;
pub(crate) mod libbpf_log;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod note;
pub mod objects;
pub(crate) mod pinned;

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// The oldest kernel whose verifier accepts what wirewise generates.
pub const OLDEST: (u32, u32) = (5, 15);

/// The capabilities the data path needs, with their bit in `CapEff` (linux/capability.h).
const CAPABILITIES: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;

/// The kernel release, such as `6.1.0-18-amd64`.
pub fn release() -> String {
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => release.trim().to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

/// Major and minor version of a release; `None` if it does not start with two numbers.
pub fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Which of the needed capabilities this process lacks.
pub fn missing_capabilities() -> Vec<&'static str> {
    missing_in(effective_capabilities())
}

/// Whether this process may mount file systems.
pub fn may_mount() -> bool {
    effective_capabilities() >> CAP_SYS_ADMIN & 1 == 1
}

pub fn may_open_raw_sockets() -> bool {
    effective_capabilities() >> CAP_NET_RAW & 1 == 1
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn missing_in(effective: u64) -> Vec<&'static str> {
    let has = |bit: u32| effective >> bit & 1 == 1;
    // CAP_SYS_ADMIN includes what was split off from it, which has the bits from 32 on.
    let may = |bit: u32| has(bit) || (bit >= 32 && has(CAP_SYS_ADMIN));
    CAPABILITIES.iter().filter(|(_, bit)| !may(*bit)).map(|(name, _)| *name).collect()
}

/// How others than root come to run programs. With capabilities in a file, whoever may run it has them: hence a group, whose
/// members alone may. Another group takes capabilities away, so they come last.
pub const SHARE: &str = "let a group do it: `chgrp wirewise FILE; chmod 0750 FILE; \
     setcap cap_bpf,cap_net_admin,cap_perfmon+ep FILE`, where FILE is $(command -v wirewised)";

/// Refuses to go on where loading a program cannot work: a kernel too old, or a capability missing.
pub fn require() -> Result<()> {
    let release = release();
    if version_of(&release).is_some_and(|version| version < OLDEST) {
        return Err(Error::missing(format!(
            "kernel {release} is too old: wirewise needs Linux {}.{} or newer",
            OLDEST.0, OLDEST.1
        )));
    }
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::missing(format!("missing {}: run as root, or {SHARE}", missing.join(", "))))
}

/// CPUs this kernel can ever have; per-CPU map elements are indexed below this.
pub fn possible_cpus() -> Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|error| Error::missing(format!("cannot read the possible CPUs: {error}")))?;
    Ok(cpus as u32)
}

/// The CPUs that run now.
pub fn online_cpus() -> Result<Vec<u32>> {
    const LIST: &str = "/sys/devices/system/cpu/online";
    let unreadable = |what: &dyn std::fmt::Display| Error::missing(format!("{LIST}: {what}"));
    let text = std::fs::read_to_string(LIST).map_err(|error| unreadable(&error))?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    Ok(ranges.ok_or_else(|| unreadable(&text.trim()))?.into_iter().flatten().collect())
}

/// The CPUs this thread may use, in order; at least one.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    // SAFETY: cpu_set_t is a plain bit mask, for which zero is a value.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `allowed` is a cpu_set_t of `size` bytes, which the call fills.
    if unsafe { libc::sched_getaffinity(0, size, &mut allowed) } != 0 {
        return Err(affinity_error());
    }
    // SAFETY: CPU_ISSET reads the bit of a CPU below CPU_SETSIZE of a filled mask.
    let set = |&cpu: &u32| unsafe { libc::CPU_ISSET(cpu as usize, &allowed) };
    let cpus: Vec<u32> = (0..libc::CPU_SETSIZE as u32).filter(set).collect();
    if cpus.is_empty() { Err(affinity_error()) } else { Ok(cpus) }
}

/// Keeps this thread on a CPU. It is there when this returns.
pub fn pin_to(cpu: u32) -> Result<()> {
    pin_thread(0, cpu)
}

/// Keeps a thread on a CPU. id : 0: this one.
pub fn pin_thread(id: u32, cpu: u32) -> Result<()> {
    // SAFETY: cpu_set_t is a plain bit mask, for which zero is a value.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET changes a bit of the mask if `cpu` is below CPU_SETSIZE, and nothing otherwise.
    unsafe { libc::CPU_SET(cpu as usize, &mut one) };
    // SAFETY: `one` is a cpu_set_t of its size in bytes, which the call reads.
    if unsafe { libc::sched_setaffinity(id as libc::pid_t, size_of::<libc::cpu_set_t>(), &one) } != 0 {
        return Err(affinity_error());
    }
    Ok(())
}

/// Gives another thread the niceness of this one.
pub fn share_niceness(id: u32) -> Result<()> {
    // SAFETY: both calls take numbers only. Of this process the first cannot fail.
    let code = unsafe { libc::setpriority(libc::PRIO_PROCESS, id, libc::getpriority(libc::PRIO_PROCESS, 0)) };
    match code {
        0 => Ok(()),
        _ => Err(Error::other(format!("cannot set the niceness of {id}: {}", io::Error::last_os_error()))),
    }
}

/// Has this thread run before all that share its CPU by turns.
pub fn come_first() -> Result<()> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter outlives the call, which is about this thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) } {
        0 => Ok(()),
        _ => Err(Error::missing(format!(
            "a thread cannot run in real time (CAP_SYS_NICE): {}",
            io::Error::last_os_error()
        ))),
    }
}

/// Has SIGUSR1 end a system call, and nothing else.
pub fn allow_interrupts() -> Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: zero is a value of every field of this plain C struct: an empty mask, and no flag that would begin the call again.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the action outlives the call, and its handler does nothing, which is async-signal-safe.
    match unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::other(format!("cannot handle signals: {}", io::Error::last_os_error()))),
    }
}

/// The number of this thread.
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing and changes nothing.
    unsafe { libc::gettid() }
}

/// Ends the system call that a thread of this process is in, after `allow_interrupts`. id : 0: none.
pub fn interrupt(id: i32) {
    if id > 0 {
        // SAFETY: takes numbers. The signal goes to a thread of this process, or nowhere if it has ended, and its handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGUSR1) };
    }
}

/// Keeps this thread on the first CPU it may use, and returns it. Where each CPU has flow tables of its own, a run that moved would
/// meet its own flows as new ones.
pub fn pin_to_one_cpu() -> Result<u32> {
    let cpu = *allowed_cpus()?.first().ok_or_else(affinity_error)?;
    pin_to(cpu).map(|()| cpu)
}

fn affinity_error() -> Error {
    Error::other(format!("cannot stay on one CPU: {}", io::Error::last_os_error()))
}

/// Waits until no CPU is at a packet that it began before: programs that were replaced have ended.
pub fn wait_for_packets() {
    /// `MEMBARRIER_CMD_GLOBAL` of linux/membarrier.h: synchronize_rcu().
    const GLOBAL: libc::c_long = 1;
    /// Where the kernel has no such call; far longer than any packet takes.
    const LONG: Duration = Duration::from_millis(100);
    // SAFETY: the call takes numbers and changes nothing.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(LONG);
    }
}

/// The clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    outside_namespace(clock_ns(libc::CLOCK_MONOTONIC), offsets().monotonic_ns)
}

/// When `monotonic_ns` was 0, in nanoseconds since 1970. Until the wall clock is set, all programs get the same number: a tick sets both
/// coarse clocks at once, so between two ticks they are exactly as far apart as the clocks themselves.
pub fn monotonic_epoch_ns() -> u64 {
    loop {
        let before = clock_ns(libc::CLOCK_MONOTONIC_COARSE);
        let wall = clock_ns(libc::CLOCK_REALTIME_COARSE);
        if clock_ns(libc::CLOCK_MONOTONIC_COARSE) == before {
            return wall.saturating_sub(outside_namespace(before, offsets().monotonic_ns));
        }
    }
}

/// The time between two ticks, which is how exact the data path's clock is at worst.
pub fn tick_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills a timespec that outlives it.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_nsec as u64
}

/// The clock of `bpf_ktime_get_boot_ns`, which goes on while the machine sleeps: what a person means by a length of time.
pub fn boot_ns() -> u64 {
    outside_namespace(clock_ns(libc::CLOCK_BOOTTIME), offsets().boottime_ns)
}

/// The same in whole seconds.
pub fn boot_s() -> u32 {
    (boot_ns() / 1_000_000_000) as u32
}

/// Whether clocks read by this process differ from those that programs in the kernel read.
pub fn is_in_time_namespace() -> bool {
    offsets() != Offsets::default()
}

fn outside_namespace(now_ns: u64, offset_ns: i64) -> u64 {
    now_ns.saturating_add_signed(offset_ns.saturating_neg())
}

/// By how much this process' time namespace is ahead of the machine, whose clocks the data path reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Offsets {
    monotonic_ns: i64,
    boottime_ns: i64,
}

fn offsets() -> Offsets {
    static OFFSETS: OnceLock<Offsets> = OnceLock::new();
    // No such file: the kernel knows no time namespaces.
    *OFFSETS
        .get_or_init(|| parse_offsets(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()))
}

/// Lines of clock, seconds and nanoseconds.
fn parse_offsets(text: &str) -> Offsets {
    let offset = |clock: &str| {
        let mut words = text.lines().find_map(|line| line.strip_prefix(clock))?.split_whitespace();
        let (seconds, nanoseconds): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    };
    Offsets { monotonic_ns: offset("monotonic").unwrap_or(0), boottime_ns: offset("boottime").unwrap_or(0) }
}

/// How long this thread has had a CPU.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec the call fills; the clocks asked for exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// As `hostname` shows it; `None`: there is none.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// This moment, RFC 3339 in UTC with seconds.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases() {
        assert_eq!(version_of("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.15"), Some((5, 15)));
        assert_eq!(version_of("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(version_of("next"), None);
        assert!(version_of("5.4.0-generic") < Some(OLDEST));
    }

    #[test]
    fn offsets_of_a_time_namespace_are_read() {
        let text = "monotonic      86400         5\nboottime     -864000 500000000\n";
        let offsets = parse_offsets(text);
        assert_eq!(offsets.monotonic_ns, 86_400_000_000_005);
        assert_eq!(offsets.boottime_ns, -863_999_500_000_000);
        assert_eq!(outside_namespace(1, offsets.boottime_ns), 863_999_500_000_001);
        assert_eq!(outside_namespace(86_400_000_000_006, offsets.monotonic_ns), 1);
        assert_eq!(parse_offsets(""), Offsets::default());
    }

    #[test]
    fn every_reading_of_the_epoch_is_the_same_and_true() {
        let epoch_ns = monotonic_epoch_ns();
        let wall_ns = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let (before, monotonic, after) = (wall_ns(), monotonic_ns(), wall_ns());
        assert!((before..=after).contains(&(epoch_ns + monotonic)));
        let last = monotonic_ns() + 3 * tick_ns();
        while monotonic_ns() < last {
            assert_eq!(monotonic_epoch_ns(), epoch_ns);
        }
    }

    #[test]
    fn each_missing_capability_is_named() {
        assert_eq!(missing_in(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(missing_in(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing_in(1 << 12 | 1 << 38 | 1 << 39), [""; 0]);
        // CAP_SYS_ADMIN includes what was split off from it, but not CAP_NET_ADMIN.
        assert_eq!(missing_in(1 << 21), ["CAP_NET_ADMIN"]);
    }
}
