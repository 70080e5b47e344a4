// SPDX-License-Identifier: Apache-2.0
//! Passes over the flow tables, which find the flows that became idle since the pass before, and those that have lasted for another `active`.
//! Nothing is remembered of a flow.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::bundle::manifest::ends_of_key;
use wirewised::error::Result;
use wirewised::kernel;
use wirewised::object::flow_table::Flow;
use wirewised::plane::Port;
use wirewised::reading::flow_listing::Idle;
use wirewised::reading::flows::{FoundFlow, Wanted};
use wirewised::reading::scores::Scores;
use wirewised::text::units::Nanoseconds;

pub const SECOND: u64 = 1_000_000_000;
pub const MINUTE: Nanoseconds = Nanoseconds(60 * SECOND);
/// The limits of every period.
const SHORTEST: Nanoseconds = Nanoseconds(SECOND);
const LONGEST: Nanoseconds = Nanoseconds(24 * 3600 * SECOND);
/// The longest time between passes.
const PASS: Duration = Duration::from_secs(10);

/// Why a flow is reported (flowEndReason of RFC 5102).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Idle = 1,
    Active = 2,
}

/// The time that a pass covers, on the clock of the flow tables; the end is not part of it.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Span {
    fn has(self, time_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&time_ns)
    }

    /// Why a flow is to be sent, if it is. idle_ns, active_ns : as in `Export`.
    fn due(self, flow: &Flow, idle_ns: u64, active_ns: u64) -> Option<Reason> {
        let over = flow.last_seen_ns.saturating_add(idle_ns);
        if over < self.to_ns {
            return self.has(over).then_some(Reason::Idle);
        }
        // If nobody knows when it began, its key says which of the times that far apart count.
        let by_key = || BuildHasherDefault::<DefaultHasher>::new().hash_one(flow.key) % active_ns;
        let began = flow.first_seen_ns().unwrap_or_else(by_key);
        let lasted = self.to_ns.checked_sub(began)?;
        let mark = began + lasted / active_ns * active_ns;
        let is_fresh = flow.last_seen_ns > mark.saturating_sub(active_ns);
        (mark > began && self.has(mark) && is_fresh).then_some(Reason::Active)
    }
}

/// When flows are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time without packets until a flow is over.
    pub idle: Nanoseconds,
    /// How often a flow that goes on is reported.
    pub active: Nanoseconds,
}

/// What the records of an attachment's flows have in common.
pub struct Source<'a> {
    /// Index of the interface; 0: a device that the kernel does not have.
    pub index: u32,
    /// What the flow key has.
    pub key: &'a str,
    pub has_vlans: bool,
    pub scores: Option<Scores>,
    /// When the clock of the flow tables was 0, in ns since 1970.
    pub epoch_ns: u64,
}

/// What is attached, by the flow tables that it uses.
pub fn tables(root: &Root) -> Vec<Vec<Attachment>> {
    let Listing { attachments, .. } = Attachment::all(root).unwrap_or_default();
    let mut tables = BTreeMap::<_, Vec<_>>::new();
    for attachment in attachments.into_iter().filter(|it| it.link.is_some()) {
        // Whoever is detached meanwhile has none.
        if let Some(table) = attachment.flow_table_id() {
            tables.entry(table).or_default().push(attachment);
        }
    }
    tables.into_values().collect()
}

/// A time as it is written; without one, the usual.
pub fn period(
    key: &str,
    written: Option<String>,
    usual: Nanoseconds,
) -> std::result::Result<Nanoseconds, String> {
    period_within(key, written, usual, LONGEST)
}

pub fn period_within(
    key: &str,
    written: Option<String>,
    usual: Nanoseconds,
    longest: Nanoseconds,
) -> std::result::Result<Nanoseconds, String> {
    let time = written.map_or(Ok(usual), |text| text.parse());
    let time: Nanoseconds = time.map_err(|why| format!("`{key}`: {why}"))?;
    if time < SHORTEST || time > longest {
        return Err(format!("`{key}`: {time} is out of range; {SHORTEST} to {longest}"));
    }
    Ok(time)
}

impl Times {
    pub const USUAL: Self = Self { idle: Nanoseconds(30 * SECOND), active: Nanoseconds(300 * SECOND) };

