// SPDX-License-Identifier: Apache-2.0
//! DPDK's environment (EAL): started once in a process, what it needs for that, and what it says of errors.

use super::device::{is_pci, name_of};
use std::cell::OnceCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

unsafe extern "C" {
    fn dpdk_said(out: *mut c_char, room: usize) -> usize;
    fn dpdk_drivers() -> *const c_char;
    fn dpdk_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn rte_eal_get_runtime_dir() -> *const c_char;
    fn rte_thread_register() -> c_int;
    fn rte_thread_unregister();
}

/// Whether EAL was started, with PCI devices or without, or why it cannot be.
pub type State = Option<Result<bool, String>>;

static EAL: Mutex<State> = Mutex::new(None);

/// Opening and closing go one at a time: most of DPDK's control functions are made for one thread.
pub fn lock() -> MutexGuard<'static, State> {
    EAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts EAL if it does not run yet. memory : MiB for packets.
pub fn start(state: &mut State, devices: &[&str], memory: u64) -> Result<(), String> {
    let pci: Vec<&str> = devices.iter().map(|device| name_of(device)).filter(|name| is_pci(name)).collect();
    match state {
        None => {}
        Some(Ok(with)) if pci.is_empty() || *with => return Ok(()),
        Some(Ok(_)) => {
            return Err(format!(
                "{}: DPDK was started in this process without PCI devices and cannot be started again; \
                 restart the process, with this device from the beginning",
                pci.join(" ")
            ));
        }
        Some(Err(why)) => return Err(why.clone()),
    }
    let arguments = arguments(&pci, memory);
    let shown = arguments.join(" ");
    let result = run(arguments)
        .map_err(|error| format!("DPDK: a thread to start it: {error}; allow this process more threads"))?;
    remove_directory();
    let started = check(result, |why| {
        format!(
            "DPDK: starting EAL ({shown}): {why}; see that the process is root and that {memory} MiB are \
             free (or open fewer lanes), and restart it"
        )
    });
    *state = Some(started.clone().map(|()| !pci.is_empty()));
    started
}

fn arguments(pci: &[&str], memory: u64) -> Vec<String> {
    // SAFETY: only asks on which CPU this thread runs. One is enough: EAL binds a thread of its own to each.
    let cpu = unsafe { libc::sched_getcpu() }.max(0);
    let mut text = format!(
        "dpdk --lcores 0@{cpu} --no-telemetry --no-shconf --log-level=warning --file-prefix=lane-{}",
        std::process::id()
    );
    if huge_pages() < memory << 20 {
        text += &format!(" --no-huge -m {memory}");
    } else {
        // No files of huge pages. Without huge pages there are none, and EAL refuses the two together.
        text += " --in-memory";
    }
    if pci.is_empty() {
        text += " --no-pci --iova-mode=va";
    }
    for name in pci {
        // Only these: by itself EAL takes every device that is bound to a driver of DPDK's.
        text += &format!(" -a {name}");
    }
    text.split(' ').map(str::to_string).collect()
}

/// The drivers that DPDK has installed, such as `net_null`, in order.
pub fn drivers() -> Vec<String> {
    // SAFETY: the shim's own text.
    let folder = unsafe { CStr::from_ptr(dpdk_drivers()) }.to_str().unwrap_or_default();
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |file: std::fs::DirEntry| {
        let file = file.file_name().into_string().ok()?;
        Some(file.strip_prefix("librte_")?.split(".so").next()?.to_string())
    };
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// Bytes of free huge pages.
fn huge_pages() -> u64 {
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
    let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages");
    let bytes = sizes.into_iter().flatten().flatten().map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kilobytes = name.trim_start_matches("hugepages-").trim_end_matches("kB");
        let free = std::fs::read_to_string(entry.path().join("free_hugepages")).unwrap_or_default();
        number(kilobytes) * 1024 * number(&free)
    });
    bytes.sum()
}

/// On a thread of its own, as EAL binds the thread that starts it to a CPU.
fn run(arguments: Vec<String>) -> std::io::Result<c_int> {
    let start = move || {
        // EAL keeps pointers to its arguments, so they are never freed.
        let texts = arguments.into_iter().flat_map(CString::new);
        let mut argv: Vec<*mut c_char> = texts.map(CString::into_raw).collect();
        let argc = argv.len() as c_int;
        argv.push(std::ptr::null_mut());
        // SAFETY: argc strings that live for ever and a null pointer; EAL was not started before, and its
        // lock is held.
        unsafe { dpdk_start(argc, argv.as_mut_ptr()) }
    };
    let thread = std::thread::Builder::new().name("dpdk-start".to_string()).spawn(start)?;
    Ok(thread.join().unwrap_or(-libc::EIO))
}

/// EAL makes a directory even when it has no file for it. Only empty ones can be removed.
fn remove_directory() {
    // SAFETY: a string that stays as it is once EAL was started, or a null pointer.
    let path = unsafe {
        let path = rte_eal_get_runtime_dir();
        (!path.is_null()).then(|| CStr::from_ptr(path))
    };
    let path = Path::new(path.and_then(|path| path.to_str().ok()).unwrap_or_default());
    for directory in path.ancestors().take(2) {
        let _ = std::fs::remove_dir(directory);
    }
}

/// A result of DPDK's: below 0 it is an error, told with what DPDK had to say.
pub fn check(result: c_int, what: impl FnOnce(String) -> String) -> Result<(), String> {
    let error = match result {
        0.. => return Ok(()),
        // Drivers say this of all that fails; as an errno it would mislead.
        -1 => "refused".to_string(),
        result => std::io::Error::from_raw_os_error(result.saturating_abs()).to_string(),
    };
    match said() {
        said if said.is_empty() => Err(what(error)),
        said => Err(what(format!("{error} (DPDK: {said})"))),
    }
}

/// What DPDK said since the last call.
pub fn said() -> String {
    let mut text = [0_u8; 2048];
    // SAFETY: the shim writes at most as many bytes as are given and returns how many.
    let length = unsafe { dpdk_said(text.as_mut_ptr().cast(), text.len()) };
    let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Makes a thread known to DPDK, which gives it a cache in each mempool, until it ends.
struct Known(bool);

impl Drop for Known {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: this thread was registered and calls nothing of DPDK's after this.
            unsafe { rte_thread_unregister() };
        }
    }
}

thread_local! {
    static KNOWN: OnceCell<Known> = const { OnceCell::new() };
}

/// To be called where EAL runs.
pub fn know_thread() {
    // A thread that DPDK has no room for, or that is ending, works without a cache.
    // SAFETY: EAL runs, and this thread is not registered yet.
    let register = || Known(unsafe { rte_thread_register() } == 0);
    let _ = KNOWN.try_with(|known| known.get_or_init(register).0);
}
