// SPDX-License-Identifier: Apache-2.0
//! One module a command: its options (`Args`) and `run(&Args)`.

pub mod allow;
pub mod backends;
pub mod bans;
pub mod bench;
pub mod by_service;
pub mod completions;
pub mod deny;
pub mod detach;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod features;
pub mod flood;
pub mod flows;
pub mod infer;
pub mod keygen;
pub mod man;
pub mod mode;
pub mod planes;
pub mod policy;
pub mod receive;
pub mod record;
pub mod replay;
pub mod rollback;
pub mod run;
pub mod serve;
pub mod sign;
pub mod stats;
pub mod status;
pub mod swap;
pub mod trace;
pub mod tunnels;
pub mod verify;

/// Options of the commands that run a program on captures, in user space.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// Seed of the flow table's hash, for runs that must be repeatable; without it the hash is random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Entries of each worker's flow table, a power of two; without it the bundle's or the feature set's
    #[arg(long, value_name = "ENTRIES")]
    table_size: Option<u32>,

    /// Do not ask the kernel to verify the program: run it confined, which is slower
    #[arg(long)]
    caged: bool,

    /// Only warn about captures that break off and packets that cannot be read
    #[arg(long)]
    keep_going: bool,
}
