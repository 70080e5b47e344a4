// SPDX-License-Identifier: Apache-2.0
//! How commands read files and print JSON.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::output;

// Here and not beside Error, which the fuzzed readers share without the capture crate.
impl From<wirewise_capture::Error> for Error {
    fn from(error: wirewise_capture::Error) -> Self {
        Self::input(error)
    }
}

/// A whole file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::input(format!("{}: {error}", path.display())))
}

/// One JSON document on standard output.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::other(format!("JSON: {error}")))?;
    println!("{text}");
    output::check()
}
