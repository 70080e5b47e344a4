// SPDX-License-Identifier: Apache-2.0
//! How SIGINT, SIGTERM and SIGHUP end this process: one line on standard error, exit code 128 + the signal, and no temporary file
//! left. Commands that a signal is meant to end (`run`, `record`, `stats`) finish their work instead; see `stop`.

use std::ffi::CString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use serde_json::json;

use crate::error::{Error, Result};

const SIGNALS: [(i32, &str); 3] =
    [(libc::SIGINT, "interrupted"), (libc::SIGTERM, "terminated"), (libc::SIGHUP, "hung up")];

/// What to print for each of `SIGNALS`: the handler must not allocate.
static LINES: OnceLock<[String; 3]> = OnceLock::new();
/// Sections that end by themselves when a signal has come.
static HELD: AtomicUsize = AtomicUsize::new(0);
static CAME: AtomicI32 = AtomicI32::new(0);
/// A list that only grows: the handler may walk it at any time.
static TEMPORARIES: AtomicPtr<Node> = AtomicPtr::new(null_mut());

struct Node {
    /// Null once the file needs no removal.
    path: AtomicPtr<libc::c_char>,
    next: *const Node,
}

/// Installs the handlers, but for signals that whoever started us ignores (`nohup`). json : the line is an object.
pub fn init(json: bool) -> Result<()> {
    let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ = LINES.set(SIGNALS.map(|(signal, message)| match json {
        true => format!("{}\n", json!({"error": {"message": message, "exit_code": 128 + signal}})),
        false => format!("{clear}error: {message}\n"),
    }));
    for (signal, _) in SIGNALS {
        if is_ignored(signal) {
            continue;
        }
        // SAFETY: the handler reads atomics, and calls write, unlink and _exit, which are async-signal-safe.
        unsafe { signal_hook::low_level::register(signal, move || on_signal(signal)) }
            .map_err(|error| Error::other(format!("cannot handle signals: {error}")))?;
    }
    Ok(())
}

pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a null action changes nothing; the structure outlives the call, and zeroes are a valid one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

fn on_signal(signal: i32) {
    let _ = CAME.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    if HELD.load(Ordering::SeqCst) == 0 {
        end(signal);
    }
}

fn end(signal: i32) -> ! {
    let line = SIGNALS.iter().position(|(known, _)| *known == signal);
    if let Some(line) = line.and_then(|index| LINES.get()?.get(index)) {
        // SAFETY: the text is static, and of this length.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    let mut node: *const Node = TEMPORARIES.load(Ordering::SeqCst);
    // SAFETY: nodes and their paths are never freed.
    while let Some(Node { path, next }) = unsafe { node.as_ref() } {
        let path = path.load(Ordering::SeqCst);
        if !path.is_null() {
            // SAFETY: as above; the text ends with a zero.
            unsafe { libc::unlink(path) };
        }
        node = *next;
    }
    // SAFETY: takes a number, and does not return.
    unsafe { libc::_exit(128 + signal) }
}

/// A file that a signal removes, for as long as this lives.
pub struct Removal(&'static Node);

impl Removal {
    pub fn of(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?.into_raw();
        let node = Box::leak(Box::new(Node { path: AtomicPtr::new(path), next: null_mut() }));
        let node: *mut Node = node;
        let mut head = TEMPORARIES.load(Ordering::SeqCst);
        loop {
            // SAFETY: the node was just leaked, and nobody else knows it before the exchange succeeds.
            unsafe { (*node).next = head };
            match TEMPORARIES.compare_exchange(head, node, Ordering::SeqCst, Ordering::SeqCst) {
                // SAFETY: it is never freed, and from now on only its atomic changes.
                Ok(_) => return Some(Self(unsafe { &*node })),
                Err(changed) => head = changed,
            }
        }
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.0.path.store(null_mut(), Ordering::SeqCst);
    }
}

/// While this lives, a signal ends nothing; what it lives in asks for it (`came`) and returns early. The process ends with the guard.
pub struct Held(());

pub fn hold() -> Held {
    HELD.fetch_add(1, Ordering::SeqCst);
    Held(())
}

impl Held {
    /// For the rest of this process: signals are only told to `Stop`.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let came = CAME.load(Ordering::SeqCst);
        if HELD.fetch_sub(1, Ordering::SeqCst) == 1 && came != 0 {
            end(came);
        }
    }
}

/// Whether a signal has come.
pub fn came() -> bool {
    CAME.load(Ordering::SeqCst) != 0
}

/// Between fork and exec: the child ends with us, whatever ends us. parent : our process. Makes only system calls, which are
/// async-signal-safe.
pub fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// What a program that starts the agent sets to its own process, so that the agent ends with it.
const PARENT: &str = "WIREWISED_PARENT";

/// Ends with the process that `WIREWISED_PARENT` names, if that started us.
pub fn follow_parent() {
    let parent = std::env::var(PARENT).ok().and_then(|parent| parent.parse().ok());
    if parent == Some(std::os::unix::process::parent_id()) {
        // SAFETY: takes numbers only. SIGTERM is ours to handle, and an older kernel's refusal changes nothing.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    }
}
