// SPDX-License-Identifier: Apache-2.0
//! The allow list's prefixes in the kernel and in the engine against what they mean, over lists drawn at random: of any length, forever, for a
//! while, and expired; in the engine, whose clock a test sets, to the nanosecond.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use wirewise_engine::{ClockSource, Engine, Linked, Options, ProgramId};
use wirewised::abi::{self, Action, Mode, Policy};
use wirewised::kernel::{boot_s, pin_to_one_cpu};
use wirewised::object::{ENTRY, Loaded, Opened, Settings, max_entries, seed_from};
use wirewised::policy::Prefix;

use crate::fixture::data_path;

/// Few bits differ, so that many prefixes hold each other and the sender.
fn address(v4: bool, low: u8) -> IpAddr {
    match v4 {
        true => Ipv4Addr::new(10, 9, 0, low).into(),
        false => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low.into()).into(),
    }
}

fn frame(source: IpAddr) -> Vec<u8> {
    let udp = [0x9c, 0x40, 0, 53, 0, 8, 0, 0];
    let (kind, packet) = match source {
        IpAddr::V4(source) => {
            let head = [&[0x45, 0, 0, 28, 0, 7, 0, 0, 64, 17, 0, 0][..], &source.octets(), &[10, 8, 0, 2]];
            ([8, 0], head.concat())
        }
        IpAddr::V6(source) => {
            let head = [&[0x60, 0, 0, 0, 0, 8, 17, 64][..], &source.octets(), &[0xfe; 16]];
            ([0x86, 0xdd], head.concat())
        }
    };
    [&[2; 12][..], &kind, &packet, &udp, &[0; 64]].concat()
}

fn passes(loaded: &Loaded, source: IpAddr) -> bool {
    let frame = frame(source);
    let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
    loaded.entry().unwrap().test_run(input).unwrap().return_value == libbpf_sys::XDP_PASS
}

/// Seconds of boot time, of one list.
const NOW_S: u32 = 1000;

fn table(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ww_allow4" } else { "ww_allow6" }
}

fn allowed(prefix: &Prefix, until_s: u32) -> abi::Allowed {
    abi::Allowed { until_s, length: prefix.length.into(), policy_until_s: 0, hand_until_s: until_s }
}

/// Has the maps hold these and nothing else. list : for each prefix, until when it is allowed, where `NOW_S` is now.
fn write(loaded: &Loaded, list: &BTreeMap<Prefix, u32>) {
    for name in ["ww_allow4", "ww_allow6"] {
        let map = loaded.map(name).unwrap();
        map.keys().collect::<Vec<_>>().iter().for_each(|key| map.delete(key).unwrap());
    }
    let now = boot_s();
    for (prefix, until) in list {
        // The kernel's clock goes on: what ends soon has ended, or ends late.
        let until = match *until {
            abi::LIST_FOREVER => abi::LIST_FOREVER,
            until if until > NOW_S => now + 1000,
            _ => now,
        };
        let map = loaded.map(table(prefix.address)).unwrap();
        map.update(&prefix.map_key(), bytes_of(&allowed(prefix, until)), MapFlags::ANY).unwrap();
    }
}

/// Drops all but who is allowed.
fn policy() -> Policy {
    let mut policy =
        Policy { mode: Mode::Enforce.code(), allow: abi::ALLOW_IPV4 | abi::ALLOW_IPV6, ..Policy::zeroed() };
    policy.class_policy.iter_mut().for_each(|class| class.action = Action::Drop.code());
    policy
}

/// An engine with the program that the kernel has.
struct InEngine {
    engine: Engine,
    entry: ProgramId,
}

impl InEngine {
    fn new(linked: &Linked, caged: bool) -> InEngine {
        let options = Options { caged: Some(caged), clock: ClockSource::Manual, ..Options::default() };
        let mut engine = Engine::new(linked, options).unwrap();
        let mut map = engine.map_mut(".data.ww_policy").unwrap();
        map.update(&[0; 4], bytes_of(&policy()), 0).unwrap();
        let entry = engine.program(ENTRY).unwrap();
        InEngine { engine, entry }
    }

