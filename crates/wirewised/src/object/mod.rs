// SPDX-License-Identifier: Apache-2.0
//! An eBPF object of wirewise: opened (no privilege needed), set up for one load, loaded.

pub mod allow;
pub mod bans;
pub mod deny;
pub mod deny_filter;
pub mod flow_table;
pub mod link;
mod loaded;
pub mod mapped;
mod maps;
mod opened;
pub mod policy_maps;
pub mod pools;
pub mod prefixes;
mod settings;
pub mod tunnels;
pub mod verifier;

pub use crate::bundle::emitted::{ENTRY, tail_call_index};
pub use loaded::{Loaded, ProgramInfo};
pub use maps::{
    act_cpus, bytes_of_cpus, constants, max_entries, no_map, other_layout, read_all, read_element,
    sum_of_cpus, value_of,
};
pub use opened::{MAX_TABLE_SIZE, Opened, no_data_path};
pub use settings::{Runs, Settings, random_seed, seed_from};
