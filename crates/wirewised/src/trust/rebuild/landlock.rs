// SPDX-License-Identifier: Apache-2.0
//! Landlock (Linux 5.13): a process gives up all files but those below some folders, for itself and what it starts.

use std::ffi::c_int;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const PATH_BENEATH: c_int = 1;
const VERSION: u32 = 1;

/// linux/landlock.h: what a process gives up, unless a rule allows it.
#[repr(C)]
struct RulesetAttributes {
    files: u64,
    network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    folder: c_int,
}

/// What a process keeps.
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// Nothing at all. `None`: this kernel does not have Landlock, or it is switched off.
    pub fn new() -> Option<Self> {
        // SAFETY: with the flag for the version there is no structure.
        let version = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION)
        };
        // What each version added: moving between folders, truncating, TCP, ioctl on devices, sockets and signals.
        let (files, network, scoped, size) = match version {
            ..=0 => return None,
            1 => (13, 0, 0, 8),
            2 => (14, 0, 0, 8),
            3 => (15, 0, 0, 8),
            4 => (15, 3, 0, 16),
            5 => (16, 3, 0, 16),
            _ => (16, 3, 3, 24),
        };
        let attributes = RulesetAttributes { files: (1 << files) - 1, network, scoped };
        let size: usize = size;
        // SAFETY: the structure lives during the call, and is at least so large.
        let ruleset =
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0u32) };
        let ruleset = RawFd::try_from(ruleset).ok().filter(|ruleset| *ruleset >= 0)?;
        // SAFETY: the kernel has just opened it for us, closed on exec.
        Some(Self(unsafe { OwnedFd::from_raw_fd(ruleset) }))
    }

    /// A file or folder, with all below, may be read, and run. What does not exist needs no rule.
    pub fn allow_reading(&self, path: &Path) -> io::Result<()> {
        self.allow(path, READ_FILE | READ_DIR | EXECUTE)
    }

    /// Such as /dev/null.
    pub fn allow_writing(&self, path: &Path) -> io::Result<()> {
        self.allow(path, READ_FILE | WRITE_FILE)
    }

    fn allow(&self, path: &Path, allowed: u64) -> io::Result<()> {
        let folder =
            match OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path) {
                Ok(folder) => folder,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
        let allowed = if folder.metadata()?.is_dir() { allowed } else { allowed & !READ_DIR };
        let rule = PathBeneath { allowed, folder: folder.as_raw_fd() };
        // SAFETY: the structure and both files live during the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.0.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0u32,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives up the rest, for good. Needs PR_SET_NO_NEW_PRIVS. Makes one system call and is async-signal-safe.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: takes numbers only.
        let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0u32) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Where compilers, their libraries and headers are on Linux, and what the loader and clang read of their settings.
pub const SYSTEM: [&str; 18] = [
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/include",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/include",
    "/nix/store",
    "/gnu/store",
    "/etc/clang",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
];
const INSTALLED: [&str; 5] = ["bin", "lib", "lib64", "libexec", "include"];

/// What a compiler outside of `SYSTEM` reads of itself: its file, and the folders it was installed with.
pub fn parts_of(program: &str) -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let Some(file) = paths.find(|path| path.is_file()).and_then(|path| fs::canonicalize(path).ok()) else {
        return Vec::new();
    };
    let prefix = file.parent().and_then(Path::parent).filter(|prefix| prefix.join("lib/clang").is_dir());
    let parts = prefix.map(|prefix| INSTALLED.map(|part| prefix.join(part)));
    parts.into_iter().flatten().chain([file.clone()]).collect()
}
