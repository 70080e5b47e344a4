// SPDX-License-Identifier: Apache-2.0
//! Statistics again and again, each compared with those before.

use crate::attachment::Attachment;
use crate::error::Result;
use crate::reading::counters::Counters;
use crate::reading::statistics::Statistics;

/// What runs is looked up anew each time, as it may be replaced, or end.
pub struct Series<Find> {
    find: Find,
    before: Option<Counters>,
}

impl<Find: Fn() -> Result<Attachment>> Series<Find> {
    pub fn new(find: Find) -> Self {
        Self { find, before: None }
    }

    pub fn read(&mut self) -> Result<Statistics> {
        let running = (self.find)()?;
        let counters = running.counters()?;
        let statistics = running.statistics(&counters, self.before.as_ref())?;
        self.before = Some(counters);
        Ok(statistics)
    }
}
