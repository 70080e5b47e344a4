// SPDX-License-Identifier: Apache-2.0
//! What runs, read from its maps, in words. Where the maps are and how the program runs, `Attachment` knows, which reads by this.

pub mod agreement;
pub mod community_id;
pub mod counters;
pub mod drift;
pub mod event_ring;
pub mod events;
pub mod flow_listing;
pub mod flows;
pub mod meta;
pub mod policy;
pub mod pools;
pub mod statistics;
pub mod status;
pub mod tunnels;
