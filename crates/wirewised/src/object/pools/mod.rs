// SPDX-License-Identifier: Apache-2.0
//! Pools of servers in the maps: tables by Maglev, and where pools and backends lie. The data path's part is bpf/act/balance.h.

mod held;
pub mod maglev;
mod maps;
mod places;

pub use held::{Held, text};
pub use maps::{Change, turn, write};
pub use places::place;
