// SPDX-License-Identifier: Apache-2.0
//! The flows of a program, one at a time: neither the tables nor what is found in them is ever held whole.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use libbpf_rs::{MapCore, MapHandle};

use crate::abi;
use crate::bundle::manifest::{ClockName, Flow as Layout, FlowFeature, Sharing};
use crate::error::Result;
use crate::object::flow_table::{Elements, Flow, FlowTable};
use crate::object::mapped::MappedArray;

/// Buckets that are mapped at a time; a multiple of them begins at a page, whatever the size of a bucket and of a page.
const WINDOW: u32 = 8192;
/// Flows that are read at a time where they are wanted in another order than they lie in: some MiB.
const TOGETHER: usize = 8192;

/// Where a flow lies, and how it compares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedFlow {
    rank: u64,
    table: usize,
    bucket: u32,
    way: u32,
}

pub struct Listing {
    tables: Vec<ListedTable>,
    verdict: u8,
    now_ns: u64,
    idle: Idle,
    class_id: Option<u8>,
}

/// How long ago the last packet of a flow may have come.
#[derive(Debug, Default, Clone, Copy)]
pub enum Idle {
    /// At most the idle timeout ago.
    #[default]
    Timeout,
    /// At this time or later, on the clock of the flow tables.
    Since(u64),
}

/// One of the flow tables.
pub struct ListedTable {
    ip_version: u8,
    map: MapHandle,
    layout: Layout,
    /// Of a shared table, or of a CPU's shard.
    buckets: u32,
}

impl ListedTable {
    /// shards : of a table that is not shared. layout : `None`: nobody remembers more of the entries than their size.
    pub fn new(
        ip_version: u8,
        map: MapHandle,
        layout: Option<&Layout>,
        sharing: Sharing,
        shards: u32,
    ) -> Self {
        let layout = layout.cloned().unwrap_or_else(|| unknown_layout(map.value_size() / abi::WAYS, sharing));
        let shards = if layout.sharing == Sharing::Shared { 1 } else { shards };
        let buckets = map.max_entries() / shards;
        Self { ip_version, map, layout, buckets }
    }
}

impl Listing {
    /// verdict : the bit of entries with a verdict of this program. class_id : only flows whose last verdict is this class.
    pub fn new(tables: Vec<ListedTable>, verdict: u8, now_ns: u64, idle: Idle, class_id: Option<u8>) -> Self {
        Self { tables, verdict, now_ns, idle, class_id }
    }

    /// What the flows' state gives for people to read.
    pub fn features(&self) -> &[FlowFeature] {
        self.tables.first().map_or(&[], |table| &table.layout.features)
    }

    /// Calls for every flow, in the order of the tables.
    pub fn each(&self, mut visit: impl FnMut(&Flow) -> Result<()>) -> Result<()> {
        self.each_place(|_, flow| visit(flow))
    }

    fn each_place(&self, mut visit: impl FnMut(usize, &Flow) -> Result<()>) -> Result<()> {
        for (index, table) in self.tables.iter().enumerate() {
            for first in (0..table.map.max_entries()).step_by(WINDOW as usize) {
                let flows = self.window(table, first)?;
                flows
                    .flows_since(self.since(table))
                    .filter(|flow| self.wants(table, flow))
                    .try_for_each(|flow| visit(index, &flow))?;
            }
        }
        Ok(())
    }

    /// The buckets from `first`, a multiple of WINDOW, on.
    fn window<'a>(&self, table: &'a ListedTable, first: u32) -> Result<FlowTable<'a>> {
        let entries = WINDOW.min(table.map.max_entries() - first);
        let elements = Elements::Mapped(MappedArray::window(&table.map, first, entries)?);
        let flows = FlowTable::new(elements, table.ip_version, &table.layout, table.buckets)?;
        Ok(flows.with_verdict(self.verdict).beginning_at(first))
    }

    fn wants(&self, table: &ListedTable, flow: &Flow) -> bool {
        flow.last_seen_ns >= self.since(table) && (self.class_id.is_none() || self.class_id == flow.class_id)
    }

    fn since(&self, table: &ListedTable) -> u64 {
        match self.idle {
            Idle::Timeout => self.now_ns.saturating_sub(table.layout.idle_timeout_ns),
            Idle::Since(time_ns) => time_ns,
        }
    }

    /// How many flows there are, and where those of the highest rank lie, at most `limit`, the highest first.
    pub fn first(&self, limit: usize, rank: impl Fn(&Flow) -> u64) -> Result<(usize, Vec<ListedFlow>)> {
        let mut found = 0;
        let mut first: BinaryHeap<Reverse<ListedFlow>> = BinaryHeap::new();
        self.each_place(|table, flow| {
            let bucket = flow.cpu.unwrap_or(0) * self.tables[table].buckets + flow.bucket;
            first.push(Reverse(ListedFlow { rank: rank(flow), table, bucket, way: flow.way }));
            found += 1;
            if first.len() > limit {
                first.pop();
            }
            Ok(())
        })?;
        Ok((found, first.into_sorted_vec().into_iter().map(|Reverse(place)| place).collect()))
    }

    /// Calls for the flow at each place, as it is now, in the order given; not for those that are gone. Flows next to each other in rank
    /// lie anywhere in the tables, so many are read at a time, in the order in which they lie.
    pub fn each_at(&self, places: &[ListedFlow], mut visit: impl FnMut(&Flow) -> Result<()>) -> Result<()> {
        for places in places.chunks(TOGETHER) {
            let window = |at: usize| (places[at].table, places[at].bucket / WINDOW * WINDOW);
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_unstable_by_key(|at| (places[*at].table, places[*at].bucket));
            let mut flows: Vec<Option<Flow>> = vec![None; places.len()];
            for near in order.chunk_by(|a, b| window(*a) == window(*b)) {
                let (table, first) = window(near[0]);
                let table = &self.tables[table];
                let mapped = self.window(table, first)?;
                for at in near {
                    let flow = mapped.at(places[*at].bucket, places[*at].way);
                    flows[*at] = flow.filter(|flow| self.wants(table, flow));
                }
            }
            flows.iter().flatten().try_for_each(&mut visit)?;
        }
        Ok(())
    }
}

/// For entries of which nobody remembers more than their size.
fn unknown_layout(entry_size: u32, sharing: Sharing) -> Layout {
    Layout {
        key: String::new(),
        table_size: 0,
        sharing,
        claim: None,
        idle_timeout_ns: u64::MAX,
        grace_ns: 0,
        proven_packets: 0,
        clock: ClockName::Coarse,
        entry4_size: entry_size,
        entry6_size: entry_size,
        layout_digest: String::new(),
        state: Vec::new(),
        features: Vec::new(),
        aggregates: Vec::new(),
    }
}
