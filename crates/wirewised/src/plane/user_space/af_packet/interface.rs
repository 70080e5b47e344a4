// SPDX-License-Identifier: Apache-2.0
//! An interface, and what goes wrong with it.

use std::io;

use crate::error::{Error, Result};
use crate::interface::netdev;

/// An interface of this network namespace, as it was when it was named.
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    pub index: u32,
}

impl Interface {
    pub fn find(name: &str) -> Result<Self> {
        Ok(Self { name: name.to_string(), index: netdev::index(name)? })
    }

    pub fn failed(&self, what: &str, error: &io::Error) -> Error {
        let name = &self.name;
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Error::missing(format!("{name}: {what} needs CAP_NET_RAW in its network namespace"))
            }
            Some(libc::ENOMEM) => Error::other(format!(
                "{name}: {what}: no memory for the ring of packets; choose fewer workers (`--workers`)"
            )),
            _ => Error::other(format!("{name}: {what}: {error}")),
        }
    }

    /// Fails if it was deleted, or moved to another network namespace; that it is down is no failure.
    pub fn require(&self) -> Result<()> {
        if netdev::name(self.index).is_some() {
            return Ok(());
        }
        Err(Error::other(format!("{}: the interface was deleted, or left this network namespace", self.name)))
    }
}
