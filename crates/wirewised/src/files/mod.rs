// SPDX-License-Identifier: Apache-2.0
//! Files, in and out: inputs whose size is checked, outputs that appear when they are complete.

pub mod json;
pub mod owned;
pub mod place;
pub mod records;
pub mod whole_file;
pub mod yaml;

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{Error, Result};

/// A file's name for those who look from another folder: absolute, without `.` and `..`. The last part stays as given, which may be
/// a link that somebody points elsewhere.
pub fn full_name(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let clean = absolute.parent().zip(absolute.file_name());
    let clean = clean.and_then(|(folder, name)| Some(folder.canonicalize().ok()?.join(name)));
    clean.unwrap_or(absolute).display().to_string()
}

/// What may be read where an input is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A regular file: all of it is there.
    File,
    /// A pipe too, which gives what another program writes: `<(zcat rows.csv.gz)`.
    FileOrPipe,
}

impl Input {
    /// Opens a file without waiting for anything: neither the writer of a FIFO nor a device decides how long that takes.
    pub fn open(self, path: &Path) -> Result<File> {
        // Opening a device may already do something, so it is asked first; and again of what was opened.
        let opened = std::fs::metadata(path).and_then(|about| {
            self.admit(about.file_type())?;
            let mut options = OpenOptions::new();
            options.read(true);
            if about.is_file() {
                // A FIFO that was put there meanwhile does not hold us up.
                options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
            }
            let file = options.open(path)?;
            let about = file.metadata()?;
            self.admit(about.file_type())?;
            place::note_opened(&about);
            Ok(file)
        });
        opened.map_err(|error| cannot_read(path, &error))
    }

    fn admit(self, kind: FileType) -> io::Result<()> {
        let name = match kind {
            kind if kind.is_file() => return Ok(()),
            kind if kind.is_fifo() && self == Self::FileOrPipe => return Ok(()),
            kind if kind.is_fifo() => "a pipe",
            kind if kind.is_dir() => "a folder",
            kind if kind.is_socket() => "a socket",
            _ => "a device",
        };
        Err(io::Error::other(NotAFile(name)))
    }
}

/// What is in the place of a file.
#[derive(Debug)]
struct NotAFile(&'static str);

impl std::fmt::Display for NotAFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "is {}, not a file; give the path of a file", self.0)
    }
}

impl std::error::Error for NotAFile {}

/// A file that cannot be opened or read, and the way out.
pub fn cannot_read(path: &Path, error: &io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            Error::input(format_args!("{name}: does not exist; check its name and folder"))
        }
        ErrorKind::PermissionDenied => {
            Error::input(format_args!("{name}: you may not read it; check its permissions with `ls -l`"))
        }
        _ if error.get_ref().is_some_and(|inner| inner.is::<NotAFile>()) => {
            Error::input(format_args!("{name}: {error}"))
        }
        _ => Error::input(format_args!("{name}: cannot be read: {error}")),
    }
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_open(Input::File.open(path)?, path, limit)
}

/// As `read`, of a file that is open already.
pub fn read_open(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let name = path.display();
    let size = file.metadata().map_or(0, |about| about.len());
    let mut bytes = Vec::with_capacity(size.min(limit) as usize + 1);
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if bytes.len() as u64 > limit {
        return Err(Error::input(format_args!(
            "{name}: larger than {limit} bytes, which no file of this kind is; give the right file"
        )));
    }
    Ok(bytes)
}
