// SPDX-License-Identifier: Apache-2.0
//! The lock on a directory, which keeps agents out of each other's way. Whoever can open a directory can hold its lock, so nobody is
//! waited for for ever.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The longest that an agent needs is the loading of a large program.
const LIMIT: Duration = Duration::from_secs(10);
/// After this time who waits is told for whom.
const NOTE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock of an open directory, which lasts until the file is closed.
pub fn take(directory: &File, path: &Path) -> Result<()> {
    let begin = Instant::now();
    let mut told = false;
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EWOULDBLOCK | libc::EINTR) => {}
            _ => return Err(Error::other(format!("{} cannot be locked: {error}", path.display()))),
        }
        let waited = begin.elapsed();
        if waited > LIMIT {
            return Err(Error::other(format!(
                "{} is locked by {} for more than {} s; wait for it, or end it",
                path.display(),
                holder(directory),
                LIMIT.as_secs()
            )));
        }
        if waited > NOTE && !told {
            eprintln!("note: waiting for {}, which has locked {}", holder(directory), path.display());
            told = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Who has the lock: `process 12 (name)`.
fn holder(directory: &File) -> String {
    let process = directory.metadata().ok().and_then(|metadata| {
        let place = (libc::major(metadata.dev()), libc::minor(metadata.dev()), metadata.ino());
        holder_in(&fs::read_to_string("/proc/locks").ok()?, place)
    });
    let Some(process) = process else { return "a process that cannot be seen from here".to_string() };
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("process {process} ({})", name.trim_end()),
        Err(_) => format!("process {process}"),
    }
}

/// Looks up a file, by device and inode, in the list of /proc/locks:
/// `1: FLOCK  ADVISORY  WRITE 708 00:13:547 0 EOF`.
fn holder_in(locks: &str, (major, minor, inode): (u32, u32, u64)) -> Option<u32> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, place, ..] if place == file => process.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 708 00:13:547 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 9 00:13:547 0 EOF\n\
                     2: POSIX  ADVISORY  READ 5 08:01:547 128 128\n";
        assert_eq!(holder_in(locks, (0, 0x13, 547)), Some(708));
        assert_eq!(holder_in(locks, (8, 1, 547)), None);
        let folder = tempfile::tempdir().unwrap();
        let directory = File::open(folder.path()).unwrap();
        take(&directory, folder.path()).unwrap();
        assert!(holder(&directory).starts_with(&format!("process {} (", std::process::id())));
    }
}
