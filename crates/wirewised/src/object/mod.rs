// SPDX-License-Identifier: Apache-2.0
//! An eBPF object of wirewise: opened (no privilege needed), set up for one load, loaded.

pub mod flow_table;
mod loaded;
pub mod mapped;
mod maps;
mod opened;
pub mod policy_maps;
pub mod pools;
mod settings;
pub mod tunnels;
pub mod verifier;

pub use crate::bundle::emitted::{ENTRY, tail_call_index};
pub use loaded::{Loaded, ProgramInfo};
pub use maps::{
    AGREEMENT, ALLOW_LIST, BACKEND_COUNTS, BACKENDS, CONFIG_MAP, CPUS, EVENTS, FIRST, FIXED, FLOW_TABLES,
    INTERFACES, LIMIT_MAP, MEMORY, PER_CPU, PER_CPU_MAP, POLICY, POOLS, RECORD_RINGS, RECORDS, SOCKETS,
    STATIONS, Scope, TABLES_OF_POOLS, TAIL_CALLS, TUNNEL_COUNTS, TUNNELS, is_shared_by_loads, max_entries,
    no_map, of_scopes, other_layout, read_element, scope, sum_of_cpus, variable,
};
pub use opened::{MAX_TABLE_SIZE, Opened, no_data_path};
pub use settings::{Runs, Settings, random_seed, seed_from};
