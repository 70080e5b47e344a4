// SPDX-License-Identifier: Apache-2.0
//! What rate limits remember, when the policy changes: a limit that is another than before starts afresh, one that is the same goes
//! on. (Otherwise the debt of a slow limit would close a fast one until the slow one had forgotten it.)

use libbpf_rs::{MapCore, MapFlags};

use crate::abi::maps::{LIMIT, PER_CPU};
use crate::abi::{self, Action};
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::mapped::MappedArray;

/// Forgets what limits other than those of `old` have counted. Comes after `new` was written.
///
/// find : an open map by its name; `None` if the object has no such map.
pub fn renew<M: MapCore>(
    old: &abi::Policy,
    new: &abi::Policy,
    find: impl Fn(&str) -> Option<M>,
) -> Result<()> {
    let changed: Vec<u32> = changed_classes(old, new).collect();
    if !changed.is_empty()
        && let Some(map) = find(LIMIT)
    {
        // A packet that still goes by the old limit would bring its debt back.
        kernel::wait_for_packets();
        for class in changed {
            map.update(&class.to_ne_bytes(), &0u64.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| Error::other(format!("cannot write {LIMIT}: {error}")))?;
        }
    }
    renew_events(old, new, find)
}

/// Limits that are the same in another program's policy go on there.
///
/// number : of one of its classes, among the old program's; `None`: that has no such class.
pub fn carry<M: MapCore, N: MapCore>(
    old: &abi::Policy,
    new: &abi::Policy,
    number: impl Fn(usize) -> Option<usize>,
    from: impl Fn(&str) -> Option<M>,
    to: impl Fn(&str) -> Option<N>,
) -> Result<()> {
    let (Some(from), Some(to)) = (from(LIMIT), to(LIMIT)) else { return Ok(()) };
    for (class, rule) in new.class_policy.iter().enumerate() {
        let Some(before) = number(class) else { continue };
        let Some(old) = old.class_policy.get(before) else { continue };
        if rule.action != Action::RateLimit.code() || limit(old) != limit(rule) {
            continue;
        }
        let key = |class: usize| (class as u32).to_ne_bytes();
        let copied = from.lookup(&key(before), MapFlags::ANY).and_then(|value| match value {
            Some(value) => to.update(&key(class), &value, MapFlags::ANY),
            None => Ok(()),
        });
        copied.map_err(|error| Error::other(format!("cannot write {LIMIT}: {error}")))?;
    }
    Ok(())
}

/// As `renew`, of events alone.
pub fn renew_events<M: MapCore>(
    old: &abi::Policy,
    new: &abi::Policy,
    find: impl Fn(&str) -> Option<M>,
) -> Result<()> {
    let limit = |policy: &abi::Policy| (policy.event_interval_ns, policy.event_burst_ns);
    if limit(old) == limit(new) {
        return Ok(());
    }
    let Some(map) = find(PER_CPU) else { return Ok(()) };
    kernel::wait_for_packets();
    let cpus = MappedArray::per_cpu_to_write(&map)?;
    let offset = std::mem::offset_of!(abi::Cpu, stats) + std::mem::offset_of!(abi::Stats, event_tat_ns);
    (0..cpus.entries()).for_each(|cpu| cpus.store(cpu, offset, 0));
    Ok(())
}

/// Classes whose rate limit is another than before.
fn changed_classes(old: &abi::Policy, new: &abi::Policy) -> impl Iterator<Item = u32> {
    let rules = old.class_policy.iter().zip(&new.class_policy).zip(0u32..);
    rules.filter_map(|((old, new), class)| {
        (new.action == Action::RateLimit.code() && limit(old) != limit(new)).then_some(class)
    })
}

fn limit(rule: &abi::ClassPolicy) -> (u32, u64, u64) {
    (rule.action, rule.interval_ns, rule.burst_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn a_limit_is_another_by_its_rate_its_burst_or_having_been_none() {
        let rule = |action: Action, interval_ns, burst_ns| abi::ClassPolicy {
            action: action.code(),
            interval_ns,
            burst_ns,
            ..abi::ClassPolicy::zeroed()
        };
        let (mut old, mut new) = (abi::Policy::zeroed(), abi::Policy::zeroed());
        let limit = Action::RateLimit;
        let pairs = [
            (rule(limit, 5, 9), rule(limit, 5, 9)),
            (rule(limit, 5, 9), rule(limit, 6, 9)),
            (rule(limit, 5, 9), rule(limit, 5, 8)),
            (rule(Action::Drop, 0, 0), rule(limit, 5, 9)),
            (rule(limit, 5, 9), rule(Action::Drop, 0, 0)),
            (rule(limit, 5, 9), abi::ClassPolicy { after: 3, ..rule(limit, 5, 9) }),
        ];
        for (class, (before, after)) in pairs.into_iter().enumerate() {
            (old.class_policy[class], new.class_policy[class]) = (before, after);
        }
        assert_eq!(changed_classes(&old, &new).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
