// SPDX-License-Identifier: Apache-2.0
//! What terminals get, and quantities as people write them.

#[macro_use]
pub mod output;
pub mod nearest;
pub(crate) mod progress;
pub mod shell;
pub mod table;
pub mod units;
