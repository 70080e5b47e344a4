// SPDX-License-Identifier: Apache-2.0
//! Where attachments live on: one directory an interface in a BPF file system, with the link, the program, every map
//! and what the agent remembers. Who has the directory has the attachment; nothing else is written anywhere. `succession`
//! says what else lies beside it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::attachment::names;
use crate::error::{Error, Result};
use crate::files::owned::{self, Flaw};
use crate::interface::netns;
use crate::kernel::bpffs;
use crate::kernel::change;
use crate::kernel::lock;
use crate::kernel::pinned;
use crate::text::shell::quoted;

pub const DEFAULT_ROOT: &str = "/sys/fs/bpf/wirewise";
const OURS_ALONE: u32 = 0o700;

/// The option every command on attachments has.
#[derive(Debug, Clone, clap::Args)]
pub struct RootArgs {
    /// Directory in a BPF file system that holds the attachments; which you must be able to write to
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

    /// Whether what runs is where it usually is, and not for this user to read.
    pub fn are_denied(&self) -> bool {
        let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        self.pin_root == Path::new(DEFAULT_ROOT) && fs::read_dir(&self.pin_root).is_err_and(denied)
    }

    /// Whether the service may use them for another user: its own directory, and namespaces that an operator named.
    pub fn check_by_service(&self) -> Result<()> {
        if self.pin_root != Path::new(DEFAULT_ROOT) {
            return Err(Error::input("--pin-root: the service reads its own directory only"));
        }
        if self.netns.as_ref().is_some_and(|name| name.components().count() != 1 || name.has_root()) {
            return Err(Error::input("--netns: the service takes names under /run/netns, not paths"));
        }
        Ok(())
    }

    /// These options, for a command that is suggested.
    pub fn again(&self) -> String {
        let mut options = String::new();
        if let Some(netns) = &self.netns {
            options += &format!(" --netns {}", quoted(netns.display()));
        }
        if self.pin_root != Path::new(DEFAULT_ROOT) {
            options += &format!(" --pin-root {}", quoted(self.pin_root.display()));
        }
        options
    }
}

#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

/// What follows "attached" in a message about an interface, or about any.
pub fn to_interface(interface: Option<&str>) -> String {
    interface.map_or(String::new(), |it| format!(" to '{it}' of this network namespace"))
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Root {
    /// Where attachments are unless somebody says otherwise.
    pub fn usual() -> Self {
        Self { path: PathBuf::from(DEFAULT_ROOT) }
    }

    pub fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether pins can be here at all: `ip netns exec`, for one, shows a /sys of its own.
    pub fn is_in_bpf_file_system(&self) -> bool {
        matches!(bpffs::state(&self.path), bpffs::State::Writable | bpffs::State::NotWritable)
    }

    /// What there is to say where it is not. interface : of this network namespace; `None`: any.
    pub fn cannot_know(&self, interface: Option<&str>) -> String {
        format!(
            "cannot know what is attached{}: {} is in no BPF file system, where pins would be; mount the one they \
             are in, or name another with --pin-root (`ip netns exec` hides it: `--netns NAME` does not)",
            to_interface(interface),
            self.path.display()
        )
    }

    pub fn directory(&self, interface: &str) -> PathBuf {
        self.path.join(names::encode(interface.as_bytes()))
    }

    /// Makes the directory if need be, and keeps other agents out of it until the lock is dropped. Outside a BPF file system
    /// nothing is ours: there it changes nothing.
    pub fn lock(&self) -> Result<Lock> {
        if matches!(bpffs::state(&self.path), bpffs::State::Mountable | bpffs::State::Missing(_)) {
            return Err(Error::unknown(self.cannot_know(None)));
        }
        self.take()
    }

    fn take(&self) -> Result<Lock> {
        loop {
            match DirBuilder::new().recursive(true).mode(OURS_ALONE).create(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(self.failed("made", &error));
                }
                Ok(()) => change::made("create directory"),
                Err(_) => {}
            }
            let directory = match self.open() {
                // Whoever had the lock removed the directory between the two calls.
                Err(_) if is_missing(&self.path) => continue,
                other => other?,
            };
            // Who may only open it could still hold the lock. Earlier agents left that to the umask. A mount point is others' too.
            if !self.is_mount_point(&directory) {
                match directory.set_permissions(Permissions::from_mode(OURS_ALONE)) {
                    // Made by root for an agent without privilege: that is root's to say.
                    Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                        return Err(self.failed("closed to others", &error));
                    }
                    _ => {}
                }
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

    fn is_mount_point(&self, directory: &File) -> bool {
        let above = self.path.parent().and_then(|above| fs::metadata(above).ok());
        match (directory.metadata(), above) {
            (Ok(here), Some(above)) => here.dev() != above.dev(),
            _ => true,
        }
    }

    /// Opens the directory, and makes sure that nobody else could put anything in it.
    pub fn open(&self) -> Result<File> {
        let path = self.path.display();
        let directory =
            owned::directory(&self.path).map_err(|error| match fs::symlink_metadata(&self.path) {
                Ok(metadata) if metadata.is_symlink() => Error::missing(format!(
                    "{path} is a symbolic link, which may come to point elsewhere; name the directory itself"
                )),
                _ => self.failed("opened", &error),
            })?;
        let metadata = directory.metadata().map_err(|error| self.failed("opened", &error))?;
        match owned::flaw(&metadata) {
            None => Ok(directory),
            Some(flaw @ Flaw::Owner(_)) => Err(Error::missing(format!(
                "{path} {flaw}; run as that user, or look what is there and take it over: `chown -R $(id -u) {}`",
                quoted(&path)
            ))),
            Some(flaw @ Flaw::Mode(_)) => Err(Error::missing(format!(
                "{path}: {flaw}; look what is there, then `chmod 700 {}`",
                quoted(&path)
            ))),
        }
    }

    /// The directories of the interfaces in it, in order; none if it does not exist, or is in no BPF file system. A directory may
    /// be missing while it is being exchanged for the one beside it. Those of others are not among them.
    pub fn directories(&self) -> Result<Vec<PathBuf>> {
        if bpffs::is_in_one(&self.path) { self.list() } else { Ok(Vec::new()) }
    }

    fn list(&self) -> Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| self.failed("read", &error))?,
        };
        let mut found = BTreeSet::new();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // An older agent called the directory of interface `..x` `::x`.
            let own = name.split_once(names::BESIDE).filter(|(interface, _)| !interface.is_empty());
            if own.is_none() && !pinned::may_be_ours(&path) {
                continue;
            }
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
        let _ = change::remove_dir(&self.root);
    }
}

