// SPDX-License-Identifier: Apache-2.0
//! What the kernel says about a network interface.

use crate::interface::netdev::{self, Device};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub name: String,
    pub index: u32,
    pub rx_queues: u32,
    pub tx_queues: u32,
    pub mtu: u32,
}

impl Interface {
    pub fn find(name: &str) -> Result<Self, String> {
        let found = netdev::index(name).and_then(|index| Ok((index, Device::open(name)?)));
        let (index, device) = found.map_err(|error| error.to_string())?;
        // A driver that does not say has one.
        let queues = |queues: Option<u32>| queues.unwrap_or(1).max(1);
        Ok(Self {
            name: name.to_string(),
            index,
            rx_queues: queues(device.receive_queues()),
            tx_queues: queues(device.transmit_queues()),
            mtu: device.mtu().ok_or_else(|| format!("interface {name}: cannot read its MTU"))?,
        })
    }

    /// Whether an interface of this index is still in the network namespace of the calling thread.
    pub fn is_there(&self) -> bool {
        netdev::name(self.index).is_some()
    }
}
