// SPDX-License-Identifier: Apache-2.0
//! What of a policy holds now, and for whom.

use bytemuck::Zeroable;

use crate::abi::{self, FOREVER, Mode};

/// The mode that holds: enforcement may be yet to begin, or have run out. now_ns : CLOCK_BOOTTIME.
pub fn effective_mode(policy: &abi::Policy, now_ns: u64) -> Mode {
    let in_time = policy.enforce_until_ns == 0 || now_ns < policy.enforce_until_ns;
    let begun = now_ns >= policy.observe_until_ns;
    if policy.mode == Mode::Enforce.code() && in_time && begun { Mode::Enforce } else { Mode::Observe }
}

/// How long the mode that holds does, if it ends by itself: then the other holds. now_ns : CLOCK_BOOTTIME.
pub fn remaining_ns(policy: &abi::Policy, now_ns: u64) -> Option<u64> {
    let after = match effective_mode(policy, now_ns) {
        Mode::Enforce => policy.enforce_until_ns,
        Mode::Observe => policy.observe_until_ns,
    };
    let ends = policy.mode == Mode::Enforce.code() && after > now_ns;
    // It may be over before it begins.
    (ends && effective_mode(policy, after) != effective_mode(policy, now_ns)).then(|| after - now_ns)
}

/// Has the whole observe or enforce for a time, and then the other mode; `None`: it observes already, and would have nothing to return to.
pub fn set_mode_for(policy: &mut abi::Policy, mode: Mode, now_ns: u64, time_ns: u64) -> Option<()> {
    let end = now_ns.saturating_add(time_ns).min(FOREVER - 1);
    match mode {
        Mode::Enforce => (policy.observe_until_ns, policy.enforce_until_ns) = (0, end),
        Mode::Observe => {
            let ends = remaining_ns(policy, now_ns).is_some();
            (ends || effective_mode(policy, now_ns) == Mode::Enforce).then_some(())?;
            policy.observe_until_ns = end;
        }
    }
    policy.mode = Mode::Enforce.code();
    Some(())
}

/// Whether a policy enforces now, or will by itself.
pub fn will_enforce(policy: &abi::Policy, now_ns: u64) -> Mode {
    let now = effective_mode(policy, now_ns);
    if remaining_ns(policy, now_ns).is_some() { Mode::Enforce } else { now }
}

/// Has a new policy, which has no mode yet, go on in that of the old one and for as long.
///
/// by_policy : the old policy had a time of its own, which ends with it.
pub fn carry_mode(old: &abi::Policy, new: &mut abi::Policy, by_policy: bool, now_ns: u64) {
    new.mode = will_enforce(old, now_ns).code();
    if new.mode == Mode::Enforce.code() {
        new.observe_until_ns = old.observe_until_ns;
        if new.enforce_until_ns == 0 && !by_policy {
            new.enforce_until_ns = old.enforce_until_ns;
        }
    }
}

/// The mode of a class, as far as that of the whole policy lets it, and for how long if it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassMode {
    pub mode: Mode,
    pub remaining_ns: Option<u64>,
}

/// What `wirewised mode` asked for a class. now_ns : CLOCK_BOOTTIME.
pub fn class_mode(rule: &abi::ClassPolicy, now_ns: u64) -> ClassMode {
    let (from, until) = (rule.observe_from_ns, rule.observe_until_ns);
    if now_ns >= until {
        ClassMode { mode: Mode::Enforce, remaining_ns: None }
    } else if now_ns < from {
        ClassMode { mode: Mode::Enforce, remaining_ns: Some(from - now_ns) }
    } else {
        ClassMode { mode: Mode::Observe, remaining_ns: (until != FOREVER).then(|| until - now_ns) }
    }
}

/// Has a class observe or enforce from now on; with a time, after it the other again.
pub fn set_class_mode(rule: &mut abi::ClassPolicy, mode: Mode, now_ns: u64, time_ns: Option<u64>) {
    let end = time_ns.map(|time| now_ns.saturating_add(time).min(FOREVER - 1));
    (rule.observe_from_ns, rule.observe_until_ns) = match (mode, end) {
        (Mode::Observe, end) => (0, end.unwrap_or(FOREVER)),
        (Mode::Enforce, Some(end)) => (end, FOREVER),
        (Mode::Enforce, None) => (0, 0),
    };
}

/// Has classes of a new policy go on in the mode that they were given before.
///
/// number : of one of its classes in the old policy; `None`: that has no such class.
pub fn carry_class_modes(old: &abi::Policy, new: &mut abi::Policy, number: impl Fn(usize) -> Option<usize>) {
    for (class, rule) in new.class_policy.iter_mut().enumerate() {
        if let Some(before) = number(class).and_then(|number| old.class_policy.get(number)) {
            rule.observe_from_ns = before.observe_from_ns;
            rule.observe_until_ns = before.observe_until_ns;
        }
    }
}

