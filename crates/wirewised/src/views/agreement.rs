// SPDX-License-Identifier: Apache-2.0
//! How far a model and its shadow agree, as a table.

use crate::reading::agreement::Agreement;
use crate::text::table;
use crate::text::units::thousands;
use crate::views::terminal;

pub fn print(agreement: &Agreement) {
    terminal::print_wrapped(&format!("shadow {}", agreement.describe()), 2);
    let rows = agreement.pairs.iter();
    let rows = rows.map(|pair| [pair.first.clone(), pair.shadow.clone(), thousands(pair.packets)]);
    let header = ["first", "shadow", "packets"].map(str::to_string);
    table::print(&std::iter::once(header).chain(rows).collect::<Vec<_>>(), 2);
}
