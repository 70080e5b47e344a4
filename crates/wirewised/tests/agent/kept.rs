// SPDX-License-Identifier: Apache-2.0
//! What an interface remembers, for every action, when the program changes: whatever another program, a shadow or another policy does not
//! replace is the same afterwards, in the maps of the program that runs.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde_json::Value;
use wirewised::kernel::objects;

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle, bundle_of_classes, data_path};
use crate::steering::{Beyond, OUT};

/// What a map holds, without zeros: they are what it begins with.
type Content = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Written anew by every policy that is given: `views` compares what these mean.
const WRITTEN: [&str; 5] = [".data.ww_policy", ".data.ww_act_po", "ww_pools", "ww_tables", "ww_backends"];
/// Numbered by class, or with verdicts in it, which are.
const BY_CLASS: [&str; 7] =
    [".data.ww_cpu", ".data.ww_policy", ".data.ww_act_po", "ww_events", "ww_limit", "ww_flows4", "ww_flows6"];
/// Of one load.
const OF_LOAD: [&str; 6] =
    [".rodata.ww_conf", ".rodata.ww_act_", "ww_progs", "ww_first", "ww_blank", "ww_agreement"];
/// Where tests write an entry of their own, as packets would.
const MARKED: [&str; 6] =
    ["ww_memory", "ww_stations", "ww_answers", "ww_backend_coun", "ww_tunnel_count", "ww_limit"];

/// The maps that a program uses, by the first 15 characters of their names.
fn maps_of(program: BorrowedFd<'_>) -> BTreeMap<String, MapHandle> {
    let mut ids = [0u32; 64];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut length = mem::size_of_val(&info) as u32;
    // SAFETY: `info` says where `ids` are and how many have room; both outlive the call.
    let code = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) };
    assert_eq!(code, 0);
    let map = |id: &u32| MapHandle::from_map_id(*id).unwrap();
    let maps = ids[..info.nr_map_ids as usize].iter().map(map);
    maps.map(|map| (map.name().to_string_lossy().into_owned(), map)).collect()
}

/// Those of the program that gives verdicts: beside a shadow, that which it calls.
fn running(lab: &Lab) -> BTreeMap<String, MapHandle> {
    let status = lab.status();
    let mut id = status["program_id"].as_u64().unwrap() as u32;
    if !status["shadow"].is_null() {
        let first = lab.pins().join(format!("{INTERFACE}::shadow/ww_first"));
        let first = MapHandle::from_pinned_path(first).unwrap();
        let value = first.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        id = u32::from_ne_bytes(value.try_into().unwrap());
    }
    maps_of(objects::program_by_id(id).unwrap().as_fd())
}

fn is_per_cpu(map: &MapHandle) -> bool {
    map.map_type() == MapType::PercpuArray
}

fn content(map: &MapHandle) -> Content {
    let values = |key: &[u8]| match is_per_cpu(map) {
        true => map.lookup_percpu(key, MapFlags::ANY).ok().flatten(),
        false => map.lookup(key, MapFlags::ANY).ok().flatten().map(|value| vec![value]),
    };
    let entries = map.keys().filter_map(|key| values(&key).map(|values| (key, values)));
    entries.filter(|(_, values)| values.iter().flatten().any(|byte| *byte != 0)).collect()
}

fn contents(lab: &Lab) -> BTreeMap<String, Content> {
    let maps = running(lab).into_iter().filter(|(name, _)| !OF_LOAD.contains(&name.as_str()));
    maps.map(|(name, map)| (name, content(&map))).collect()
}

/// Puts an entry where packets would, into maps whose entries nobody else writes.
fn mark(lab: &Lab) {
    for (name, map) in running(lab).into_iter().filter(|(name, _)| MARKED.contains(&name.as_str())) {
        let mut key = vec![0x5a; map.key_size() as usize];
        if matches!(map.map_type(), MapType::Array | MapType::PercpuArray) {
            key = 1u32.to_ne_bytes().to_vec();
        }
        let value = vec![0x5a; map.value_size() as usize];
        if is_per_cpu(&map) {
            let cpus = libbpf_rs::num_possible_cpus().unwrap();
            map.update_percpu(&key, &vec![value; cpus], MapFlags::ANY).unwrap();
        } else {
            map.update(&key, &value, MapFlags::ANY).unwrap();
        }
        assert!(!content(&map).is_empty(), "{name}");
    }
}

/// What the commands say of it.
fn views(lab: &Lab) -> Vec<Value> {
    let status = lab.status();
    let mut views = vec![status["classes"].clone(), status["mode"].clone()];
    for view in ["backends", "tunnels"] {
        let output = lab.run(&format!("{view} --json"));
        views.push(serde_json::from_slice(&output.stdout).unwrap_or_default());
    }
    views
}

struct Kept<'a> {
    lab: &'a Lab,
    before: BTreeMap<String, Content>,
    views: Vec<Value>,
}

impl Kept<'_> {
    /// other : maps that are not as before.
    fn after(&self, command: &str, other: &[&str]) {
        self.lab.ok(command);
        let after = contents(self.lab);
        for (name, before) in self.before.iter().filter(|(name, _)| !other.contains(&name.as_str())) {
            let after = after.get(name).unwrap_or_else(|| panic!("{command}: no {name}"));
            assert!(before == after, "{command}: {name} was\n{before:x?}\nand is\n{after:x?}");
        }
        if !other.contains(&".data.ww_cpu") {
            assert_eq!(views(self.lab), self.views, "{command}");
        }
    }
}

