// SPDX-License-Identifier: Apache-2.0
//! Where a model and its shadow agree, and where not.

use crate::reading::agreement::Agreement;
use crate::views::fit::{Cell, Column, Need, Table};

/// Packets by the class of the first model (rows) and of the shadow (columns). Columns with the fewest packets give way.
pub fn matrix(agreement: &Agreement) -> Table {
    let mut rows: Vec<&str> = Vec::new();
    let mut columns: Vec<&str> = Vec::new();
    // Pairs come with the most frequent first.
    for pair in &agreement.pairs {
        if !rows.contains(&pair.first.as_str()) {
            rows.push(&pair.first);
        }
        if !columns.contains(&pair.shadow.as_str()) {
            columns.push(&pair.shadow);
        }
    }
    let packets = |first: &str, shadow: &str| {
        let pair = agreement
            .pairs
            .iter()
            .find(|pair| (pair.first.as_str(), pair.shadow.as_str()) == (first, shadow));
        pair.map_or(0, |pair| pair.packets)
    };
    let cells = |first: &&str| {
        let counts = columns.iter().map(|shadow| Cell::count(packets(first, shadow)));
        std::iter::once(Cell::words(*first)).chain(counts).collect()
    };
    let name = |(rank, name): (usize, &&str)| Column {
        name: name.to_string().into(),
        need: if rank == 0 { Need::Always } else { Need::Room(rank.min(255) as u8) },
    };
    let corner = Column { name: "first, shadow:".into(), need: Need::Always };
    let rows = rows.iter().map(cells).collect();
    Table {
        columns: std::iter::once(corner).chain(columns.iter().enumerate().map(name)).collect(),
        left: 1,
        rows,
    }
}
