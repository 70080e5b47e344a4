// SPDX-License-Identifier: Apache-2.0
//! `wirewised completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::Result;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    // It panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "wirewised", &mut script);
    println!("{}", String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
