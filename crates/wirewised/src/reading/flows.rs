// SPDX-License-Identifier: Apache-2.0
//! The flows that somebody asks for, in words.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::kernel;
use crate::object::flow_table::{Flow, FlowValue};
use crate::reading::flow_listing::{Idle, ListedFlow, ListedTable, Listing};

/// Which flows are wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    /// At most so many; 0: all.
    pub limit: usize,
    /// `None`: the newest, or with no limit the order of the tables.
    pub sort: Option<Sort>,
    /// Only those whose last verdict is this class.
    pub class: Option<String>,
    pub idle: Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Flows with the newest packet
    Newest,
    /// Flows with the most packets
    Packets,
}

/// The flows that were asked for, to be gone through any number of times.
pub struct Flows {
    listing: Listing,
    /// How many there are, and where those lie that are shown. `None`: all, in the order of the tables.
    chosen: Option<(usize, Vec<ListedFlow>)>,
    now_ns: u64,
    /// The index is the class id.
    classes: Vec<String>,
}

/// A flow as it was found.
#[derive(Debug, Serialize)]
pub struct FoundFlow<'a> {
    #[serde(flatten)]
    pub flow: &'a Flow,
    /// `None`: no verdict yet.
    pub class: Option<&'a str>,
    /// As of its last packet.
    pub features: Vec<FlowValue<'a>>,
    /// Since its last packet.
    pub age_seconds: f64,
    #[serde(skip)]
    pub age_ns: u64,
}

impl Flows {
    /// tables, verdict : as for `Listing::new`. classes : names, by class id.
    pub fn new(tables: Vec<ListedTable>, verdict: u8, classes: Vec<String>, wanted: &Wanted) -> Result<Self> {
        let class_id = wanted.class.as_ref().map(|class| class_id(&classes, class)).transpose()?;
        let now_ns = kernel::monotonic_ns();
        let listing = Listing::new(tables, verdict, now_ns, wanted.idle, class_id);
        let limit = if wanted.limit == 0 { usize::MAX } else { wanted.limit };
        let rank = |flow: &Flow| match wanted.sort {
            Some(Sort::Packets) => flow.packets.into(),
            _ => flow.last_seen_ns,
        };
        let sorted = wanted.limit != 0 || wanted.sort.is_some();
        let chosen = sorted.then(|| listing.first(limit, rank)).transpose()?;
        Ok(Self { listing, chosen, now_ns, classes })
    }

    pub fn each(&self, mut visit: impl FnMut(&FoundFlow<'_>) -> Result<()>) -> Result<()> {
        let visit = |flow: &Flow| visit(&self.found(flow));
        match &self.chosen {
            None => self.listing.each(visit),
            Some((_, places)) => self.listing.each_at(places, visit),
        }
    }

    /// How many there are, those beyond the limit too. `None`: as many as `each` visits.
    pub fn count(&self) -> Option<usize> {
        self.chosen.as_ref().map(|(count, _)| *count)
    }

    fn found<'a>(&'a self, flow: &'a Flow) -> FoundFlow<'a> {
        let class = |id| self.classes.get(usize::from(id)).map_or("unknown", String::as_str);
        let age_ns = self.now_ns.saturating_sub(flow.last_seen_ns);
        let features = flow.values(self.listing.features());
        FoundFlow {
            flow,
            class: flow.class_id.map(class),
            features,
            age_seconds: age_ns as f64 / 1e9,
            age_ns,
        }
    }
}

fn class_id(known: &[String], class: &str) -> Result<u8> {
    let id = known.iter().position(|name| name == class);
    id.map(|id| id as u8)
        .ok_or_else(|| Error::input(format!("unknown class '{class}'; the bundle has: {}", known.join(", "))))
}
