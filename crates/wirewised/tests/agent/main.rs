// SPDX-License-Identifier: Apache-2.0
//! The agent on real interfaces: veth pairs in network namespaces, the data path of this repository, real packets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod carrier;
mod challenge;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compiled.rs"]
mod compiled;
mod lab;
mod quiet;

mod access;
mod allow;
mod balanced_servers;
mod balancing;
mod bans;
mod bench_planes;
mod bench_xdp;
mod clsact;
mod companion;
mod completions;
mod deaths;
mod delivery;
mod deny;
#[cfg(feature = "dpdk")]
mod devices;
mod dispatcher;
mod drift;
mod elsewhere;
mod events;
mod faults;
mod forwarding;
mod health;
mod jumbo;
mod kept;
mod kills;
mod life;
mod limits;
mod loops;
mod metadata;
mod modes;
mod mount;
mod names;
mod namespaces;
mod next;
mod offloads;
mod others;
mod outgoing;
mod ownership;
mod policies;
mod ready_models;
mod refusals;
mod several;
mod shadow;
mod signatures;
mod steering;
mod surroundings;
mod swap;
mod tc;
mod tunnels;
mod user_space;
mod views;
mod wire;
