// SPDX-License-Identifier: Apache-2.0
//! Pools and their backends as a table.

use crate::error::Result;
use crate::reading::pools::{BackendState, PoolState, Pools};
use crate::text::table;

pub fn print(pools: &Pools) -> Result<()> {
    for (index, pool) in pools.pools.iter().enumerate() {
        if index > 0 {
            println!();
        }
        println!("{}", title(pools, pool));
        let head = ["backend", "state", "weight", "new flows", "packets", "bytes"].map(str::to_string);
        let rows: Vec<_> = std::iter::once(head).chain(pool.backends.iter().map(row)).collect();
        table::print(&rows, 2);
    }
    Ok(())
}

fn title(pools: &Pools, pool: &PoolState) -> String {
    let method = pool.method.map_or("?", |method| method.name());
    let by = pool.interface.as_deref().unwrap_or(&pools.interface);
    let check = pool.check.map_or("?", |check| check.name());
    format!("{} on {}: {method} by {by}, check {check}", pool.name, pools.interface)
}

fn row(backend: &BackendState) -> [String; 6] {
    [
        backend.address.clone(),
        backend.state.name().to_string(),
        backend.weight.to_string(),
        format!("{:.1} %", backend.share * 1e2),
        backend.packets.to_string(),
        backend.bytes.to_string(),
    ]
}
