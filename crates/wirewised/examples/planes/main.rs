// SPDX-License-Identifier: Apache-2.0
//! One object in several planes: this kernel, the engine, the engine caged, and its own C compiled for this processor.
//!
//! `time` runs the same packets through each in turn and prints nanoseconds a packet; `check` runs a capture through each and compares
//! what they made of every packet; `workers` compares several engines on shared maps with one; `batches` times a model on rows in batches. `python -m bench.engine` makes the
//! native code and calls them, `python -m bench.n3ic` the last.

mod batches;
mod check;
mod latencies;
mod native;
mod packets;
mod time;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use wirewised::error::{Error, Result};

/// Measure an object in this kernel, in the engine and as native code
#[derive(Debug, Parser)]
#[command(name = "planes")]
enum Command {
    Time(time::Args),
    Check(check::Args),
    Workers(workers::Args),
    Batches(batches::Args),
}

/// What all commands are told of the object.
#[derive(Debug, clap::Args)]
struct Program {
    /// Compiled eBPF object (.bpf.o)
    #[arg(long, value_name = "FILE")]
    object: PathBuf,

    /// Its C compiled for this processor with bench/native, under the name it has in the result; repeatable
    #[arg(long = "native", value_name = "NAME=FILE", value_parser = named_file)]
    native: Vec<(String, PathBuf)>,

    /// Number that decides the flow table's hash; the native code was compiled with the same
    #[arg(long, value_name = "N")]
    seed: u64,

    /// Entries of the flow table, a power of two; the native code was compiled with the same
    #[arg(long, value_name = "ENTRIES")]
    table_size: u32,
}

fn named_file(text: &str) -> std::result::Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write NAME=FILE")?;
    Ok((name.to_owned(), path.into()))
}

impl Program {
    /// What errors call the object.
    fn name(&self) -> String {
        self.object.display().to_string()
    }
}

fn failed(what: impl std::fmt::Display) -> impl FnOnce(wirewise_engine::Trap) -> Error {
    move |trap| Error::other(format!("{what}: {trap}"))
}

fn main() -> ExitCode {
    let done: Result<()> = match Command::parse() {
        Command::Time(args) => time::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Workers(args) => workers::run(&args),
        Command::Batches(args) => batches::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.kind().exit_code())
        }
    }
}
