// SPDX-License-Identifier: Apache-2.0
//! Network interfaces and the namespaces they are in: what they are called, how they hand out packets, what they merge.

pub mod netdev;
pub mod netns;
pub mod offloads;
pub(crate) mod rtnetlink;
pub mod socket;
