// SPDX-License-Identifier: Apache-2.0
//! Changes that outlive this process: pins, links, filters, what maps hold. Each says so when it is made, so that tests can have an agent die
//! after any of them. A release build does nothing here.

use std::fs;
use std::io;
use std::path::Path;

/// The agent dies after this many changes.
#[cfg(debug_assertions)]
const DIE_AFTER: &str = "WIREWISED_DIE_AFTER";
/// A file that gets a line for each change.
#[cfg(debug_assertions)]
const CHANGES: &str = "WIREWISED_CHANGES";

/// To be called after a change. kind : of which it is, for tests.
#[cfg(debug_assertions)]
pub fn made(kind: &str) {
    use std::io::Write;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    static COUNT: AtomicU32 = AtomicU32::new(0);
    static FILE: Mutex<()> = Mutex::new(());
    let number = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    if let (Ok(path), Ok(_)) = (std::env::var(CHANGES), FILE.lock())
        && let Ok(mut file) = fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{kind}");
    }
    if std::env::var(DIE_AFTER).is_ok_and(|last| last == number.to_string()) {
        // SAFETY: a signal to this process itself.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::thread::park();
        }
    }
}

#[cfg(not(debug_assertions))]
pub fn made(_kind: &str) {}

pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).inspect(|()| made("rename"))
}

pub fn create_dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path).inspect(|()| made("create directory"))
}

pub fn remove_dir(path: &Path) -> io::Result<()> {
    fs::remove_dir(path).inspect(|()| made("remove directory"))
}

pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path).inspect(|()| made("unpin"))
}
