// SPDX-License-Identifier: Apache-2.0
//! Files that appear under their name when they are complete, and not at all if something fails before.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::text::shell::quoted;

pub struct WholeFile {
    temporary: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::input(format!("{}: is a folder, not a file to write", path.display())));
        }
        let folder = folder_of(path);
        // Permissions of an ordinary new file, not those of a secret one.
        let temporary = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|error| cannot_write(path, &error))?;
        Ok(Self { temporary, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To write to; a copy of the handle.
    pub fn file(&self) -> Result<File> {
        self.temporary.as_file().try_clone().map_err(|error| cannot_write(&self.path, &error))
    }

    pub fn commit(self) -> Result<()> {
        let Self { temporary, path } = self;
        temporary.persist(&path).map_err(|error| cannot_write(&path, &error.error))?;
        Ok(())
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that cannot be written, with the folder that is missing if that is why.
pub fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let (name, folder) = (path.display(), folder_of(path));
    if folder.is_dir() {
        return Error::input(format!("{name}: cannot be written: {error}"));
    }
    let (folder, shown) = (quoted(folder.display()), folder.display());
    Error::input(format!(
        "{name}: cannot be written: the folder {shown} does not exist; give another place, or make it: mkdir -p {folder}"
    ))
}

/// Lets `write` fill a file.
pub fn write<T>(path: &Path, write: impl FnOnce(File) -> Result<T>) -> Result<T> {
    let file = WholeFile::create(path)?;
    let result = write(file.file()?)?;
    file.commit()?;
    Ok(result)
}
