// SPDX-License-Identifier: Apache-2.0
//! `wirewised::abi` against the BTF of an object compiled from `bpf/wirewise/abi.h`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::mem::{offset_of, size_of};

use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use wirewised::abi::{self, Action, Check, Clock, Method, Mode, Outcome, Shadow, Status, Trigger};

use crate::fixture;

/// Size, and name and offset of each member.
type Layout = (usize, Vec<(String, usize)>);

macro_rules! layout {
    ($type:ty { $($member:ident),+ $(,)? }) => {
        (size_of::<$type>(), vec![$((stringify!($member).to_owned(), offset_of!($type, $member))),+])
    };
}

fn ours() -> BTreeMap<&'static str, Layout> {
    BTreeMap::from([
        (
            "ww_config",
            layout!(abi::Config {
                abi_version,
                clock,
                bucket_mask,
                shards,
                proven_packets,
                trace,
                bench_flows,
                bench_spoof,
                idle_timeout_ns,
                grace_ns,
                hash_seed,
                jiffy_ns,
                jiffy_zero_ns,
                verdict,
                bench_packets,
                shadow,
                shared,
                ordered,
                aggregate_mask,
                hook,
                steer,
                key_teid,
                record,
            }),
        ),
        (
            "ww_key4",
            layout!(abi::Key4 { source, destination, source_port, destination_port, protocol, reserved }),
        ),
        (
            "ww_key6",
            layout!(abi::Key6 { source, destination, source_port, destination_port, protocol, reserved }),
        ),
        ("ww_tunnel_key4", layout!(abi::TunnelKey4 { key, teid })),
        ("ww_tunnel_key6", layout!(abi::TunnelKey6 { key, teid })),
        ("ww_slot", layout!(abi::Slot { last_seen_ns, packets, class_id, flags, generation })),
        ("ww_class_policy", layout!(abi::ClassPolicy { action, after, interval_ns, burst_ns })),
        (
            "ww_policy",
            layout!(abi::Policy {
                allow,
                mode,
                enforce_until_ns,
                drop_malformed,
                trigger,
                trigger_first_n,
                streaks,
                trigger_interval_ns,
                trigger_packets,
                event_interval_ns,
                event_burst_ns,
                class_policy,
                steer,
            }),
        ),
        (
            "ww_steer",
            layout!(abi::Steer {
                kinds,
                ifindex,
                mark,
                priority,
                queue,
                dscp,
                cpus,
                socket,
                mirror_ifindex,
                mirror_every,
                mirror_snap,
                pool,
                address,
                cpu,
                qfi,
                inner_dscp,
                reserved,
                own4,
                own6,
                broadcast,
            }),
        ),
        ("ww_tunnel_end", layout!(abi::TunnelEnd { address, teid, ip_version, side, reserved })),
        (
            "ww_tunnel",
            layout!(abi::Tunnel {
                local,
                peer,
                ue6,
                ue4,
                teid,
                peer_teid,
                ip_version,
                flags,
                qfi,
                reserved,
                packets,
                bytes,
            }),
        ),
        ("ww_wish", layout!(abi::Wish { magic, kinds, mark, priority, queue, mirror_ifindex })),
        ("ww_station_key", layout!(abi::StationKey { bridge, address, reserved })),
        ("ww_station", layout!(abi::Station { seen_ns, ifindex, reserved })),
        (
            "ww_pool",
            layout!(abi::Pool {
                seed,
                table,
                ifindex,
                method,
                check,
                port,
                mac,
                interval_ms,
                timeout_ms,
                fall,
                rise,
                reserved,
                name,
                path
            }),
        ),
        ("ww_table", layout!(abi::Table { backend })),
        (
            "ww_backend",
            layout!(abi::Backend {
                address,
                source,
                mac,
                ip_version,
                given,
                flags,
                pool,
                weight,
                generation
            }),
        ),
        ("ww_prefix4", layout!(abi::Prefix4 { length, address })),
        ("ww_prefix6", layout!(abi::Prefix6 { length, address })),
        ("ww_counter", layout!(abi::Counter { packets, bytes })),
        (
            "ww_stats",
            layout!(abi::Stats {
                status,
                class_outcome,
                inferred,
                flows_new,
                flows_expired,
                flows_evicted,
                flows_refused,
                events_sent,
                events_limited,
                event_tat_ns,
                flows_missed,
                aggregates_new,
                aggregates_expired,
                aggregates_evicted,
                aggregates_refused,
                aggregates_missed,
                said_yes,
                answer_tat_ns,
                bounce_tat_ns,
            }),
        ),
        (
            "ww_event",
            layout!(abi::Event {
                time_ns,
                key,
                ip_version,
                class_id,
                action,
                outcome,
                packets,
                length,
                sequence,
                answers,
                changed
            }),
        ),
        (
            "ww_scratch",
            layout!(abi::Scratch {
                feature,
                score,
                status,
                inferred,
                class_id,
                action,
                outcome,
                refused,
                packets,
                ip_version,
                key,
                length,
                frame_length,
                bucket,
                way,
                seen,
                seen_key,
                aggregate_key,
                sample,
                now_ns,
                leaf,
                answers,
                changed,
                activation,
            }),
        ),
        (
            "ww_record",
            layout!(abi::Record { time_ns, packet, status, inferred, length, headers_length, headers }),
        ),
        ("ww_record_ring", layout!(abi::RecordRing { packets, written, lost, reserved, read, rest })),
        ("ww_agreement", layout!(abi::Agreement { packets, now_ns, class_id, reserved })),
        ("ww_cpu", layout!(abi::Cpu { stats, scratch })),
    ])
}

