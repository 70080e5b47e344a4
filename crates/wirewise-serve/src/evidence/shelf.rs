// SPDX-License-Identifier: Apache-2.0
//! The directory of captures, which has a size at most: the oldest go first. Other files there are left alone.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const BEGIN: &str = "wirewise-";
const END: &str = ".pcap";
/// What a file takes of a disk is a multiple of this.
const BLOCK: u64 = 4096;

#[derive(Debug)]
pub struct Shelf {
    directory: PathBuf,
    most_bytes: u64,
    /// The oldest first, with what each takes.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
}

impl Shelf {
    /// Looks at what is there, of this service and earlier ones, and whether there can be more.
    pub fn open(directory: &Path, most_bytes: u64) -> io::Result<Self> {
        let mut shelf =
            Self { directory: directory.to_path_buf(), most_bytes, files: VecDeque::new(), bytes: 0 };
        drop(tempfile::tempfile_in(directory)?);
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            let is_ours = name.starts_with(BEGIN.as_bytes()) && name.ends_with(END.as_bytes());
            // Not followed, if it is a link.
            let Some(metadata) = entry.metadata().ok().filter(|it| is_ours && it.is_file()) else { continue };
            found.push((entry.path(), metadata.size()));
        }
        // Names begin with the time.
        found.sort();
        found.into_iter().for_each(|(path, size)| shelf.add(path, size));
        shelf.make_room(0)?;
        Ok(shelf)
    }

    /// Where a capture is to be. time : begins its name. place, number : tell it from others of this time.
    pub fn place(directory: &Path, time: &str, place: &str, number: u64) -> PathBuf {
        let clean = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '_' };
        let place: String = place.chars().map(clean).collect();
        directory.join(format!("{BEGIN}{time}-{place}-{number:06}{END}"))
    }

    /// Removes the oldest files until one of this size fits. Returns how many went.
    pub fn make_room(&mut self, size: u64) -> io::Result<u64> {
        let mut removed = 0;
        while self.bytes + on_disk(size) > self.most_bytes {
            let Some((path, _)) = self.files.front() else { break };
            match fs::remove_file(path) {
                // Somebody else tidied up.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(()) => removed += 1,
            }
            self.bytes -= self.files.pop_front().map_or(0, |(_, taken)| taken);
        }
        Ok(removed)
    }

    pub fn add(&mut self, path: PathBuf, size: u64) {
        self.bytes += on_disk(size);
        self.files.push_back((path, on_disk(size)));
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

fn on_disk(size: u64) -> u64 {
    size.next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let name = |number| Shelf::place(at, "20260301T093516.251547", "blue.eth0/../x", number);
        for file in (1..=3).map(name).chain([at.join("other.pcap"), at.join("wirewise-notes")]) {
            fs::write(file, [0; 5000]).unwrap();
        }
        fs::create_dir(at.join("wirewise-folder.pcap")).unwrap();
        assert_eq!(
            name(7).file_name().unwrap(),
            "wirewise-20260301T093516.251547-blue.eth0_.._x-000007.pcap"
        );
        let mut shelf = Shelf::open(at, 3 * 8192).unwrap();
        assert_eq!(shelf.bytes(), 3 * 8192);
        // The second was removed by somebody else.
        fs::remove_file(name(2)).unwrap();
        assert_eq!(shelf.make_room(8193).unwrap(), 1);
        assert_eq!(shelf.bytes(), 8192);
        shelf.add(name(4), 8193);
        let left = |path: PathBuf| path.exists();
        assert_eq!((1..=3).map(|number| left(name(number))).collect::<Vec<_>>(), [false, false, true]);
        assert!(left(at.join("other.pcap")) && left(at.join("wirewise-notes")));
    }

    #[test]
    fn less_room_than_before_removes_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..5 {
            fs::write(Shelf::place(folder.path(), "20260301T0", "eth0", number), [0; 100]).unwrap();
        }
        assert_eq!(Shelf::open(folder.path(), 2 * BLOCK).unwrap().bytes(), 2 * BLOCK);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
