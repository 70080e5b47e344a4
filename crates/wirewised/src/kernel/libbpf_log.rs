// SPDX-License-Identifier: Apache-2.0
//! What libbpf says: kept while an object is opened or loaded, and shown with --verbose only.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::PrintLevel;

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IN_USE: Mutex<()> = Mutex::new(());

fn keep(level: PrintLevel, text: String) {
    let text = text.trim_end();
    match level {
        PrintLevel::Debug => tracing::debug!("{text}"),
        PrintLevel::Info | PrintLevel::Warn => tracing::info!("{text}"),
    }
    if level == PrintLevel::Warn {
        lock(&WARNINGS).push(text.to_owned());
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
    libbpf_rs::set_print(Some((PrintLevel::Debug, keep)));
    let result = call();
    (result, std::mem::take(&mut *lock(&WARNINGS)))
}

/// Silences what libbpf would otherwise print by itself, outside of `collect`.
pub fn init() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, keep)));
}
