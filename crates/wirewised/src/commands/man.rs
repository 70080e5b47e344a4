// SPDX-License-Identifier: Apache-2.0
//! `wirewised man DIR`, for those who make packages.

use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Result};

/// Write the manual pages to a directory, one a command
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// command : the whole command line.
pub fn run(args: &Args, command: clap::Command) -> Result<()> {
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(|error| Error::input(format!("{}: cannot be written: {error}", directory.display())))
}
