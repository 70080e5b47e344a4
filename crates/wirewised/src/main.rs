// SPDX-License-Identifier: Apache-2.0
use std::process::ExitCode;

fn main() -> ExitCode {
    wirewised::cli::main()
}
