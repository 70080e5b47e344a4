// SPDX-License-Identifier: Apache-2.0
//! What two bundles must have in common for one to go on where the other was.

use bytemuck::Zeroable;

use crate::abi;
use crate::bundle::manifest::{Flow, Sharing, StateField};

/// What keeps a program with the flow tables `new` from using those of `old`.
pub fn differences(old: &Flow, new: &Flow) -> Vec<String> {
    let mut found = Vec::new();
    if old.key != new.key {
        found.push(format!("its flow key is {}, not {}", new.key, old.key));
    }
    if old.sharing != new.sharing {
        found.push(match new.sharing {
            Sharing::Shared => "its flow tables are shared by all CPUs".to_string(),
            Sharing::PerCpu => "each CPU has flow tables of its own".to_string(),
        });
    }
    if old.table_size != new.table_size {
        found.push(format!("it wants {}, not {}", new.sharing.entries(new.table_size), old.table_size));
    }
    if old.layout_digest != new.layout_digest
        || (old.entry4_size, old.entry6_size) != (new.entry4_size, new.entry6_size)
    {
        let names = |of: &Flow, without: &Flow| {
            let fields =
                of.state.iter().filter(|field| !without.state.iter().any(|other| other.name == field.name));
            fields.map(|field| field.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (added, gone) = (names(new, old), names(old, new));
        let mut text = "it keeps other state of a flow".to_string();
        if !added.is_empty() {
            text += &format!(", with {added}");
        }
        if !gone.is_empty() {
            text += &format!(", without {gone}");
        }
        found.push(text);
    }
    if old.aggregates != new.aggregates {
        let by = |flow: &Flow| match &flow.aggregates[..] {
            [] => "nothing".to_string(),
            some => some.iter().map(|aggregate| aggregate.by.name()).collect::<Vec<_>>().join(" and "),
        };
        let (before, now) = (by(old), by(new));
        found.push(if before == now {
            format!("it keeps other things by {now}")
        } else {
            format!("beside the flows it keeps something by {now}, not by {before}")
        });
    }
    found
}

/// Whether a program that keeps all the state of `old` could compute what the one of `new` does: all its own is a part of that.
pub fn is_part(new: &Flow, old: &Flow) -> bool {
    let has =
        |field: &StateField| old.state.iter().any(|kept| kept.name == field.name && kept.kind == field.kind);
    (&new.key, new.sharing, new.table_size) == (&old.key, old.sharing, old.table_size)
        && new.state.iter().all(has)
        && new.aggregates.iter().all(|own| old.aggregates.iter().any(|kept| kept.by == own.by))
}

/// The same policy for classes with other numbers; a class it does not know passes.
pub fn renumber(policy: &abi::Element, old: &[String], new: &[String]) -> abi::Element {
    let class_policy = [Zeroable::zeroed(); abi::MAX_CLASSES];
    let mut renumbered =
        abi::Element { policy: abi::Policy { class_policy, ..policy.policy }, act: policy.act };
    renumbered.act.steer = [Zeroable::zeroed(); abi::MAX_CLASSES];
    for (class, name) in new.iter().enumerate() {
        if let Some(number) = old.iter().position(|old| old == name) {
            renumbered.policy.class_policy[class] = policy.policy.class_policy[number];
            renumbered.act.steer[class] = policy.act.steer[number];
        }
    }
    renumbered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Action;
    use crate::bundle::manifest::{Aggregate, By, ClockName, StateType};

    fn flow(key: &str, table_size: u32, state: &[&str]) -> Flow {
        let field = |name: &&str| StateField { name: name.to_string(), kind: StateType::U64, offset: 0 };
        Flow {
            key: key.to_string(),
            table_size,
            sharing: Sharing::PerCpu,
            claim: None,
            idle_timeout_ns: 0,
            grace_ns: 0,
            proven_packets: 0,
            clock: ClockName::Fine,
            entry4_size: 64,
            entry6_size: 96,
            layout_digest: format!("{key} {state:?}"),
            state: state.iter().map(field).collect(),
            features: Vec::new(),
            aggregates: Vec::new(),
        }
    }

    #[test]
    fn aggregates_that_differ_are_named() {
        let (old, mut new) = (flow("five-tuple", 1024, &[]), flow("five-tuple", 1024, &[]));
        new.aggregates = vec![Aggregate {
            by: By::Destination,
            table_size: 1024,
            entry4_size: 64,
            entry6_size: 96,
            layout_digest: "one".to_string(),
        }];
        assert_eq!(
            differences(&old, &new),
            ["beside the flows it keeps something by destination, not by nothing"]
        );
        assert!(is_part(&old, &new) && !is_part(&new, &old));
        let mut other = new.clone();
        other.aggregates[0].layout_digest = "another".to_string();
        assert_eq!(differences(&new, &other), ["it keeps other things by destination"]);
    }

    #[test]
    fn each_difference_of_flow_tables_is_named() {
        let old = flow("five-tuple", 1024, &["sum", "max"]);
        assert_eq!(differences(&old, &old.clone()), [""; 0]);
        let new = flow("host-pair", 2048, &["sum", "min"]);
        let found = differences(&old, &new).join("; ");
        for expected in
            ["key is host-pair, not five-tuple", "2048 entries a CPU, not 1024", "with min, without max"]
        {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn state_is_a_part_where_the_other_has_it_all_in_tables_alike() {
        let old = flow("five-tuple", 1024, &["sum", "max"]);
        assert!(is_part(&flow("five-tuple", 1024, &["max"]), &old));
        assert!(is_part(&flow("five-tuple", 1024, &[]), &old));
        let mut narrow = flow("five-tuple", 1024, &["max"]);
        narrow.state[0].kind = StateType::U32;
        for other in [
            flow("five-tuple", 1024, &["max", "min"]),
            flow("source", 1024, &["max"]),
            flow("five-tuple", 2048, &["max"]),
            narrow,
        ] {
            assert!(!is_part(&other, &old), "{other:?}");
        }
    }

    #[test]
    fn a_policy_follows_the_names_of_classes() {
        let names = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let mut policy: abi::Element = Zeroable::zeroed();
        policy.policy.mode = 1;
        policy.policy.rules = abi::RULE_STREAKS;
        policy.policy.class_policy[1].action = Action::Drop.code();
        policy.policy.class_policy[1].after = 3;
        policy.policy.class_policy[2].action = Action::Count.code();
        policy.act.steer[1].mark = 7;
        let new = renumber(&policy, &names("benign flood scan"), &names("scan benign worm flood"));
        assert_eq!((new.policy.mode, new.policy.rules), (1, abi::RULE_STREAKS));
        assert_eq!([0, 1, 3].map(|class| new.policy.class_policy[class].after), [0, 0, 3]);
        assert_eq!([0, 1, 3].map(|class| new.act.steer[class].mark), [0, 0, 7]);
        assert_eq!([0, 1, 2, 3, 4].map(|class| new.policy.class_policy[class].action), [2, 0, 0, 1, 0]);
    }
}
