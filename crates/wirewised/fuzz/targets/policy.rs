// SPDX-License-Identifier: Apache-2.0
//! The readers of policies and of files of tunnels on any text: an error is one line, and what is accepted keeps its promises in
//! the maps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::abi::{Action, Mode, Trigger};
use readers::policy::Policy;
use readers::policy::tunnels::{self, Tunnel};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match tunnels::parse(text) {
        Ok(tunnels) => {
            for tunnel in tunnels {
                assert!(tunnel.ends().iter().all(|(_, value)| Tunnel::of(value) == tunnel));
            }
        }
        Err(message) => readers::assert_one_line(message),
    }
    let _ = tunnels::one(text).map_err(|message| readers::assert_one_line(message));
    let classes = ["benign", "attack", "scan", "other"].map(String::from);
    let policy = match Policy::parse(text, &classes) {
        Ok(policy) => policy,
        Err(message) => {
            readers::assert_one_line(message);
            return;
        }
    };
    let value = policy.to_abi(u64::MAX / 2, Mode::Enforce);
    assert_eq!(value.policy.mode, Mode::Enforce.code());
    assert_eq!(value.policy.enforce_until_ns != 0, policy.enforce_for.is_some());
    for class in value.policy.class_policy {
        let limited = Action::from_code(class.action) == Some(Action::RateLimit);
        assert!(Action::from_code(class.action).is_some());
        assert_eq!(limited, class.interval_ns != 0);
    }
    match Trigger::from_code(value.policy.trigger) {
        Some(Trigger::Every) => {}
        Some(Trigger::Packets) => {
            assert!(value.policy.trigger_packets.iter().any(|word| *word != 0));
            assert_eq!(value.policy.trigger_packets[0] & 1, 0, "there is no packet 0");
        }
        Some(Trigger::Interval) => assert_ne!(value.policy.trigger_interval_ns, 0),
        Some(Trigger::FirstN) => assert_ne!(value.policy.trigger_first_n, 0),
        Some(Trigger::Headers) => {
            let selects = value.policy.selector.iter().any(|selector| selector.asks != 0);
            assert!(selects || value.policy.trigger_every != 0);
        }
        None => panic!("trigger {}", value.policy.trigger),
    }
    assert_eq!(policy.port_words().iter().any(|word| *word != 0), !policy.ports.is_empty());
});
