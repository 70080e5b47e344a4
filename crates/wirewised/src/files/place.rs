// SPDX-License-Identifier: Apache-2.0
//! Where an output goes: what its name stands for, and what it must not be.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::ArgMatches;
use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::shell::quoted;

/// As the kernel's MAXSYMLINKS.
const MOST_LINKS: usize = 40;
const WRITABLE_BY_ALL_AND_STICKY: u32 = 0o1002;

/// The files that this process reads. An output never replaces one of them.
static INPUTS: Mutex<Option<HashSet<Identity>>> = Mutex::new(None);

/// A file, whatever it is called.
pub type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// An option that names a file to write. `check_arguments` looks at all of them before a command does anything.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct OutputPath(PathBuf);

impl OutputPath {
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        PathBufValueParser::new().map(Self)
    }
}

impl std::ops::Deref for OutputPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for OutputPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// Refuses outputs that cannot be written, that are also inputs, or that are given twice.
pub fn check_arguments(matches: &ArgMatches) -> Result<()> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let mut matches = Some(matches);
    while let Some(these) = matches {
        for id in these.ids() {
            // Groups have ids too, and values of another type.
            let of_inputs = these.try_get_many::<PathBuf>(id.as_str()).ok().flatten();
            inputs.extend(of_inputs.into_iter().flatten().cloned());
            let of_outputs = these.try_get_many::<OutputPath>(id.as_str()).ok().flatten();
            outputs.extend(of_outputs.into_iter().flatten().cloned());
        }
        matches = these.subcommand().map(|(_, inner)| inner);
    }
    inputs.iter().for_each(|path| note_input(path));
    let mut known = HashSet::new();
    // Some commands take a folder in the same option, and say so themselves if they do not.
    for path in outputs.iter().filter(|path| !path.is_dir()) {
        let place = Destination::of(path)?;
        if place.keys().into_iter().any(|key| !known.insert(key)) {
            return Err(Error::input(format!(
                "{}: is the same file as another output; give each a file of its own",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Remembers a file that is read, under whatever name; `-` is standard input.
pub fn note_input(path: &Path) {
    let path = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    if let Ok(metadata) = fs::metadata(path) {
        note_opened(&metadata);
    }
}

pub fn note_opened(metadata: &Metadata) {
    if is_one_file(metadata) {
        let mut inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.get_or_insert_default().insert(identity(metadata));
    }
}

/// Not a terminal or `/dev/null`, which may well be read and written.
fn is_one_file(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_file() || kind.is_fifo() || kind.is_block_device()
}

fn is_input(metadata: &Metadata) -> bool {
    let inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    is_one_file(metadata) && inputs.as_ref().is_some_and(|known| known.contains(&identity(metadata)))
}

/// What the name of an output stands for.
#[derive(Debug)]
pub enum Destination {
    /// No file yet. The path has no link at its end.
    New(PathBuf),
    /// To be replaced.
    File(PathBuf, Metadata),
    /// A device or a pipe, to be opened and written into.
    Device(PathBuf, Metadata),
    /// Open already.
    Descriptor(File, Metadata),
}

impl Destination {
    /// Follows links. Refuses what cannot be written, and all that this process reads.
    pub fn of(path: &Path) -> Result<Self> {
        let place = Self::of_input(path)?;
        if place.metadata().is_some_and(is_input) {
            return Err(Error::input(format!(
                "{}: is also an input, which the output would replace; give another name",
                path.display()
            )));
        }
        Ok(place)
    }

    /// As `of`, of an input that is to be written anew.
    pub fn of_input(path: &Path) -> Result<Self> {
        let place = follow(path).map_err(|error| cannot_write(path, &error))?;
        let name = path.display();
        let refuse = |rule: &str| Err(Error::input(format!("{name}: {rule}")));
        if place.metadata().is_some_and(Metadata::is_dir) {
            return refuse("is a folder, not a file to write");
        }
        match &place {
            Self::File(file, _) if !may_write(file) => {
                refuse("is read-only; give another name, or remove it")
            }
            Self::Device(_, metadata) if metadata.file_type().is_socket() => {
                refuse("is a socket; start what reads from it with a pipe")
            }
            Self::File(file, _) | Self::New(file) if !may_write(folder_of(file)) => {
                let folder = folder_of(file);
                if folder.is_dir() {
                    let folder = folder.display();
                    return refuse(&format!("cannot be written: you may not write to the folder {folder}"));
                }
                Err(cannot_write(file, &io::Error::from(io::ErrorKind::NotFound)))
            }
            _ => Ok(place),
        }
    }

    fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::New(_) => None,
            Self::File(_, metadata) | Self::Device(_, metadata) | Self::Descriptor(_, metadata) => {
                Some(metadata)
            }
        }
    }

    /// Whether it is written into rather than replaced.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Device(..) | Self::Descriptor(..))
    }

    /// What two outputs must not have in common.
    fn keys(&self) -> Vec<(u64, u64, PathBuf)> {
        let named = match self {
            Self::New(path) | Self::File(path, _) => {
                let folder = fs::metadata(folder_of(path)).ok();
                folder.zip(path.file_name()).map(|(folder, name)| (folder.dev(), folder.ino(), name.into()))
            }
            _ => None,
        };
        let itself = self.metadata().filter(|metadata| is_one_file(metadata));
        named.into_iter().chain(itself.map(|file| (file.dev(), file.ino(), PathBuf::new()))).collect()
    }
}

/// Whether this process may write to a file or into a folder.
fn may_write(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: the text ends with a zero and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

pub fn folder_of(path: &Path) -> &Path {
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

fn follow(path: &Path) -> io::Result<Destination> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Some(descriptor) = descriptor(&at)? {
            return Ok(descriptor);
        }
        let metadata = match fs::symlink_metadata(&at) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound && at.file_name().is_some() => {
                return Ok(Destination::New(at));
            }
            Err(error) => return Err(error),
        };
        if !metadata.is_symlink() {
            let in_place = metadata.is_file() || metadata.is_dir();
            return Ok(if in_place {
                Destination::File(at, metadata)
            } else {
                Destination::Device(at, metadata)
            });
        }
        let folder = folder_of(&at);
        // The kernel's rule for links that others may have laid (fs.protected_symlinks).
        let parent = fs::metadata(folder)?;
        let shared = parent.mode() & WRITABLE_BY_ALL_AND_STICKY == WRITABLE_BY_ALL_AND_STICKY;
        // SAFETY: the call has no arguments and cannot fail.
        let own = metadata.uid() == unsafe { libc::geteuid() };
        if shared && !own && metadata.uid() != parent.uid() {
            return Err(io::Error::other(format!(
                "it is a link of user {} in a folder where everybody may make one; give another name",
                metadata.uid()
            )));
        }
        at = folder.join(fs::read_link(&at)?);
    }
    Err(io::Error::other("too many links follow each other"))
}

/// An open file that is named by its number (`/dev/fd/5`, `/dev/stdout`, `/proc/7/fd/5`).
fn descriptor(path: &Path) -> io::Result<Option<Destination>> {
    let number = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
    let Some(number) = number else { return Ok(None) };
    let Ok(folder) = folder_of(path).canonicalize() else { return Ok(None) };
    let Ok(process) = folder.strip_prefix("/proc") else { return Ok(None) };
    if folder.file_name().is_none_or(|name| name != "fd") {
        return Ok(None);
    }
    let own = fs::read_link("/proc/self")?;
    let file = if process.starts_with(own) {
        // SAFETY: takes numbers only.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        if flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(io::Error::other("it is open for reading only"));
        }
        // SAFETY: takes numbers only.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and is nobody else's.
        unsafe { File::from_raw_fd(copy) }
    } else {
        OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?
    };
    let metadata = file.metadata()?;
    Ok(Some(Destination::Descriptor(file, metadata)))
}

