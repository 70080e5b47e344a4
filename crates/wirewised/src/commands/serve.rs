// SPDX-License-Identifier: Apache-2.0
//! `wirewised serve`: a program of its own, installed beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::{Error, Result};

const PROGRAM: &str = "wirewised-serve";

/// Keep bundles running on interfaces as a configuration says, and tell monitoring what they do
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Those of the service; `wirewised serve --help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<()> {
    become_service(&args.options)
}

/// Goes on as the service's program, and returns only if that cannot be.
pub fn become_service(words: &[OsString]) -> Result<()> {
    let own = std::env::current_exe()
        .map_err(|error| Error::other(format!("this program's own place: {error}")))?;
    let program = own.with_file_name(PROGRAM);
    let error = Command::new(&program).args(words).exec();
    Err(Error::missing(format!(
        "{}: {error}; the service is a program of its own beside this one: `make setup`, the wheel of `make dist` and the Debian package bring it, \
         and `cargo build --release -p wirewise-serve` builds it",
        program.display()
    )))
}