    pub fn of(idle: Option<String>, active: Option<String>) -> std::result::Result<Self, String> {
        let usual = Self::USUAL;
        Ok(Self { idle: period("idle", idle, usual.idle)?, active: period("active", active, usual.active)? })
    }

    /// Between passes: short beside what they measure.
    pub fn pause(self) -> Duration {
        Duration::from_nanos(self.idle.min(self.active).0 / 6).clamp(Duration::from_secs(1), PASS)
    }

    /// The flows that are due in a span, of those that an attachment has.
    pub fn due(
        self,
        attachment: &Attachment,
        span: Span,
        each: &mut dyn FnMut(&Source<'_>, &FoundFlow<'_>, Reason),
    ) -> Result<()> {
        let layout = attachment.meta.as_ref().map(|meta| &meta.flow);
        // What was idle for longer may be another flow already.
        let idle_ns = layout.map_or(u64::MAX, |layout| layout.idle_timeout_ns).min(self.idle.0);
        let source = Source {
            index: match attachment.link.as_ref().and_then(|(_, info)| info.port) {
                Some(Port::Interface(index)) => index,
                _ => 0,
            },
            key: layout.map_or("", |layout| ends_of_key(&layout.key)),
            has_vlans: layout.is_some_and(|layout| layout.has_vlans()),
            scores: attachment.scores()?,
            epoch_ns: kernel::monotonic_epoch_ns(),
        };
        let idle = Idle::Since(span.from_ns.saturating_sub(idle_ns));
        attachment.flows(&Wanted { idle, ..Wanted::default() })?.each(|found| {
            if let Some(reason) = span.due(found.flow, idle_ns, self.active.0) {
                each(&source, found, reason);
            }
            Ok(())
        })
    }
}

pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVE: u64 = 300;
    const IDLE: u64 = 60;

    fn flow(packets: u32, first_seen_ns: Option<u64>, last_seen_ns: u64) -> Flow {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let key = wirewised::object::flow_table::FlowKey {
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
            protocol: 17,
            vlans: Default::default(),
            teid: None,
        };
        let state = first_seen_ns.map(|time| ("first_seen_ns".to_string(), time.into()));
        Flow {
            ip_version: 4,
            cpu: None,
            bucket: 0,
            way: 0,
            key,
            packets,
            last_seen_ns,
            class_id: None,
            swapped: false,
            state: state.into_iter().collect(),
            features: Vec::new(),
        }
    }

    /// When a flow is sent by passes every 10, whose packets come at these times.
    fn sent(knows_start: bool, packets: &[u64]) -> Vec<(u64, Reason)> {
        let due = |now: u64| {
            let until: Vec<_> = packets.iter().filter(|time| **time < now).collect();
            let last = **until.last()?;
            let flow = flow(until.len() as u32, knows_start.then_some(packets[0]), last);
            let span = Span { from_ns: now - 10, to_ns: now };
            Some((now, span.due(&flow, IDLE, ACTIVE)?))
        };
        (1000..4000).step_by(10).filter_map(due).collect()
    }

    #[test]
    fn a_flow_is_sent_once_when_it_is_over_and_at_each_mark_while_it_lasts() {
        use Reason::{Active, Idle};
        assert_eq!(sent(true, &[1003]), [(1070, Idle)]);
        assert_eq!(sent(true, &[1000]), [(1070, Idle)]);
        assert_eq!(sent(true, &[1003, 1030, 1071]), [(1140, Idle)]);
        let long: Vec<_> = (1003..=2003).step_by(50).collect();
        assert_eq!(sent(true, &long), [(1310, Active), (1610, Active), (1910, Active), (2070, Idle)]);
        // A packet that comes after the flow was over, before its place went to another.
        assert_eq!(sent(true, &[1003, 1200]), [(1070, Idle), (1270, Idle)]);
    }

    #[test]
    fn a_flow_whose_begin_nobody_knows_is_sent_as_often() {
        assert_eq!(sent(false, &[1003]), [(1070, Reason::Idle)]);
        let long: Vec<_> = (1003..=2803).step_by(50).collect();
        let times = sent(false, &long);
        assert_eq!(times.last(), Some(&(2870, Reason::Idle)));
        let active: Vec<_> = times.iter().filter(|(_, reason)| *reason == Reason::Active).collect();
        assert_eq!(active.len(), 6);
        assert!(active.windows(2).all(|two| two[1].0 - two[0].0 == ACTIVE), "{active:?}");
    }
}
