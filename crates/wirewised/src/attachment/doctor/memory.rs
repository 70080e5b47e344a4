// SPDX-License-Identifier: Apache-2.0
//! Whether what is to run fits into the memory that this process may have. It has to be asked before: beyond the limit of a control group
//! the kernel kills, and beyond that on addresses a process ends wherever it happens to be.

use crate::attachment::doctor::finding::Finding;
use crate::error::Kind;
use crate::kernel::memory::{self, Bounds, Limit};
use crate::plane::user_space::Footprint;
use crate::text::units::format_bytes;

const CHECK: &str = "memory";
/// The agent's own, at least.
const AGENT: u64 = 4 << 20;
/// What verifying an object of so many bytes took at its peak, of the kernel's memory and of ours, on Linux 6.18: about so many times as
/// much. Engines need as much again.
const PER_OBJECT_BYTE: u64 = 16;
/// Stack and heap of a thread, as the C library maps them, and a compiler's.
const ADDRESSES_PER_WORKER: u64 = 96 << 20;

/// What has to be in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of the flow tables, and of lists beside them.
    pub tables: u64,
    /// Bytes of the object.
    pub object: u64,
    /// Where packets are carried in user space.
    pub packets: Option<Footprint>,
}

impl Needs {
    /// Less than this has never been enough.
    fn least(&self) -> u64 {
        AGENT + self.tables + self.packets.map_or(0, |packets| packets.used)
    }

    fn likely(&self) -> u64 {
        let times = if self.packets.is_some() { 2 } else { 1 };
        self.least() + times * PER_OBJECT_BYTE * self.object
    }

    /// Amply: nobody limits addresses to the last byte.
    fn addresses(&self) -> u64 {
        let own = AGENT + PER_OBJECT_BYTE * self.object;
        own + self.packets.map_or(0, |packets| {
            self.tables + packets.mapped + u64::from(packets.lanes) * ADDRESSES_PER_WORKER
        })
    }
}

/// `None`: there is room, or no limit.
pub fn check(needs: &Needs) -> Option<Finding> {
    let findings = memory::limits().into_iter().filter_map(|limit| compare(&limit, needs));
    findings.max_by_key(|finding| finding.level)
}

fn compare(limit: &Limit, needs: &Needs) -> Option<Finding> {
    let Limit { name, remedy, left, .. } = limit;
    let remedy = format!("{remedy}, or take less: {}", ways_to_less(needs));
    let found = |takes: &str, wanted| {
        let (limit, left, wanted) = (format_bytes(limit.limit), format_bytes(*left), format_bytes(wanted));
        format!("{name} is {limit}, of which {left} are left, and this {takes} {wanted}")
    };
    let too_little = |wanted| {
        let found = format!("too little memory: {}", found("takes about", wanted));
        Finding::error(CHECK, found, remedy.clone()).of_kind(Kind::Other)
    };
    match limit.bounds {
        Bounds::Addresses => (*left < needs.addresses()).then(|| too_little(needs.addresses())),
        Bounds::Use if *left < needs.least() => Some(too_little(needs.likely())),
        Bounds::Use => (*left < needs.likely()).then(|| {
            let found = found("may take", needs.likely());
            Finding::warning(CHECK, format!("{found}: then the kernel kills this process"), remedy.clone())
        }),
    }
}

fn ways_to_less(needs: &Needs) -> &'static str {
    if needs.packets.is_some_and(|packets| packets.lanes > 1) {
        "a smaller --flow-table-size, fewer workers or queues"
    } else {
        "a smaller --flow-table-size"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::doctor::finding::Level;

    const MIB: u64 = 1 << 20;

    fn level(bounds: Bounds, left: u64, needs: &Needs) -> Option<Level> {
        let (name, remedy) = ("the limit".to_string(), "raise it".to_string());
        compare(&Limit { bounds, name, remedy, limit: 1 << 30, left }, needs).map(|finding| finding.level)
    }

    #[test]
    fn what_never_fits_is_refused_and_what_may_not_is_said() {
        let kernel = Needs { tables: 20 * MIB, object: MIB, packets: None };
        let of_use = |left| level(Bounds::Use, left, &kernel);
        assert_eq!(of_use(23 * MIB), Some(Level::Error));
        assert_eq!(of_use(30 * MIB), Some(Level::Warning));
        assert_eq!(of_use(50 * MIB), None);
        assert_eq!(level(Bounds::Addresses, 30 * MIB, &kernel), None);
        let packets = Some(Footprint { lanes: 2, used: 16 * MIB, mapped: 16 * MIB });
        let user = Needs { packets, ..kernel };
        assert_eq!(level(Bounds::Use, 39 * MIB, &user), Some(Level::Error));
        assert_eq!(level(Bounds::Addresses, 200 * MIB, &user), Some(Level::Error));
        assert_eq!(level(Bounds::Addresses, 300 * MIB, &user), None);
    }
}