fn find<'btf, T: TryFrom<BtfType<'btf>>>(btf: &'btf Btf<'_>, name: &str) -> T {
    let id = (1..btf.len()).map(|id| (id as u32).into());
    let mut types = id.filter_map(|id| btf.type_by_id::<BtfType<'_>>(id));
    let found =
        types.find_map(|t| if t.name() == Some(OsStr::new(name)) { T::try_from(t).ok() } else { None });
    found.unwrap_or_else(|| panic!("the object's BTF has no {name}"))
}

#[test]
fn types_are_laid_out_as_in_the_object() {
    let Some(object) = fixture::object(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bpf.o");
    std::fs::write(&path, object).unwrap();
    let btf = Btf::from_path(&path).unwrap();
    for (name, layout) in ours() {
        let theirs: Struct<'_> = find(&btf, name);
        let members = theirs.iter().map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { panic!("{name} has a bit field") };
            (member.name.unwrap().to_string_lossy().into_owned(), offset as usize / 8)
        });
        assert_eq!((theirs.size(), members.collect::<Vec<_>>()), layout, "struct {name}");
    }
}

#[test]
fn codes_are_those_of_the_object() {
    let Some(object) = fixture::object(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bpf.o");
    std::fs::write(&path, object).unwrap();
    let btf = Btf::from_path(&path).unwrap();
    /// `rate-limit` of ww_action is WW_ACTION_RATE_LIMIT.
    fn names(prefix: &str, names: Vec<&str>) -> Vec<String> {
        names.iter().map(|name| format!("WW_{prefix}{}", name.to_uppercase().replace('-', "_"))).collect()
    }
    for (name, ours) in [
        ("ww_status", names("", Status::ALL.iter().map(|code| code.name()).collect())),
        ("ww_action", names("ACTION_", Action::ALL.iter().map(|code| code.name()).collect())),
        ("ww_outcome", names("OUTCOME_", Outcome::ALL.iter().map(|code| code.name()).collect())),
        ("ww_mode", names("MODE_", Mode::ALL.iter().map(|code| code.name()).collect())),
        ("ww_trigger", names("TRIGGER_", Trigger::ALL.iter().map(|code| code.name()).collect())),
        ("ww_shadow", names("SHADOW_", Shadow::ALL.iter().map(|code| code.name()).collect())),
        ("ww_method", names("METHOD_", Method::ALL.iter().map(|code| code.name()).collect())),
        ("ww_check", names("CHECK_", Check::ALL.iter().map(|code| code.name()).collect())),
        ("ww_tunnel_count", names("TUNNEL_", abi::TUNNEL_COUNTS.to_vec())),
        ("ww_clock", names("CLOCK_", Clock::ALL.iter().map(|code| code.name()).collect())),
    ] {
        let theirs: Enum<'_> = find(&btf, name);
        let mut theirs: Vec<(i64, String)> = theirs
            .iter()
            .map(|value| (value.value, value.name.unwrap().to_string_lossy().into_owned()))
            .collect();
        // The last of some is their number.
        theirs.retain(|(_, name)| {
            !["WW_STATUSES", "WW_ACTIONS", "WW_OUTCOMES", "WW_TUNNEL_COUNTS"].contains(&name.as_str())
        });
        let ours: Vec<(i64, String)> = (0..).zip(ours).collect();
        assert_eq!(theirs, ours, "enum {name}");
    }
    let theirs: Enum<'_> = find(&btf, "ww_steer_kind");
    let theirs: BTreeMap<_, _> = theirs
        .iter()
        .map(|value| (value.name.unwrap().to_string_lossy().into_owned(), value.value as u32))
        .collect();
    let ours = abi::STEERING.into_iter().chain([
        (abi::STEER_BRIDGE, "bridge"),
        (abi::STEER_TOLD, "told"),
        (abi::STEER_CARRIED, "carried"),
    ]);
    assert_eq!(
        theirs,
        ours.map(|(bit, name)| (format!("WW_STEER_{}", name.to_uppercase().replace('-', "_")), bit))
            .collect()
    );
}