/// The same trigger, allow list, deny list and bans as the first's, and every class passes: a shadow's verdict is none.
pub fn of_shadow(first: &abi::Element) -> abi::Element {
    let class_policy = [Zeroable::zeroed(); abi::MAX_CLASSES];
    let policy = abi::Policy { class_policy, drop_malformed: 0, ..first.policy };
    abi::Element { policy, act: abi::ActPolicy { ban: first.act.ban, ..Zeroable::zeroed() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enforcement_runs_out_by_itself() {
        let mut policy = abi::Policy { mode: Mode::Enforce.code(), ..abi::Policy::zeroed() };
        assert_eq!(effective_mode(&policy, 10), Mode::Enforce);
        policy.enforce_until_ns = 11;
        assert_eq!(effective_mode(&policy, 10), Mode::Enforce);
        assert_eq!(effective_mode(&policy, 11), Mode::Observe);
    }

    #[test]
    fn the_mode_of_the_whole_ends_by_itself() {
        let at = |policy: &abi::Policy, now| (effective_mode(policy, now), remaining_ns(policy, now));
        let mut policy = abi::Policy::zeroed();
        assert_eq!(set_mode_for(&mut policy, Mode::Observe, 10, 5), None);
        set_mode_for(&mut policy, Mode::Enforce, 10, 20).unwrap();
        assert_eq!(
            [10, 29].map(|now| at(&policy, now)),
            [(Mode::Enforce, Some(20)), (Mode::Enforce, Some(1))]
        );
        assert_eq!(at(&policy, 30), (Mode::Observe, None));
        // It goes on where it would be by then.
        set_mode_for(&mut policy, Mode::Observe, 12, 8).unwrap();
        set_mode_for(&mut policy, Mode::Observe, 15, 8).unwrap();
        assert_eq!([15, 23, 30].map(|now| at(&policy, now).0), [Mode::Observe, Mode::Enforce, Mode::Observe]);
        assert_eq!([15, 23].map(|now| at(&policy, now).1), [Some(8), Some(7)]);
        set_mode_for(&mut policy, Mode::Observe, 23, 50).unwrap();
        assert_eq!([24, 72, 73].map(|now| at(&policy, now)), [(Mode::Observe, None); 3]);
        policy = abi::Policy { mode: Mode::Enforce.code(), ..abi::Policy::zeroed() };
        set_mode_for(&mut policy, Mode::Observe, 10, u64::MAX).unwrap();
        assert_eq!(at(&policy, 10).0, Mode::Observe);
    }

    #[test]
    fn the_mode_of_a_class_ends_by_itself() {
        let said = |rule: &abi::ClassPolicy, now| {
            let ClassMode { mode, remaining_ns } = class_mode(rule, now);
            (mode, remaining_ns)
        };
        let mut rule = abi::ClassPolicy::zeroed();
        assert_eq!(said(&rule, 5), (Mode::Enforce, None));
        set_class_mode(&mut rule, Mode::Observe, 10, Some(5));
        assert_eq!(
            [10, 14].map(|now| said(&rule, now)),
            [(Mode::Observe, Some(5)), (Mode::Observe, Some(1))]
        );
        assert_eq!(said(&rule, 15), (Mode::Enforce, None));
        set_class_mode(&mut rule, Mode::Enforce, 20, Some(5));
        assert_eq!([20, 25].map(|now| said(&rule, now)), [(Mode::Enforce, Some(5)), (Mode::Observe, None)]);
        set_class_mode(&mut rule, Mode::Observe, 30, Some(u64::MAX));
        assert_eq!(said(&rule, 30).0, Mode::Observe);
        set_class_mode(&mut rule, Mode::Observe, 30, None);
        assert_eq!(said(&rule, u64::MAX - 1), (Mode::Observe, None));
        set_class_mode(&mut rule, Mode::Enforce, 30, None);
        assert_eq!(rule, abi::ClassPolicy::zeroed());
    }

    #[test]
    fn modes_of_classes_follow_their_names() {
        let mut old = abi::Policy::zeroed();
        set_class_mode(&mut old.class_policy[2], Mode::Observe, 0, None);
        let mut new = abi::Policy::zeroed();
        carry_class_modes(&old, &mut new, |class| [Some(0), Some(2), None].get(class).copied().flatten());
        assert_eq!([0, 1, 2].map(|class| new.class_policy[class].observe_until_ns), [0, FOREVER, 0]);
    }
}
