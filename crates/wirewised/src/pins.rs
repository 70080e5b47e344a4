// SPDX-License-Identifier: Apache-2.0
//! Where attachments live on: one directory an interface in a BPF file system, with the link, the program, every map
//! and what the agent remembers. Who has the directory has the attachment; nothing else is written anywhere. `succession`
//! says what else lies beside it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::bpffs;
use crate::error::{Error, Result};
use crate::lock;
use crate::names;
use crate::netns;

pub const DEFAULT_ROOT: &str = "/sys/fs/bpf/wirewise";
pub const LINK: &str = "link";
pub const PROGRAM: &str = "prog";
pub const META: &str = "meta";
const OURS_ALONE: u32 = 0o700;

/// The option every command on attachments has.
#[derive(Debug, Clone, clap::Args)]
pub struct RootArgs {
    /// Directory in a BPF file system that holds the attachments; must be writable by who runs this
    #[arg(long, value_name = "DIR", default_value = DEFAULT_ROOT, display_order = 100)]
    pin_root: PathBuf,

    /// Enter this network namespace first: a name under /run/netns, or a path such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH", display_order = 101)]
    netns: Option<PathBuf>,
}

impl RootArgs {
    /// Where the attachments are. Everything from here on is about the network namespace that was asked for.
    pub fn root(&self) -> Result<Root> {
        self.netns.as_deref().map_or(Ok(()), netns::enter)?;
        // What is attached is found again from another working directory.
        Ok(Root { path: std::path::absolute(&self.pin_root).unwrap_or_else(|_| self.pin_root.clone()) })
    }

    /// These options, for a command that is suggested.
    pub fn again(&self) -> String {
        let mut options = String::new();
        if let Some(netns) = &self.netns {
            options += &format!(" --netns {}", netns.display());
        }
        if self.pin_root != Path::new(DEFAULT_ROOT) {
            options += &format!(" --pin-root {}", self.pin_root.display());
        }
        options
    }
}

#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Root {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn directory(&self, interface: &str) -> PathBuf {
        self.path.join(names::encode(interface.as_bytes()))
    }

    /// Makes the directory if need be, and keeps other agents out of it until the lock is dropped.
    pub fn lock(&self) -> Result<Lock> {
        loop {
            match DirBuilder::new().recursive(true).mode(OURS_ALONE).create(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(self.failed("made", &error));
                }
                _ => {}
            }
            let directory = match self.open() {
                // Whoever had the lock removed the directory between the two calls.
                Err(_) if is_missing(&self.path) => continue,
                other => other?,
            };
            // Who may only open it could still hold the lock. Earlier agents left that to the umask.
            match directory.set_permissions(Permissions::from_mode(OURS_ALONE)) {
                // Made by root for an agent without privilege: that is root's to say.
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                    return Err(self.failed("closed to others", &error));
                }
                _ => {}
            }
            lock::take(&directory, &self.path)?;
            // Whoever had the lock may have removed the directory: then this one is not the one others will open.
            let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            if let (Ok(ours), Ok(there)) = (directory.metadata(), fs::metadata(&self.path))
                && same(ours, there)
            {
                return Ok(Lock { _directory: directory, root: self.path.clone() });
            }
        }
    }

    /// Opens the directory, and makes sure that nobody else could put anything in it.
    pub fn open(&self) -> Result<File> {
        let path = self.path.display();
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let directory = File::options().read(true).custom_flags(flags).open(&self.path).map_err(|error| {
            match fs::symlink_metadata(&self.path) {
                Ok(metadata) if metadata.is_symlink() => Error::missing(format!(
                    "{path} is a symbolic link, which may come to point elsewhere; name the directory itself"
                )),
                _ => self.failed("opened", &error),
            }
        })?;
        let metadata = directory.metadata().map_err(|error| self.failed("opened", &error))?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
        // SAFETY: the call has no arguments and cannot fail.
        let ours = unsafe { libc::geteuid() };
        if owner != ours && owner != 0 {
            return Err(Error::missing(format!(
                "{path} belongs to user {owner}, who could put anything there; run as that user, or look what is there and \
                 take it over: `chown -R $(id -u) {path}`"
            )));
        }
        if mode & 0o022 != 0 {
            return Err(Error::missing(format!(
                "{path}: others may write to it (mode {mode:o}); look what is there, then `chmod 700 {path}`"
            )));
        }
        Ok(directory)
    }

    /// The directories of the interfaces in it, in order; none if it does not exist. A directory may be missing while it is
    /// being exchanged for the one beside it.
    pub fn directories(&self) -> Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| self.failed("read", &error))?,
        };
        let mut found = BTreeSet::new();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // An older agent called the directory of interface `..x` `::x`.
            let own = name.split_once(names::BESIDE).filter(|(interface, _)| !interface.is_empty());
            found.insert(self.path.join(own.map_or(&*name, |(interface, _)| interface)));
        }
        Ok(found.into_iter().collect())
    }

    fn failed(&self, what: &str, error: &io::Error) -> Error {
        let message = format!("{} cannot be {what}: {error}", self.path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::missing(format!(
                "{message}; run as root, or give a directory of a BPF file system that you own with --pin-root"
            )),
            io::ErrorKind::NotFound => Error::missing(format!("{message}; {}", bpffs::REMEDY)),
            io::ErrorKind::ReadOnlyFilesystem => Error::missing(format!("{message}; {}", bpffs::REMOUNT)),
            _ => Error::other(message),
        }
    }
}

