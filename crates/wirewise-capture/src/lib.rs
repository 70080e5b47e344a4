// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]

mod error;
mod link;
mod magic;
mod merge;
mod packing;
mod pcap;
mod pcapng;
mod reader;
mod record;
mod source;
mod writer;

pub use error::{Error, Kind, Result};
pub use link::LinkType;
pub use merge::Merge;
pub use reader::{Packet, Reader};
pub use writer::{Format, Writer};
