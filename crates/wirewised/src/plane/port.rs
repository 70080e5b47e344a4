// SPDX-License-Identifier: Apache-2.0
//! What packets come in by: an interface of the kernel's, or a device that the kernel has given away or never had.

/// As a plane knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// An interface, by its index in its network namespace.
    Interface(u32),
    /// A device of a plane's own, which goes by its name alone. It belongs to the network namespace of the agent that opened it.
    Device,
}

impl Port {
    /// 0, which no interface has, is a device.
    pub fn of_index(index: u32) -> Self {
        if index == 0 { Self::Device } else { Self::Interface(index) }
    }

    pub fn index(self) -> Option<u32> {
        match self {
            Self::Interface(index) => Some(index),
            Self::Device => None,
        }
    }
}
