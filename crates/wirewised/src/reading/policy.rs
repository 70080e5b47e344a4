// SPDX-License-Identifier: Apache-2.0
//! What of a policy holds now, and for whom.

use bytemuck::Zeroable;

use crate::abi::{self, FOREVER, Mode};

/// The mode that holds: enforcement may have run out. now_ns : CLOCK_BOOTTIME.
pub fn effective_mode(policy: &abi::Policy, now_ns: u64) -> Mode {
    let in_time = policy.enforce_until_ns == 0 || now_ns < policy.enforce_until_ns;
    if policy.mode == Mode::Enforce.code() && in_time { Mode::Enforce } else { Mode::Observe }
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