/// The interface that a directory is for.
pub fn interface_of(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    names::decode(&name)
        .map_or(name.to_string(), |interface| String::from_utf8_lossy(&interface).into_owned())
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
        let interfaces: Vec<_> = root.list().unwrap().iter().map(|path| interface_of(path)).collect();
        assert_eq!(interfaces, ["::x", "eth0", "eth0\u{10}0"]);
    }

    #[test]
    fn directories_of_others_beside_ours_are_not_attachments() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root { path: folder.path().to_path_buf() };
        for (name, pin) in [
            ("eth0", "meta"),
            ("eth1", "ww_config"),
            ("eth2::new", "prog"),
            ("cilium", "globals"),
            ("mine", "prog"),
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join(pin), "").unwrap();
        }
        let interfaces: Vec<_> = root.list().unwrap().iter().map(|path| interface_of(path)).collect();
        assert_eq!(interfaces, ["eth0", "eth1", "eth2"]);
    }

    #[test]
    fn a_directory_of_somebody_else_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = |name: &str| Root { path: folder.path().join(name) };
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o777;
        let lock = root("new").take().unwrap();
        assert_eq!(mode("new"), 0o700);
        drop(lock);
        fs::create_dir(folder.path().join("readable")).unwrap();
        fs::set_permissions(folder.path().join("readable"), Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("readable/file"), "").unwrap();
        root("readable").take().unwrap();
        assert_eq!(mode("readable"), 0o700);
        fs::create_dir(folder.path().join("writable")).unwrap();
        fs::set_permissions(folder.path().join("writable"), Permissions::from_mode(0o777)).unwrap();
        let error = root("writable").take().unwrap_err().to_string();
        assert!(
            error.contains("others may write to it (mode 777)") && error.contains("chmod 700"),
            "{error}"
        );
        std::os::unix::fs::symlink("readable", folder.path().join("link")).unwrap();
        let error = root("link").take().unwrap_err().to_string();
        assert!(error.contains("is a symbolic link"), "{error}");
    }

    #[test]
    fn nothing_outside_a_bpf_file_system_is_changed_or_taken_for_an_attachment() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("eth0")).unwrap();
        fs::write(folder.path().join("eth0/meta"), "").unwrap();
        for root in [folder.path().to_path_buf(), folder.path().join("new")].map(|path| Root { path }) {
            assert!(root.directories().unwrap().is_empty());
            let error = root.lock().unwrap_err().to_string();
            assert!(error.contains("is in no BPF file system"), "{error}");
        }
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o755);
        assert!(!folder.path().join("new").exists());
    }
}
