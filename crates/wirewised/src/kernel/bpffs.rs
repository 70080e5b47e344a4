// SPDX-License-Identifier: Apache-2.0
//! The BPF file system that pins need: whether it is there, and mounting it where nothing has, as bpftool, ip and tc do.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs;
use std::io;
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::owned;
use crate::kernel;
use crate::kernel::lock;
use crate::kernel::objects;

/// Where systemd, bpftool, ip and tc mount it, and the only place where this agent does.
pub const PLACE: &str = "/sys/fs/bpf";
const PLACE_C: &CStr = c"/sys/fs/bpf";
pub const REMEDY: &str = "mount a BPF file system: `mount -t bpf bpf /sys/fs/bpf`";
pub const REMOUNT: &str =
    "mount it writable: `mount -o remount,rw /sys/fs/bpf`, or name another with --pin-root";

/// Of file systems that the kernel fills.
pub const MOUNT_FLAGS: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// What a directory offers to pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Writable,
    NotWritable,
    ReadOnly,
    /// No BPF file system yet; `mount` makes one.
    Mountable,
    Missing(Obstacle),
}

/// Why this process mounts no BPF file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The directory is not under `PLACE`. Other places are up to whoever names them.
    Elsewhere,
    NoPlace,
    Occupied,
    NotAllowed,
    EndsWithUs,
}

impl Obstacle {
    pub fn remedy(self) -> &'static str {
        match self {
            Obstacle::Elsewhere => {
                "mount a BPF file system: `mount -t bpf bpf /sys/fs/bpf`, or name another with --pin-root"
            }
            Obstacle::NoPlace => {
                "mount /sys first (`mount -t sysfs sysfs /sys`), or a BPF file system elsewhere: \
                 `mount -t bpf bpf DIR`, then use --pin-root DIR"
            }
            Obstacle::Occupied => {
                "take away what is mounted there (`umount /sys/fs/bpf`), or mount a BPF file system elsewhere: \
                 `mount -t bpf bpf DIR`, then use --pin-root DIR"
            }
            Obstacle::NotAllowed => {
                "as root: `mount -t bpf bpf /sys/fs/bpf`; in a container, let its runtime mount it, or bring in the \
                 host's"
            }
            Obstacle::EndsWithUs => {
                "enter only the network namespace: `wirewised ... --netns NAME`, not under `ip netns exec`; or mount a BPF \
                 file system elsewhere before: `mount -t bpf bpf DIR`, then use --pin-root DIR"
            }
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::Elsewhere => "is not in a BPF file system, so nothing could outlive this process",
            Obstacle::NoPlace => {
                "is not in a BPF file system, and there is no directory /sys/fs/bpf to mount one at"
            }
            Obstacle::Occupied => "is not in a BPF file system: something else is mounted at /sys/fs/bpf",
            Obstacle::NotAllowed => "is not in a BPF file system, and mounting one needs CAP_SYS_ADMIN",
            Obstacle::EndsWithUs => {
                "is not in a BPF file system, and one that this process mounted would end with it: its mount \
                 namespace is its own, as under `ip netns exec`"
            }
        })
    }
}

/// Whether pins can be made in a directory, or in one to be made there; found without making any.
pub fn state(directory: &Path) -> State {
    let existing = directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let Some(c_path) = bpf_path(existing) else {
        return obstacle(directory).map_or(State::Mountable, State::Missing);
    };
    // SAFETY: `c_path` outlives the call. The effective user is asked about, not the real one.
    match unsafe {
        libc::faccessat(libc::AT_FDCWD, c_path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS)
    } {
        0 => State::Writable,
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::EROFS) => State::ReadOnly,
        _ => State::NotWritable,
    }
}

/// Whether a path that exists is in a BPF file system.
pub fn is_in_one(path: &Path) -> bool {
    bpf_path(path).is_some()
}

