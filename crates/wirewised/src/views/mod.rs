// SPDX-License-Identifier: Apache-2.0
//! What commands show of what runs.

pub mod agreement;
pub mod backends;
pub mod drift;
pub(crate) mod events;
pub(crate) mod fit;
pub(crate) mod flow_key;
pub(crate) mod flows;
pub mod notices;
pub mod stats;
pub mod status;
pub(crate) mod terminal;
pub mod tunnels;
pub mod watch;
