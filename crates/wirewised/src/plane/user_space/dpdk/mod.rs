// SPDX-License-Identifier: Apache-2.0
//! DPDK, where the agent was built with it: polled drivers in user space.

#[cfg(feature = "dpdk")]
mod devices;
#[cfg(feature = "dpdk")]
mod lanes;

use clap::Args;

use super::Kind;
use super::options::{TO, Takes, WORKERS};

const NAME: &str = "dpdk";

pub const KIND: Kind = Kind {
    name: NAME,
    takes: Takes { common: &[TO, WORKERS], own: Given::augment_args },
    #[cfg(feature = "dpdk")]
    plane: Some(lanes::PLANE),
    #[cfg(not(feature = "dpdk"))]
    plane: None,
};

/// This plane's options of `run`: also shown by agents without it, which refuse them.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct Given {
    /// With --plane dpdk: DPDK's virtual device over the interface [default: net_af_packet, which gets copies]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
}
