// SPDX-License-Identifier: Apache-2.0
//! Writes the actor's object, which the agent carries, from clang's: only those parts that the agent reads.
//!
//!     cargo run --release --example actor -- FROM.o TO.o
#![allow(clippy::print_stderr, reason = "this is a command")]

use std::process::ExitCode;
use std::{env, fs};

use wirewised::bundle::inspection;

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        eprintln!("usage: actor FROM.o TO.o");
        return ExitCode::from(2);
    };
    let written = fs::read(from).map_err(|error| error.to_string()).and_then(|bytes| {
        let actor = inspection::read_actor(&bytes)?;
        fs::write(to, actor.encode()).map_err(|error| error.to_string())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {from}: {what}");
            ExitCode::from(2)
        }
    }
}
