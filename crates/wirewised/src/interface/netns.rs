// SPDX-License-Identifier: Apache-2.0
//! Network namespaces: which one this thread is in, how to enter another, and in which of all something is so.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};

/// Where `ip netns add` keeps them by name.
const NAMED: &str = "/run/netns";

/// The inode that says which namespace this is, among those that exist now.
pub fn inode() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |metadata| metadata.ino())
}

/// The number that says which namespace this is, and that no other ever gets until the machine starts again; 0 if the kernel
/// does not tell. (An inode is given again once its namespace is gone.)
pub fn cookie() -> u64 {
    let Ok(socket) = UnixDatagram::unbound() else { return 0 };
    let (mut cookie, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the socket is open, and `cookie` has the `length` bytes that the call fills.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut length,
        )
    };
    if code == 0 { cookie } else { 0 }
}

/// Moves this thread, which must be the only one, into the namespace that `--netns` names. The mounts stay the caller's.
pub fn enter(name: &Path) -> Result<()> {
    let path = path_of(name);
    let refused = |why: String| Error::input(format!("--netns {}: {why}", name.display()));
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !is_path(name) => {
            let known = named().iter().map(|path| short(path)).collect::<Vec<_>>();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            refused(format!("no network namespace of this name under {NAMED}; there: {known}"))
        }
        _ => refused(format!("{} cannot be opened: {error}", path.display())),
    })?;
    set(&file).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => Error::missing(format!(
            "--netns {}: entering a network namespace needs CAP_SYS_ADMIN; run as root",
            name.display()
        )),
        _ => refused(format!(
            "{} is no network namespace; give a name under {NAMED}, or a path such as /proc/PID/ns/net",
            path.display()
        )),
    })
}

fn is_path(name: &Path) -> bool {
    let mut parts = name.components();
    !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}

fn path_of(name: &Path) -> PathBuf {
    if is_path(name) { name.to_path_buf() } else { Path::new(NAMED).join(name) }
}

fn set(namespace: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call changes nothing but this thread's network namespace.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn named() -> Vec<PathBuf> {
    let entries = fs::read_dir(NAMED).into_iter().flatten();
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// What `--netns` takes for it.
fn short(path: &Path) -> String {
    path.strip_prefix(NAMED).unwrap_or(path).display().to_string()
}

/// A namespace that is not this thread's.
#[derive(Debug)]
pub struct Other {
    /// What `--netns` takes: a name under /run/netns, or a path.
    pub name: String,
    file: File,
}

impl Other {
    /// The one of a name under /run/netns; `None`: there is none, or it cannot be opened.
    pub fn named(name: &str) -> Option<Self> {
        Some(Self { name: name.to_string(), file: File::open(path_of(Path::new(name))).ok()? })
    }

    /// What tells it apart from others that exist now.
    pub fn inode(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.ino())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// What `work` says in there; `None` if this process may not enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
        // A thread of its own ends in the namespace it entered; this one stays.
        std::thread::scope(|scope| {
            scope.spawn(|| set(&self.file).ok().map(|()| work())).join().ok().flatten()
        })
    }
}

/// A new namespace; this thread stays where it is.
pub fn make_beside() -> io::Result<Other> {
    let made = std::thread::scope(|scope| {
        let make = || {
            make()?;
            File::open("/proc/thread-self/ns/net")
        };
        scope.spawn(make).join()
    });
    let file = made.unwrap_or_else(|_| Err(io::Error::other("the thread stopped")))?;
    Ok(Other { name: "a new one".to_string(), file })
}

/// Moves this thread into a new namespace, which lasts as long as a thread is in it or the result is kept.
pub fn make() -> io::Result<Other> {
    // SAFETY: changes nothing but this thread's network namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let file = File::open("/proc/thread-self/ns/net")?;
    Ok(Other { name: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()), file })
}

/// The other namespaces that this process can see: those with a name, then those of processes. Each once.
pub fn others() -> impl Iterator<Item = Other> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let processes = processes.filter(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    });
    let identity = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let mut seen: BTreeSet<_> = identity(Path::new("/proc/thread-self/ns/net")).into_iter().collect();
    named().into_iter().chain(processes.map(|process| process.join("ns/net"))).filter_map(move |path| {
        if !seen.insert(identity(&path)?) {
            return None;
        }
        Some(Other { name: short(&path), file: File::open(&path).ok()? })
    })
}

/// The other namespace in which `work` says something, and what it says. likely : the inode of the one to look into first, so that mostly no
/// other has to be entered.
pub fn find<T: Send>(likely: Option<u64>, work: impl Fn() -> Option<T> + Sync) -> Option<(Other, T)> {
    let visit = |other: Other| {
        let found = other.within(&work).flatten()?;
        Some((other, found))
    };
    let first = likely.and_then(|inode| others().find(|other| other.inode() == Some(inode)));
    first.and_then(visit).or_else(|| others().find_map(visit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_and_a_path_taken_as_it_is() {
        assert_eq!(path_of(Path::new("blue")), Path::new("/run/netns/blue"));
        for path in ["/proc/1/ns/net", "./blue", "../blue", "..", "a/b"] {
            assert_eq!(path_of(Path::new(path)), Path::new(path));
        }
    }

    #[test]
    fn what_is_no_namespace_is_refused_by_name() {
        let error = enter(Path::new("no-such-namespace")).unwrap_err().to_string();
        assert!(error.starts_with("--netns no-such-namespace: no network namespace of this name"), "{error}");
        let error = enter(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(error.contains("/dev/null"), "{error}");
    }

    #[test]
    fn this_namespace_has_a_number_and_is_no_other() {
        assert_ne!((inode(), cookie()), (0, 0));
        let own = cookie();
        assert!(find(None, || (cookie() == own).then_some(())).is_none());
    }
}
