// SPDX-License-Identifier: Apache-2.0
//! The C back end: one C file, compiled by clang into a shared object and loaded. Slower to compile, a little faster to run, and
//! a second opinion in tests.

mod emit;

use std::io::{Error as IoError, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use libloading::Library;

use super::{Code, Settings, failed};
use crate::error::Error;
use crate::frontend::ir::Program;
use crate::limits::{COMPILE_BYTES, COMPILE_SECONDS};

/// Compilers to try, the newest first.
const COMPILERS: [&str; 6] = ["clang", "clang-20", "clang-19", "clang-18", "clang-16", "clang-14"];

pub(crate) fn compile(programs: &[Program], settings: Settings) -> Result<Code, Error> {
    let source = emit::source(programs, settings);
    let folder = tempfile::tempdir().map_err(failed)?;
    let object = folder.path().join("programs.so");
    let compiler = compiler()?;
    let mut command = Command::new(compiler);
    bound(&mut command, COMPILE_SECONDS, COMPILE_BYTES);
    let mut child = command
        .args(["-O3", "-march=native", "-shared", "-fPIC", "-nostdlib", "-w"])
        // Programs see memory as bytes, and numbers wrap around.
        .args([
            "-fstack-clash-protection",
            "-fno-strict-aliasing",
            "-fwrapv",
            "-fno-delete-null-pointer-checks",
            "-fbracket-depth=4096",
        ])
        .args(["-x", "c", "-", "-o"])
        .arg(&object)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("{compiler}: {error}")))?;
    // A compiler that ends early says why on its standard error.
    let _ = child.stdin.take().map(|mut input| input.write_all(source.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        if output.status.signal().is_some() {
            return Err(failed(format!(
                "{compiler} was ended, as it took more than {COMPILE_SECONDS} s or {} GiB",
                COMPILE_BYTES >> 30
            )));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // Before its error LLVM may write about a processor it does not know; no option keeps that back.
        let error = said.lines().find(|line| line.contains("error")).unwrap_or("failed");
        return Err(failed(format!("{compiler}: {error}")));
    }
    // SAFETY: the shared object is ours, made above; it has no initialisers.
    let library = unsafe { Library::new(&object) }.map_err(failed)?;
    let mut entries = Vec::with_capacity(programs.len());
    for program in 0..programs.len() {
        // SAFETY: the emitted functions have this signature.
        let entry = unsafe {
            library
                .get::<unsafe extern "C" fn(*mut u8, u64) -> u64>(emit::function_name(program, 0).as_bytes())
        };
        entries.push(*entry.map_err(failed)? as usize);
    }
    let scouts = vec![None; entries.len()];
    Ok(Code::new(entries, scouts, library))
}

/// Ends the command where it takes more processor time or memory.
fn bound(command: &mut Command, seconds: u64, bytes: u64) {
    let limits = [(libc::RLIMIT_CPU, seconds), (libc::RLIMIT_AS, bytes)];
    let set = move || {
        for (what, most) in limits {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: `limit` is a limit.
            if unsafe { libc::setrlimit(what, &limit) } != 0 {
                return Err(IoError::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec it calls setrlimit only, which may be called there.
    unsafe { command.pre_exec(set) };
}

fn compiler() -> Result<&'static str, Error> {
    let works = |name: &&&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    COMPILERS.iter().find(works).copied().ok_or_else(|| {
        failed("the ahead-of-time back end needs clang: install it, or use Backend::Cranelift")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> std::process::ExitStatus {
        let mut command = Command::new("sh");
        bound(&mut command, 1, 1 << 30);
        command.args(["-c", script]).stderr(Stdio::null()).status().unwrap()
    }

    #[test]
    fn what_takes_long_or_much_is_ended() {
        assert!(shell("true").success());
        assert!(shell("while :; do :; done").signal().is_some());
        let much = "a=0123456789abcdef; while :; do a=$a$a; done";
        assert!(!shell(much).success());
    }
}
