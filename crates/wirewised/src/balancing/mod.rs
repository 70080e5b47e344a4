// SPDX-License-Identifier: Apache-2.0
//! The load balancer's part in user space: tables by Maglev, where pools and backends lie in the maps, and whether backends live.
//! The data path's is bpf/wirewise/balance.h.

mod held;
pub mod maglev;
mod maps;
mod places;
mod probe;
pub mod watch;

pub use held::Held;
pub use maps::{Change, copy};
pub use places::place;
