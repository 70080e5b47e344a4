// SPDX-License-Identifier: Apache-2.0
//! Reads what runs from its maps. `Attachment` finds the maps and calls these readers.

pub mod agreement;
pub mod card;
pub mod community_id;
pub mod counters;
pub mod drift;
pub mod event_ring;
pub mod events;
pub mod explanation;
pub mod flow_listing;
pub mod flows;
pub mod heavy;
pub mod meta;
pub mod notices;
pub mod policy;
pub mod pools;
pub mod scores;
pub mod statistics;
pub mod status;
pub mod tunnels;
