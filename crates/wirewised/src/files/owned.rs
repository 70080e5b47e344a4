// SPDX-License-Identifier: Apache-2.0
//! Files and directories in which nobody but root and this user may put anything. All is asked of what was opened, never of a name,
//! behind which somebody may put something else between two calls.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Why something is not ours alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It belongs to this user.
    Owner(u32),
    /// Others may do what they must not.
    Mode(u32),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(user) => write!(f, "belongs to user {user}, who could put anything there"),
            Self::Mode(mode) => write!(f, "others may write to it (mode {mode:o})"),
        }
    }
}

/// Opens a directory, not through a link in its place.
pub fn directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// What lets others change what was opened.
pub fn flaw(metadata: &Metadata) -> Option<Flaw> {
    // SAFETY: the call has no arguments and cannot fail.
    let us = unsafe { libc::geteuid() };
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    if owner != us && owner != 0 {
        return Some(Flaw::Owner(owner));
    }
    (mode & 0o022 != 0).then_some(Flaw::Mode(mode))
}

/// A file that was not there before, and nothing where a link may point to. Who reads it is decided before it holds anything.
pub fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW).open(path)?;
    // The mask of the process may have taken away, never added.
    file.set_permissions(PermissionsExt::from_mode(mode))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_neither_followed_nor_filled() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        symlink("directory", path("link")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        directory(&path("directory")).unwrap();
        assert!(directory(&path("link")).is_err());
        assert_eq!(new_file(&path("dangling"), 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!path("nowhere").exists());
    }

    #[test]
    fn what_others_may_change_has_a_flaw() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (mode, expected) in
            [(0o600, None), (0o755, None), (0o664, Some(Flaw::Mode(0o664))), (0o602, Some(Flaw::Mode(0o602)))]
        {
            let _ = fs::remove_file(&path);
            let file = new_file(&path, mode).unwrap();
            assert_eq!(flaw(&file.metadata().unwrap()), expected);
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let opened = directory(folder.path()).unwrap();
        assert_eq!(flaw(&opened.metadata().unwrap()), Some(Flaw::Mode(0o777)));
    }
}
