// SPDX-License-Identifier: Apache-2.0
//! The wirewise agent: loads bundles into the kernel, attaches them, and shows what they do.
//!
//! `cli` names the commands, `commands` holds one module for each; the modules beside them are what commands share.

#[macro_use]
mod output;

mod libbpf_log;

pub mod abi;
pub mod agreement;
pub mod attach;
pub mod attachment;
pub mod bpffs;
pub mod bundle;
pub mod cli;
pub mod commands;
pub mod datapath;
pub mod doctor;
pub mod emitted;
pub mod engine_run;
pub mod error;
mod event_ring;
pub mod features;
mod flow_listing;
pub mod flow_table;
pub mod headers;
pub mod input;
mod jiffies;
pub mod kernel;
pub mod keys;
pub mod labels;
pub mod limits;
mod loaded;
mod lock;
pub mod lockout;
pub mod manifest;
pub mod mapped;
pub mod meta;
pub mod model;
mod names;
pub mod netdev;
pub mod netns;
pub mod object;
pub mod offloads;
pub mod outer;
pub mod pins;
pub mod plane;
pub mod policy;
pub mod policy_file;
pub mod policy_maps;
mod progress;
pub mod rebuild;
pub mod replay;
pub mod rows;
mod rtnetlink;
pub mod runner;
pub mod signature;
pub mod spread;
mod staging;
pub mod stats;
pub mod status;
pub mod succession;
pub mod swap;
pub mod table;
pub mod test_run;
pub mod text;
pub mod trace_output;
pub mod tracker;
pub mod tree;
pub mod units;
mod unpinned;
mod verdicts;
pub mod verifier;
pub mod watch;
pub mod whole_file;
pub mod xdp;