    /// The maps hold these and nothing else.
    fn write(&mut self, list: &BTreeMap<Prefix, u32>) {
        for name in ["ww_allow4", "ww_allow6"] {
            let mut map = self.engine.map_mut(name).unwrap();
            let keys: Vec<_> = map.as_map().entries().map(|(key, _)| key.to_vec()).collect();
            keys.iter().for_each(|key| map.delete(key).unwrap());
        }
        for (prefix, until) in list {
            let mut map = self.engine.map_mut(table(prefix.address)).unwrap();
            map.update(&prefix.map_key(), bytes_of(&allowed(prefix, *until)), 0).unwrap();
        }
    }

    fn passes(&mut self, source: IpAddr, now_ns: u64) -> bool {
        self.engine.set_time(now_ns);
        self.engine.run_xdp(self.entry, &mut frame(source), 0).unwrap() == libbpf_sys::XDP_PASS
    }
}

#[test]
fn whom_some_prefix_allows_still_passes() {
    let Some(object) = data_path() else { return };
    let cpu = pin_to_one_cpu().unwrap();
    let mut opened = Opened::open("x.bpf.o", &object).unwrap();
    opened.prepare(&Settings::on_cpu(cpu, seed_from(1))).unwrap();
    let loaded = opened.load().unwrap();
    loaded.map("ww_policy").unwrap().update(&[0; 4], bytes_of(&policy()), MapFlags::ANY).unwrap();
    let mut linked = Linked::from_loaded(&loaded.object).unwrap();
    let names: Vec<_> = linked.maps().iter().map(|map| map.name().to_owned()).collect();
    for name in names {
        if let Some(entries) = max_entries(&name, &loaded.config.unwrap()).unwrap() {
            linked.set_max_entries(&name, entries).unwrap();
        }
    }
    let engines = RefCell::new([false, true].map(|caged| InEngine::new(&linked, caged)));
    let until = prop_oneof![Just(abi::LIST_FOREVER), NOW_S - 2..NOW_S + 3, any::<u32>()];
    let entry = (any::<bool>(), 0u8..8, any::<prop::sample::Index>(), until);
    let lists = (prop::collection::vec(entry, 0..12), any::<bool>(), 0u8..8);
    let mut runner = TestRunner::new(ProptestConfig { cases: 300, ..ProptestConfig::default() });
    let result = runner.run(&lists, |(entries, v4, sender)| {
        let prefix = |v4, low, at: prop::sample::Index| {
            let bits = if v4 { 33 } else { 129 };
            // Half of them near the end, where the addresses differ.
            let length = if at.index(2) == 0 { at.index(bits) } else { bits - 1 - at.index(5) };
            Prefix::around(address(v4, low), length as u8).unwrap()
        };
        let list: BTreeMap<_, _> =
            entries.into_iter().map(|(v4, low, at, until)| (prefix(v4, low, at), until)).collect();
        let sender = address(v4, sender);
        let expected = |now_ns: u64| {
            let still = |until| until == abi::LIST_FOREVER || now_ns < u64::from(until) * 1_000_000_000;
            list.iter().any(|(prefix, until)| still(*until) && prefix.contains(sender))
        };
        write(&loaded, &list);
        let now_ns = u64::from(NOW_S) * 1_000_000_000;
        prop_assert_eq!(passes(&loaded, sender), expected(now_ns), "{} of {:?}", sender, list);
        for engine in engines.borrow_mut().iter_mut() {
            engine.write(&list);
            for now_ns in [now_ns - 1, now_ns, now_ns + 1, now_ns + 2_500_000_000] {
                let passes = engine.passes(sender, now_ns);
                prop_assert_eq!(passes, expected(now_ns), "{} of {:?} at {} ns", sender, list, now_ns);
            }
        }
        Ok(())
    });
    result.unwrap();
}