/// While it is held no other agent changes the attachments. Dropping it removes the directory if it is empty.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
    root: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Stays where it is not empty, a mount point, or made by root for an agent without privilege.
        let _ = fs::remove_dir(&self.root);
    }
}

/// The interface that a directory is for.
pub fn interface_of(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    names::decode(&name)
        .map_or(name.to_string(), |interface| String::from_utf8_lossy(&interface).into_owned())
}

/// Removes a directory of pins. The link goes first: a program whose maps lost their pins loses its tail calls.
pub fn remove(directory: &Path) -> io::Result<()> {
    let mut pins: Vec<_> = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    pins.sort_by_key(|path| path.file_name().is_none_or(|name| name != LINK));
    for pin in pins {
        fs::remove_file(pin)?;
    }
    fs::remove_dir(directory)
}

/// A directory that is removed with all its pins unless it is kept.
#[derive(Debug)]
pub struct Provisional {
    path: Option<PathBuf>,
}

impl Provisional {
    /// Makes the directory; what an agent that was killed left under this name goes first.
    pub fn create(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::other(format!("{}: {error}", path.display()));
        if path.is_dir() {
            remove(path).map_err(failed)?;
        }
        fs::create_dir(path).map_err(failed)?;
        Ok(Self { path: Some(path.to_path_buf()) })
    }

    pub fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Provisional {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = remove(path)
        {
            tracing::warn!("{} is left behind: {error}; remove it with `rm -r`", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_an_older_agent_are_listed_too() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root { path: directory.path().to_path_buf() };
        for name in ["eth0", "eth0::previous", "eth0:100", "::x"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let interfaces: Vec<_> = root.directories().unwrap().iter().map(|path| interface_of(path)).collect();
        assert_eq!(interfaces, ["::x", "eth0", "eth0\u{10}0"]);
    }

    #[test]
    fn a_directory_of_somebody_else_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = |name: &str| Root { path: folder.path().join(name) };
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o777;
        let lock = root("new").lock().unwrap();
        assert_eq!(mode("new"), 0o700);
        drop(lock);
        fs::create_dir(folder.path().join("readable")).unwrap();
        fs::set_permissions(folder.path().join("readable"), Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("readable/file"), "").unwrap();
        root("readable").lock().unwrap();
        assert_eq!(mode("readable"), 0o700);
        fs::create_dir(folder.path().join("writable")).unwrap();
        fs::set_permissions(folder.path().join("writable"), Permissions::from_mode(0o777)).unwrap();
        let error = root("writable").lock().unwrap_err().to_string();
        assert!(
            error.contains("others may write to it (mode 777)") && error.contains("chmod 700"),
            "{error}"
        );
        std::os::unix::fs::symlink("readable", folder.path().join("link")).unwrap();
        let error = root("link").lock().unwrap_err().to_string();
        assert!(error.contains("is a symbolic link"), "{error}");
    }

    #[test]
    fn what_is_provisional_goes_unless_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("eth0");
        let provisional = Provisional::create(&path).unwrap();
        fs::write(path.join(LINK), "").unwrap();
        drop(provisional);
        assert!(!path.exists());
        Provisional::create(&path).unwrap().keep();
        assert!(path.exists());
    }
}