/// policy : given again where a policy is. reloading : the same, asking for more.
fn keep(plane: &str, policy: &str, reloading: &str, prepare: impl Fn(&Lab)) {
    let Some(lab) = Lab::new() else { return };
    let _beyond = Beyond::new(&lab);
    let object = data_path().unwrap();
    lab.sh(&format!("ip addr add 10.8.0.1/24 dev {OUT}"));
    lab.sh("sysctl -qw net.ipv4.tcp_syncookies=2");
    lab.write("c.wirewise", &bundle("second", object));
    lab.write("d.wirewise", &bundle_of_classes("third", object, &["attack", "benign"]));
    let allow = "allow: {prefixes: [192.0.2.0/24, '2001:db8::/32'], ports: [udp/7]}";
    lab.write("r.yaml", format!("version: 1\n{reloading}\n{allow}\n").as_bytes());
    lab.policy(&format!("{policy}\n{allow}"));
    lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
    prepare(&lab);
    lab.send(1000, BENIGN, 3);
    lab.send(1001, ATTACK, 3);
    mark(&lab);
    let mut kept = Kept { lab: &lab, before: contents(&lab), views: views(&lab) };
    let missing: Vec<_> =
        MARKED.iter().filter(|name| kept.before.get(**name).is_some_and(Content::is_empty)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let again = format!("run --bundle b.wirewise --interface {INTERFACE} --yes --policy");
    kept.after("swap --bundle c.wirewise", &[]);
    kept.after("rollback", &[]);
    kept.after("swap --bundle c.wirewise --policy p.yaml --yes", &WRITTEN);
    kept.after("rollback", &[]);
    kept.after("swap --shadow --bundle c.wirewise", &[]);
    kept.after("swap --no-shadow", &[]);
    kept.after("swap --shadow --bundle c.wirewise", &[]);
    kept.after(&format!("{again} p.yaml"), &WRITTEN);
    kept.after("swap --promote", &WRITTEN);
    kept.after("rollback", &WRITTEN);
    kept.before = contents(&lab);
    kept.after("swap --bundle d.wirewise", &BY_CLASS);
    let limits =
        |content: &BTreeMap<String, Content>| content["ww_limit"].values().cloned().collect::<Vec<_>>();
    assert_eq!(limits(&contents(&lab)), limits(&kept.before), "limits go by the names of classes");
    kept.after("rollback", &BY_CLASS[5..]);
    kept.after(&format!("{again} r.yaml"), &[&WRITTEN[..], &BY_CLASS[..]].concat());
    kept.after("rollback", &BY_CLASS[5..]);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

const LIMIT: &str = "attack: {action: rate-limit, rate: 100/s, burst: 50}";

#[test]
fn limits_redirects_and_what_the_companion_does() {
    let more =
        |more: &str| format!("classes: {{benign: {{mark: 7, mirror: {{interface: {OUT}}}{more}}}, {LIMIT}}}");
    keep("xdp-native", &more(""), &more(", dscp: EF"), |_| ());
    let more = |more: &str| format!("classes: {{benign: {{redirect: {{interface: {OUT}}}{more}}}, {LIMIT}}}");
    keep("tc-ingress --offloads off", &more(""), &more(", dscp: EF"), |_| ());
}

#[test]
fn backends() {
    let policy = |more: &str| {
        format!(
            "classes: {{benign: {{backend: web{more}}}, {LIMIT}}}\n\
             pools: {{web: {{interface: {OUT}, backends: [{{address: 10.8.0.2, mac: '02:00:00:00:09:02'}}, \
             {{address: 10.8.0.3, mac: '02:00:00:00:09:03'}}]}}}}"
        )
    };
    keep("xdp-native", &policy(""), &policy(", dscp: EF"), |_| ());
}

#[test]
fn stations_behind_ports_and_challenges() {
    let policy = |more: &str| {
        format!(
            "classes: {{benign: {{forward: {{ports: [{INTERFACE}, {OUT}], static: {{'02:00:00:00:00:07': {OUT}}}}}{more}}}, \
             {LIMIT}}}"
        )
    };
    keep("xdp-native", &policy(""), &policy(", dscp: EF"), |_| ());
    let policy = format!("classes: {{benign: challenge, {LIMIT}}}");
    let reloading = "classes: {benign: challenge, attack: bounce}";
    keep("xdp-native", &policy, reloading, |_| ());
}

#[test]
fn tunnels() {
    let policy = |more: &str| {
        format!(
            "classes: {{benign: {{decapsulate: gtp-u, action: forward{more}}}, {LIMIT}}}\ntunnels: \
             [{{ue: 10.45.0.2, local: 10.9.0.2, teid: 0x100, peer: 10.9.0.1, peer-teid: 0x200, qfi: 9}}]"
        )
    };
    keep("xdp-native", &policy(""), &policy(", dscp: EF"), |_| ());
    // The table that a command wrote.
    let policy =
        |more: &str| format!("classes: {{benign: {{encapsulate: gtp-u, action: forward{more}}}, {LIMIT}}}");
    keep("xdp-native", &policy(""), &policy(", dscp: EF"), |lab| {
        lab.ok("tunnels --add ue=10.45.0.3,local=10.9.0.2,teid=0x101,peer=10.9.0.1,peer-teid=0x201,qfi=9");
    });
}

#[test]
fn other_cpus_and_sockets() {
    let policy = |more: &str| format!("classes: {{benign: {{redirect: {{cpu: [0]}}{more}}}, {LIMIT}}}");
    keep("xdp-native", &policy(""), &policy(", dscp: EF"), |_| ());
    let policy = |more: &str| format!("classes: {{benign: {{redirect: {{socket: 0}}{more}}}, {LIMIT}}}");
    keep("xdp-generic --offloads off", &policy(""), &policy(", dscp: EF"), |_| ());
}
