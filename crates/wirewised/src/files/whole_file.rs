// SPDX-License-Identifier: Apache-2.0
//! Every output of the agent. A file appears under its name when it is complete, and not at all if something fails before; it has no
//! name until then, so that not even SIGKILL leaves one. It keeps owner and mode of the file that it replaces. A device or a
//! pipe is written into, a link is followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::ending::{self, Removal};
use crate::error::{Error, Result};
use crate::files::place::{self, Destination, cannot_write, folder_of};

/// Until the owner of the file that it replaces is known, others may not read it.
const PRIVATE: u32 = 0o600;
const ORDINARY: u32 = 0o666;

#[must_use = "no file appears unless it is committed"]
pub struct WholeFile {
    /// As the user named it.
    path: PathBuf,
    file: File,
    end: End,
}

enum End {
    /// Nothing is left to do: a device, a pipe.
    Stream,
    /// It gets this name.
    Nameless(PathBuf),
    /// Where a file system has no files without a name: it is renamed.
    Renamed(Temporary, PathBuf),
}

/// A hidden name that goes with this, or with a signal.
struct Temporary(TempPath, Option<Removal>);

impl WholeFile {
    pub fn create(path: &Path) -> Result<Self> {
        Self::at(path, Destination::of(path)?)
    }

    /// An input that is to be written anew.
    pub fn rewrite(path: &Path) -> Result<Self> {
        Self::at(path, Destination::of_input(path)?)
    }

    fn at(path: &Path, place: Destination) -> Result<Self> {
        let failed = |error: io::Error| cannot_write(path, &error);
        let (place, old) = match place {
            Destination::Descriptor(file, _) => {
                return Ok(Self { path: path.to_owned(), file, end: End::Stream });
            }
            Destination::Device(device, _) => {
                let file = place::open_device(&device).map_err(failed)?;
                return Ok(Self { path: path.to_owned(), file, end: End::Stream });
            }
            Destination::New(place) => (place, None),
            Destination::File(place, metadata) => (place, Some(metadata)),
        };
        let mode = if old.is_some() { PRIVATE } else { ORDINARY };
        let (file, end) = match nameless(folder_of(&place), mode) {
            Some(file) => (file, End::Nameless(place.clone())),
            None => {
                let (file, temporary) = named(folder_of(&place), mode).map_err(failed)?;
                (file, End::Renamed(temporary, place.clone()))
            }
        };
        if let Some(old) = &old {
            place::keep_attributes(&file, &place, old).map_err(|error| {
                Error::input(format!(
                    "{}: its owner or mode cannot be kept ({error}); give another name, or remove it",
                    path.display()
                ))
            })?;
        }
        Ok(Self { path: path.to_owned(), file, end })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To write to; a copy of the handle.
    pub fn file(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| cannot_write(&self.path, &error))
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| cannot_write(&self.path, &error))
    }

    pub fn commit(self) -> Result<()> {
        let Self { path, file, end } = self;
        let done = match end {
            End::Stream => Ok(()),
            End::Nameless(place) => publish(&file, &place),
            End::Renamed(Temporary(hidden, _removal), place) => {
                hidden.persist(place).map_err(|error| error.error)
            }
        };
        done.map_err(|error| cannot_write(&path, &error))
    }
}

fn magic_link(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// `None` where the file system cannot do it, or nothing could give the file a name later.
fn nameless(folder: &Path, mode: u32) -> Option<File> {
    let file = OpenOptions::new().write(true).mode(mode).custom_flags(libc::O_TMPFILE).open(folder).ok()?;
    fs::metadata(magic_link(&file)).is_ok().then_some(file)
}

fn named(folder: &Path, mode: u32) -> io::Result<(File, Temporary)> {
    let permissions = PermissionsExt::from_mode(mode);
    let file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
    let (file, hidden) = file.into_parts();
    let removal = Removal::of(&hidden);
    Ok((file, Temporary(hidden, removal)))
}

/// Gives a file without a name its name. One that is taken can only be renamed onto.
fn publish(file: &File, place: &Path) -> io::Result<()> {
    match link(file, place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let hidden = tempfile::Builder::new().make_in(folder_of(place), |hidden| {
        let removal = Removal::of(hidden);
        link(file, hidden).map(|()| removal)
    })?;
    let (_removal, hidden) = hidden.into_parts();
    hidden.persist(place).map_err(|error| error.error)
}

fn link(file: &File, place: &Path) -> io::Result<()> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_encoded_bytes());
    let (from, to) = (text(&magic_link(file))?, text(place)?);
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both texts end with a zero and outlive the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The last that a command does, so that all of its outputs appear, or none: a signal comes too late from here on.
pub fn commit_all(files: impl IntoIterator<Item = WholeFile>) -> Result<()> {
    ending::hold().keep();
    files.into_iter().try_for_each(WholeFile::commit)
}

/// Lets `write` fill a file, which has no name yet.
pub fn write<T>(path: &Path, write: impl FnOnce(File) -> Result<T>) -> Result<(T, WholeFile)> {
    let file = WholeFile::create(path)?;
    let result = write(file.file()?)?;
    Ok((result, file))
}
