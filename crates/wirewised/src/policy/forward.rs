// SPDX-License-Identifier: Apache-2.0
//! A class whose packets are sent on, as a router does.

/// What is looked up for it where the policy is to hold; until then all of it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forward {
    /// Of Ethernet: that of the interface whose packets are judged. Frames for others are not a router's.
    pub address: [u8; 6],
    /// Interfaces that packets may leave by at XDP, by index; by others the stack sends them.
    pub ways: Vec<u32>,
}
