// SPDX-License-Identifier: Apache-2.0
//! What libbpf says: kept while an object is opened or loaded, and shown with --verbose only.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IN_USE: Mutex<()> = Mutex::new(());

type Print = unsafe extern "C" fn(u32, *const c_char, *mut c_void) -> c_int;

unsafe extern "C" {
    /// A `va_list` as an argument is a pointer on the platforms we support; its type has another name on each.
    fn vasprintf(to: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// The callback for libbpf. Its messages quote names from files, which can be any bytes. No panic may cross into C.
unsafe extern "C" fn print(level: u32, format: *const c_char, arguments: *mut c_void) -> c_int {
    let mut text: *mut c_char = ptr::null_mut();
    // SAFETY: format and arguments belong together, and vasprintf allocates the text.
    let length = unsafe { vasprintf(&raw mut text, format, arguments) };
    if length < 0 || text.is_null() {
        return 0;
    }
    // SAFETY: vasprintf has written a text that ends in a zero byte.
    let message = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: vasprintf took it from malloc, and nothing refers to it any more.
    unsafe { libc::free(text.cast()) };
    let _ = panic::catch_unwind(|| keep(level, &message));
    0
}

fn keep(level: u32, text: &str) {
    let text = text.trim_end();
    match level {
        libbpf_sys::LIBBPF_WARN => {
            tracing::info!("{text}");
            lock(&WARNINGS).push(text.to_owned());
        }
        libbpf_sys::LIBBPF_INFO => tracing::info!("{text}"),
        _ => tracing::debug!("{text}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `call` and returns its result with the warnings libbpf gave meanwhile. libbpf has one print callback for the
/// whole process, so calls from several threads take turns.
pub fn collect<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    let _turn = lock(&IN_USE);
    lock(&WARNINGS).clear();
    init();
    let result = call();
    (result, std::mem::take(&mut *lock(&WARNINGS)))
}

/// Silences what libbpf would otherwise print by itself, outside of `collect`.
pub fn init() {
    // SAFETY: the types differ in the name of va_list alone, which is passed as a pointer.
    let print = unsafe { std::mem::transmute::<Print, libbpf_sys::libbpf_print_fn_t>(print) };
    // SAFETY: the callback lives as long as the process, and any thread may call it.
    unsafe { libbpf_sys::libbpf_set_print(print) };
}
