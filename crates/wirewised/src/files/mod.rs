// SPDX-License-Identifier: Apache-2.0
//! Files, in and out: inputs whose size is checked, outputs that appear when they are complete.

pub mod owned;
pub mod whole_file;
pub mod yaml;

use std::fs::File;
use std::io::{ErrorKind, Read};
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

/// A file that cannot be opened or read, and the way out.
pub fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    let name = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            Error::input(format_args!("{name}: does not exist; check its name and folder"))
        }
        ErrorKind::PermissionDenied => {
            Error::input(format_args!("{name}: you may not read it; check its permissions with `ls -l`"))
        }
        _ => Error::input(format_args!("{name}: cannot be read: {error}")),
    }
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_open(File::open(path).map_err(|error| cannot_read(path, &error))?, path, limit)
}

/// As `read`, of a file that is open already.
pub fn read_open(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    if bytes.len() as u64 > limit {
        return Err(Error::input(format_args!("{name}: larger than {limit} bytes, so no file of this kind")));
    }
    Ok(bytes)
}
