// SPDX-License-Identifier: Apache-2.0
//! The allow list's prefixes in the kernel against what they mean, over lists drawn at random: of any length, forever, for a while, and expired.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use wirewised::abi::{self, Action, Mode, Policy};
use wirewised::kernel::{boot_s, pin_to_one_cpu};
use wirewised::object::{Loaded, Opened, Settings, seed_from};
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

/// Has the maps hold these and nothing else. list : for each prefix, whether it is allowed now, and whether without an end.
fn write(loaded: &Loaded, list: &BTreeMap<Prefix, (bool, bool)>) {
    for name in ["ww_allow4", "ww_allow6"] {
        let map = loaded.map(name).unwrap();
        map.keys().collect::<Vec<_>>().iter().for_each(|key| map.delete(key).unwrap());
    }
    for (prefix, (still, forever)) in list {
        let until = match (still, forever) {
            (true, true) => abi::LIST_FOREVER,
            (true, false) => boot_s() + 1000,
            (false, _) => boot_s(),
        };
        let allowed = abi::Allowed {
            until_s: until,
            length: prefix.length.into(),
            policy_until_s: 0,
            hand_until_s: until,
        };
        let map = loaded.map(if prefix.address.is_ipv4() { "ww_allow4" } else { "ww_allow6" }).unwrap();
        map.update(&prefix.map_key(), bytes_of(&allowed), MapFlags::ANY).unwrap();
    }
}

#[test]
fn the_kernel_allows_whom_some_prefix_allows_still() {
    let Some(object) = data_path() else { return };
    let cpu = pin_to_one_cpu().unwrap();
    let mut opened = Opened::open("x.bpf.o", &object).unwrap();
    opened.prepare(&Settings::on_cpu(cpu, seed_from(1))).unwrap();
    let loaded = opened.load().unwrap();
    let mut policy =
        Policy { mode: Mode::Enforce.code(), allow: abi::ALLOW_IPV4 | abi::ALLOW_IPV6, ..Policy::zeroed() };
    policy.class_policy.iter_mut().for_each(|class| class.action = Action::Drop.code());
    loaded.map("ww_policy").unwrap().update(&[0; 4], bytes_of(&policy), MapFlags::ANY).unwrap();
    let entry = (any::<bool>(), 0u8..8, any::<prop::sample::Index>(), any::<bool>(), any::<bool>());
    let lists = (prop::collection::vec(entry, 0..12), any::<bool>(), 0u8..8);
    let mut runner = TestRunner::new(ProptestConfig { cases: 300, ..ProptestConfig::default() });
    let result = runner.run(&lists, |(entries, v4, sender)| {
        let prefix = |v4, low, at: prop::sample::Index| {
            let bits = if v4 { 33 } else { 129 };
            // Half of them near the end, where the addresses differ.
            let length = if at.index(2) == 0 { at.index(bits) } else { bits - 1 - at.index(5) };
            Prefix::around(address(v4, low), length as u8).unwrap()
        };
        let list: BTreeMap<_, _> = entries
            .into_iter()
            .map(|(v4, low, at, still, forever)| (prefix(v4, low, at), (still, forever)))
            .collect();
        write(&loaded, &list);
        let sender = address(v4, sender);
        let expected = list.iter().any(|(prefix, (still, _))| *still && prefix.contains(sender));
        prop_assert_eq!(passes(&loaded, sender), expected, "{} of {:?}", sender, list);
        Ok(())
    });
    result.unwrap();
}
