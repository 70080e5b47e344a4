// SPDX-License-Identifier: Apache-2.0
//! What is known of each flow until it ends: by idle timeout, by eviction from the flow table, or with the capture.
//!
//! The data path says nothing when a flow leaves its table: it learns of an idle flow when it needs the place. So a flow's end is
//! seen when its key begins anew, or in a sweep over the table. Sweeps come when twice as many flows are known as the
//! table can hold, which bounds the memory and costs each flow the same.

use hashbrown::{HashMap, HashSet};

use crate::abi;

/// IP version and key, as in the flow table.
pub type Key = (u8, [u8; size_of::<abi::TunnelKey6>()]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Not seen for longer than the idle timeout.
    Idle,
    /// Another flow took its place in the table.
    Evicted,
    /// The capture ended.
    Capture,
}

impl End {
    pub const NAMES: [&'static str; 3] = ["idle", "evicted", "capture"];
}

struct Known<T> {
    last_ns: u64,
    what: T,
}

pub struct Tracker<T> {
    flows: HashMap<Key, Known<T>>,
    idle_ns: u64,
    limit: usize,
}

impl<T> Tracker<T> {
    /// entries : of both flow tables together.
    pub fn new(idle_ns: u64, entries: usize) -> Self {
        Self { flows: HashMap::new(), idle_ns, limit: entries.saturating_mul(2).max(1024) }
    }

    /// A packet of a flow: `packets` counts with it. What was known of an earlier flow of the same key ends.
    ///
    /// begin : what is known of a new flow; the second argument of `end` is what was known of one.
    pub fn see(
        &mut self,
        key: Key,
        packets: u32,
        now_ns: u64,
        begin: impl FnOnce() -> T,
        end: impl FnOnce(End, T),
    ) -> &mut T {
        let idle_ns = self.idle_ns;
        let known = match self.flows.entry(key) {
            hashbrown::hash_map::Entry::Occupied(entry) => {
                let known = entry.into_mut();
                if packets == 1 {
                    let idle = now_ns.saturating_sub(known.last_ns) > idle_ns;
                    end(
                        if idle { End::Idle } else { End::Evicted },
                        std::mem::replace(&mut known.what, begin()),
                    );
                }
                known
            }
            hashbrown::hash_map::Entry::Vacant(entry) => {
                entry.insert(Known { last_ns: now_ns, what: begin() })
            }
        };
        known.last_ns = now_ns;
        &mut known.what
    }

    pub fn wants_sweep(&self) -> bool {
        self.flows.len() >= self.limit
    }

    /// Ends what is idle or no longer in the table.
    pub fn sweep(&mut self, now_ns: u64, present: &HashSet<Key>, mut end: impl FnMut(End, T)) {
        let idle_ns = self.idle_ns;
        let over = |key: &Key, known: &mut Known<T>| {
            !present.contains(key) || now_ns.saturating_sub(known.last_ns) > idle_ns
        };
        for (key, known) in self.flows.extract_if(over) {
            let evicted = !present.contains(&key) && now_ns.saturating_sub(known.last_ns) <= idle_ns;
            end(if evicted { End::Evicted } else { End::Idle }, known.what);
        }
    }

    /// Ends everything, in the order of `T`'s key.
    pub fn finish<K: Ord>(&mut self, now_ns: u64, order: impl Fn(&T) -> K, mut end: impl FnMut(End, T)) {
        let idle_ns = self.idle_ns;
        let mut left: Vec<Known<T>> = self.flows.drain().map(|(_, known)| known).collect();
        left.sort_by_key(|known| (order(&known.what), known.last_ns));
        for known in left {
            let idle = now_ns.saturating_sub(known.last_ns) > idle_ns;
            end(if idle { End::Idle } else { End::Capture }, known.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        (4, [number; size_of::<abi::TunnelKey6>()])
    }

    #[test]
    fn flows_end_by_timeout_by_eviction_and_with_the_capture() {
        let mut tracker = Tracker::new(100, 1);
        let mut ended = Vec::new();
        for (number, packets, now) in
            [(1, 1, 0), (1, 2, 50), (2, 1, 60), (1, 1, 151), (2, 1, 152), (3, 1, 153)]
        {
            let seen =
                tracker.see(key(number), packets, now, || 0, |end, count| ended.push((number, end, count)));
            *seen += 1;
        }
        assert_eq!(ended, [(1, End::Idle, 2), (2, End::Evicted, 1)]);
        let mut swept = Vec::new();
        tracker.sweep(160, &HashSet::from_iter([key(1), key(3)]), |end, count| swept.push((end, count)));
        assert_eq!(swept, [(End::Evicted, 1)]);
        tracker.finish(253, |count| *count, |end, count| swept.push((end, count)));
        assert_eq!(swept[1..], [(End::Idle, 1), (End::Capture, 1)]);
    }

    #[test]
    fn sweeps_bound_what_is_known() {
        let mut tracker = Tracker::new(1_000_000, 256);
        let mut most = 0;
        for number in 0..100_000u32 {
            let mut bytes = [0; size_of::<abi::TunnelKey6>()];
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
            tracker.see((4, bytes), 1, number.into(), || (), |_, ()| {});
            most = most.max(tracker.flows.len());
            if tracker.wants_sweep() {
                tracker.sweep(number.into(), &HashSet::new(), |_, ()| {});
            }
        }
        assert_eq!(most, 1024);
    }
}
