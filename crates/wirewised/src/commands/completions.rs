// SPDX-License-Identifier: Apache-2.0
//! `wirewised completions SHELL`.

use clap_complete::Shell;

use crate::completing;
use crate::error::Result;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  source <(wirewised completions bash)                     in ~/.bashrc; zsh alike
  wirewised completions fish | source                      in ~/.config/fish/config.fish
The script asks wirewised itself for commands, options, interfaces, bundles and classes.";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    output::block(completing::script(&args.shell.to_string())?.trim_end());
    Ok(())
}