/// Opens a device or a pipe, which waits until somebody reads from the pipe.
pub fn open_device(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Err(io::Error::other("somebody has just put a file there"));
    }
    Ok(file)
}

/// Gives a new file the owner, the mode and the extended attributes (and so the access list) of the one that it replaces.
pub fn keep_attributes(file: &File, old: &Path, metadata: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (metadata.uid(), metadata.gid()) {
        std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    file.set_permissions(metadata.permissions())?;
    copy_extended(file, old);
    Ok(())
}

/// As far as the file system and our privileges allow.
fn copy_extended(file: &File, old: &Path) {
    let Ok(old) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(old)
    else {
        return;
    };
    let mut names = vec![0u8; 1 << 16];
    // SAFETY: the buffer has this length.
    let length = unsafe { libc::flistxattr(old.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap_or_default());
    for name in names.split_inclusive(|byte| *byte == 0) {
        let mut value = vec![0u8; 1 << 16];
        let at = name.as_ptr().cast();
        // SAFETY: the name ends with a zero, the buffer has this length.
        let length = unsafe { libc::fgetxattr(old.as_raw_fd(), at, value.as_mut_ptr().cast(), value.len()) };
        if let Ok(length) = usize::try_from(length) {
            // SAFETY: as above; `length` bytes were filled.
            unsafe { libc::fsetxattr(file.as_raw_fd(), at, value.as_ptr().cast(), length, 0) };
        }
    }
}
