// SPDX-License-Identifier: Apache-2.0
//! Standard output and standard error of this process. The standard library's `println!` panics where it cannot write (a full disk,
//! `/dev/full`); the one here, which takes its name in the whole crate, keeps the error. `check` returns it, and `cli::main` ends
//! with it, whatever a command has printed. And no line that is printed has a character that a terminal would obey.

use std::fmt::Arguments;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::OnceLock;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::harmless::{harmless, one_line};

static FAILURE: OnceLock<String> = OnceLock::new();

macro_rules! println {
    () => { $crate::text::output::line(::core::format_args!("")) };
    ($($text:tt)*) => { $crate::text::output::line(::core::format_args!($($text)*)) };
}

/// Where standard error cannot be written there is nobody to tell.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::text::output::aside(::core::format_args!($($text)*)) };
}

/// What is rewritten on a terminal: nothing is cleaned here.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::text::output::rewrite(::core::format_args!($($text)*)) };
}

pub fn line(text: Arguments<'_>) {
    keep(writeln!(io::stdout(), "{}", one_line(&text.to_string())));
}

/// Text that has several lines of our own; what is in them is in one line already.
pub fn block(text: &str) {
    keep(writeln!(io::stdout(), "{}", harmless(text)));
}

/// Lines that follow each other fast: a system call for many of them.
pub(crate) struct Lines(BufWriter<StdoutLock<'static>>);

impl Lines {
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
    }

    pub fn line(&mut self, text: &str) -> Result<()> {
        self.block(&one_line(text))
    }

    /// See `block`.
    pub fn block(&mut self, text: &str) -> Result<()> {
        let written = self.0.write_all(harmless(text).as_bytes()).and_then(|()| self.0.write_all(b"\n"));
        written.map_err(|error| Error::other(format!("standard output: {error}")))
    }

    /// What was written so far can be read.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(|error| Error::other(format!("standard output: {error}")))
    }
}

pub fn aside(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", one_line(&text.to_string()));
}

pub fn rewrite(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

fn keep(written: io::Result<()>) {
    if let Err(error) = written {
        // The first one tells.
        let _ = FAILURE.set(format!("standard output: {error}"));
    }
}

/// Whether all that was printed could be written.
pub fn check() -> Result<()> {
    keep(io::stdout().flush());
    FAILURE.get().map_or(Ok(()), |failure| Err(Error::other(failure)))
}

/// One JSON document on standard output.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::other(format!("JSON: {error}")))?;
    block(&text);
    check()
}
