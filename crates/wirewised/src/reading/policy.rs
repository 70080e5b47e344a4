// SPDX-License-Identifier: Apache-2.0
//! What of a policy holds now, and for whom.

use bytemuck::Zeroable;

use crate::abi::{self, Mode};

/// The mode that holds: enforcement may have run out. now_ns : CLOCK_BOOTTIME.
pub fn effective_mode(policy: &abi::Policy, now_ns: u64) -> Mode {
    let in_time = policy.enforce_until_ns == 0 || now_ns < policy.enforce_until_ns;
    if policy.mode == Mode::Enforce.code() && in_time { Mode::Enforce } else { Mode::Observe }
}

/// The same trigger and allow list as the first's, and every class passes: a shadow's verdict is none.
pub fn of_shadow(first: &abi::Policy) -> abi::Element {
    let class_policy = [Zeroable::zeroed(); abi::MAX_CLASSES];
    let policy = abi::Policy { class_policy, drop_malformed: 0, ..*first };
    abi::Element { policy, act: Zeroable::zeroed() }
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
}
