// SPDX-License-Identifier: Apache-2.0
//! A directory of pins, which comes and goes as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::kernel::change;

pub const LINK: &str = "link";
pub const PROGRAM: &str = "prog";
/// A note (`note.rs`) on the rest.
pub const META: &str = "meta";
/// The object, kept for planes in user space.
pub const OBJECT: &str = "object";

/// What the names of maps begin with (`abi::maps`).
const MAP: &str = "ww_";

/// Whether a directory may be one of ours: it has the note or a map, or is empty or cannot be read. That holds for what an agent
/// that was killed half-way left, too: the note goes last.
pub fn may_be_ours(directory: &Path) -> bool {
    let Ok(entries) = fs::read_dir(directory) else { return true };
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).peekable();
    names.peek().is_none() || names.any(|name| name.starts_with(MAP) || name == META)
}

/// Removes a directory of pins, and those in it. Links go first: a program whose maps lost their pins loses its tail calls. The
/// note goes last.
pub fn remove(directory: &Path) -> io::Result<()> {
    let mut pins: Vec<_> = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is = |path: &Path, name: &str| path.file_name().is_some_and(|it| it == name);
    pins.sort_by_key(|path| (is(path, META), !is(path, LINK), !path.is_dir()));
    for pin in pins {
        if pin.symlink_metadata()?.is_dir() { remove(&pin)? } else { change::remove_file(&pin)? }
    }
    change::remove_dir(directory)
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
        change::create_dir(path).map_err(failed)?;
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
    use crate::abi::maps::MAPS;

    /// By which `may_be_ours` knows them.
    #[test]
    fn names_of_maps_begin_alike() {
        assert!(MAPS.iter().all(|map| map.name.starts_with(MAP)));
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