/// A path as a C string, if it is in a BPF file system.
fn bpf_path(directory: &Path) -> Option<CString> {
    let c_path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    let mut buffer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `c_path` is a C string and `buffer` a statfs; both outlive the call.
    if unsafe { libc::statfs(c_path.as_ptr(), buffer.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call filled it, and zero is a value of every field.
    (unsafe { buffer.assume_init() }.f_type == libc::BPF_FS_MAGIC).then_some(c_path)
}

/// What keeps this process from mounting a BPF file system for a directory.
fn obstacle(directory: &Path) -> Option<Obstacle> {
    if !directory.starts_with(PLACE) || directory.components().any(|part| part == Component::ParentDir) {
        return Some(Obstacle::Elsewhere);
    }
    // What is there would be hidden. The directory that the kernel makes is empty, and so is it under a new /sys.
    match fs::read_dir(PLACE).map(|mut entries| entries.next().is_some()) {
        Err(_) => Some(Obstacle::NoPlace),
        Ok(true) => Some(Obstacle::Occupied),
        Ok(false) if !kernel::may_mount() => Some(Obstacle::NotAllowed),
        Ok(false) => (!namespace_outlives_us()).then_some(Obstacle::EndsWithUs),
    }
}

/// Mounts a BPF file system at `PLACE` if `directory` needs one; says whether it did. It stays when what it was for fails,
/// since by then somebody else may have pins in it, which would go with it.
pub fn mount(directory: &Path) -> Result<bool> {
    let refused = |obstacle: Obstacle| {
        Error::missing(format!("{} {obstacle}; {}", directory.display(), obstacle.remedy()))
    };
    match state(directory) {
        State::Writable | State::NotWritable | State::ReadOnly => return Ok(false),
        State::Missing(obstacle) => return Err(refused(obstacle)),
        State::Mountable => {}
    }
    // Of two agents that found none, the second would hide the first's pins under its own mount. The lock is on the
    // directory below, which only those have opened who came before the mount.
    let below = owned::directory(Path::new(PLACE)).map_err(|_| refused(Obstacle::NoPlace))?;
    lock::take(&below, Path::new(PLACE))?;
    if bpf_path(Path::new(PLACE)).is_some() {
        return Ok(false);
    }
    // SAFETY: all are C strings that outlive the call.
    let code = unsafe {
        libc::mount(
            c"bpf".as_ptr(),
            PLACE_C.as_ptr(),
            c"bpf".as_ptr(),
            MOUNT_FLAGS,
            c"mode=0700".as_ptr().cast(),
        )
    };
    if code == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => refused(Obstacle::NotAllowed),
        _ => Error::missing(format!("{PLACE}: no BPF file system can be mounted: {error}; {REMEDY}")),
    })
}

/// What to tell about a mount that was just made.
pub fn mounted_note() -> String {
    let ends = match is_namespace_of_init() {
        true => "",
        false => {
            ", in a mount namespace that is not that of pid 1: all that is attached ends with that namespace"
        }
    };
    format!("mounted a BPF file system at {PLACE}, as there was none{ends}")
}

/// Whether this mount namespace goes on when this process ends. It does if it is that of pid 1, or of a process this one
/// descends from. `ip netns exec` makes one and becomes the command it runs, so nobody else is in it.
fn namespace_outlives_us() -> bool {
    let Some(ours) = namespace("self") else { return false };
    let ancestors = iter::successors(parent("self"), |process| parent(process));
    is_namespace_of_init() || ancestors.into_iter().any(|process| namespace(&process).as_ref() == Some(&ours))
}

fn is_namespace_of_init() -> bool {
    // A container may have this process for its pid 1.
    std::process::id() != 1 && namespace("self").is_some_and(|ours| namespace("1") == Some(ours))
}

/// A process's mount namespace, such as `mnt:[4026531841]`; `None` if this process may not know.
fn namespace(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// The process that started another; `None` above the first that is seen from here.
fn parent(process: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    (parent != "0").then(|| parent.to_owned())
}

/// Where a program is pinned, under a directory of a BPF file system; `None`: nowhere that this process may look.
pub fn pin_of_program(under: &Path, id: u32) -> Option<PathBuf> {
    let mut folders = vec![under.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() && is_program(&path, id) {
                return Some(path);
            }
        }
    }
    None
}

fn is_program(pin: &Path, id: u32) -> bool {
    let Ok(object) = objects::open_pin(pin) else { return false };
    // A map or a link may have the same number.
    matches!(objects::program_kind(object.as_fd()), Ok(Some(_)))
        && objects::program_info(object.as_fd()).is_ok_and(|info| info.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_under_its_place_get_a_mount() {
        for elsewhere in ["/run/bpf", "/sys/fs/bpf2/wirewise", "/sys/fs/bpf/../wirewise", "wirewise"] {
            assert_eq!(obstacle(Path::new(elsewhere)), Some(Obstacle::Elsewhere), "{elsewhere}");
        }
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(state(&directory.path().join("deep/er")), State::Missing(Obstacle::Elsewhere));
        let error = mount(directory.path()).unwrap_err().to_string();
        assert!(error.contains("is not in a BPF file system, so nothing could outlive"), "{error}");
    }

    #[test]
    fn ancestors_end_at_the_first_process() {
        let ancestors: Vec<_> = iter::successors(parent("self"), |process| parent(process)).collect();
        assert!(!ancestors.is_empty());
        assert!(parent(ancestors.last().unwrap()).is_none());
        assert!(ancestors.iter().all(|process| process.parse::<u32>().is_ok()));
    }
}
