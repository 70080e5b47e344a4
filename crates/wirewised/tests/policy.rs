// SPDX-License-Identifier: Apache-2.0
//! The policy reader: docs/policy.md as examples, refusals, and properties of what reaches the map.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use wirewised::abi;
use wirewised::policy::{ClassAction, Policy, Trigger};

fn classes() -> Vec<String> {
    ["benign", "attack", "scan", "other"].map(String::from).to_vec()
}

fn parse(text: &str) -> Policy {
    Policy::parse(text, &classes()).unwrap_or_else(|message| panic!("{text}: {message}"))
}

fn refusal(text: &str) -> String {
    let message = Policy::parse(text, &classes()).expect_err(text);
    assert!(!message.contains('\n'), "not one line: {message}");
    message
}

const FULL: &str = r#"
version: 1
classes: {attack: drop, scan: {action: rate-limit, rate: 100/s, burst: 20}, benign: pass, other: count}
trigger: {packets: [1, 2, 4, 1023]}
allow: {prefixes: [10.0.0.0/8, "2001:db8::/32", 192.0.2.7], ports: [22, tcp/179, udp/53]}
enforce_for: 10m
malformed: drop
events: {rate: 50/s, burst: 5}
"#;

#[test]
fn a_full_policy_reaches_the_map() {
    let policy = parse(FULL);
    let value = policy.to_abi(1_000, abi::Mode::Enforce);
    assert_eq!(value.policy.mode, abi::Mode::Enforce.code());
    assert_eq!(value.policy.enforce_until_ns, 600_000_001_000);
    assert_eq!(
        value.policy.allow,
        abi::ALLOW_IPV4 | abi::ALLOW_IPV6 | abi::ALLOW_PORTS | abi::ALLOW_ESSENTIAL
    );
    assert_eq!(value.policy.drop_malformed, 1);
    assert_eq!(value.policy.trigger, abi::Trigger::Packets.code());
    assert_eq!((value.policy.trigger_packets[0], value.policy.trigger_packets[15]), (0b10110, 1 << 63));
    assert_eq!((value.policy.event_interval_ns, value.policy.event_burst_ns), (20_000_000, 4 * 20_000_000));
    let actions = value.policy.class_policy.map(|class| class.action);
    assert_eq!(actions[..5], [0, 1, 3, 2, 0]);
    let scan = value.policy.class_policy[2];
    assert_eq!((scan.interval_ns, scan.burst_ns), (10_000_000, 19 * 10_000_000));

    let words = policy.port_words();
    assert_eq!(words.len(), 4096);
    let allowed = |udp: usize, port: usize| words[udp * 1024 + port / 64] >> (port % 64) & 1 == 1;
    assert!(allowed(0, 22) && allowed(1, 22) && allowed(0, 179) && allowed(1, 53));
    assert!(!allowed(1, 179) && !allowed(0, 53) && !allowed(0, 23));
    assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), 4);
}

#[test]
fn connections_of_the_host_pass_if_told_and_where_something_is_dropped() {
    let allow = |text: &str| parse(&format!("version: 1\n{text}")).to_abi(0, abi::Mode::Enforce).policy.allow;
    let drop = "classes: {attack: drop}\nessential: drop";
    assert_eq!(allow(&format!("{drop}\nallow: {{established: true}}")), abi::ALLOW_ESTABLISHED);
    assert_eq!(allow(&format!("{drop}\nallow: {{established: false}}")), 0);
    assert_eq!(allow("classes: {attack: count}\nallow: {established: true}"), 0);
    for wrong in ["yes", "1", "[true]", "{}"] {
        refusal(&format!("version: 1\nallow: {{established: {wrong}}}"));
    }
    assert!(refusal("version: 1\nallow: {established: on}").contains("'on' is neither true nor false"));
}

#[test]
fn essential_packets_pass_where_something_is_dropped_unless_told() {
    let allow = |text: &str| parse(&format!("version: 1\n{text}")).to_abi(0, abi::Mode::Enforce).policy.allow;
    assert_eq!(allow("classes: {attack: drop}"), abi::ALLOW_ESSENTIAL);
    assert_eq!(
        allow("classes: {attack: {action: rate-limit, rate: 1/s}}\nessential: pass"),
        abi::ALLOW_ESSENTIAL
    );
    assert_eq!(allow("classes: {attack: drop}\nessential: drop"), 0);
    assert_eq!(allow("classes: {attack: count}"), 0);
    assert!(
        refusal("version: 1\nessential: count")
            .contains("essential: unknown choice 'count'; there are: pass, drop")
    );
}

#[test]
fn source_ports_have_words_of_their_own() {
    let policy = parse("version: 1\nallow: {source_ports: [53, tcp/443], ports: [udp/443]}");
    assert_eq!(policy.to_abi(0, abi::Mode::Observe).policy.allow, abi::ALLOW_PORTS | abi::ALLOW_SOURCE_PORTS);
    let words = policy.port_words();
    let allowed = |table: usize, port: usize| words[table * 1024 + port / 64] >> (port % 64) & 1 == 1;
    assert!(allowed(1, 443) && allowed(2, 53) && allowed(3, 53) && allowed(2, 443));
    assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), 4);
}

#[test]
fn what_is_not_named_has_its_default() {
    let policy = parse("version: 1\n");
    assert_eq!(policy, Policy::all_pass(&classes()));
    assert!(policy.does_nothing());
    let value = policy.to_abi(5, abi::Mode::Observe);
    assert_eq!((value.policy.mode, value.policy.enforce_until_ns, value.policy.allow), (0, 0, 0));
    assert_eq!((value.policy.event_interval_ns, value.policy.event_burst_ns), (10_000_000, 190_000_000));

    let policy = parse("version: 1\nclasses: {scan: {action: rate-limit, rate: 30/m}}\nevents: {rate: 0}\n");
    let value = policy.to_abi(0, abi::Mode::Observe);
    assert_eq!(value.policy.event_interval_ns, 0);
    assert_eq!(value.policy.class_policy[2].burst_ns, 19 * 2_000_000_000);
    assert!(!policy.does_nothing());
    assert_eq!(policy.actions[2].to_string(), "rate-limit 30/m burst 20");
}

#[test]
fn a_class_may_need_some_verdicts_in_a_row() {
    let policy = parse(
        "version: 1\nclasses: {attack: {action: drop, after: 3}, scan: {action: rate-limit, rate: 1/s, after: 15}, other: count}",
    );
    let value = policy.to_abi(0, abi::Mode::Enforce);
    assert_eq!(value.policy.class_policy.map(|class| class.after)[..4], [1, 3, 15, 1]);
    assert_eq!(value.policy.rules, abi::RULE_STREAKS);
    let said: Vec<_> = policy.actions.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["pass", "drop after 3", "rate-limit 1/s burst 20 after 15", "count"]);
    let at_once =
        parse("version: 1\nclasses: {benign: {action: pass, after: 1}, attack: {action: drop, after: 1}}");
    assert_eq!(at_once, parse("version: 1\nclasses: {attack: drop}"));
    assert_eq!(at_once.to_abi(0, abi::Mode::Enforce).policy.rules, 0);
}

#[test]
fn a_policy_may_ask_for_evidence_by_sender() {
    let policy = parse("version: 1\nclasses: {attack: drop}\nevidence: {}");
    let value = policy.to_abi(0, abi::Mode::Enforce);
    assert_eq!(value.policy.rules, abi::RULE_EVIDENCE);
    let rule = value.act.evidence;
    assert_eq!((rule.by, rule.last, rule.flows, rule.threshold), (abi::Evidence::Source.code(), 20, 3, 128));
    assert_eq!(rule.within_ms, 600_000);
    assert_eq!((policy.steering_kinds(), value.steering()), (abi::STEER_EVIDENCE, abi::STEER_EVIDENCE));
    let evidence = policy.evidence.unwrap();
    assert_eq!(evidence.to_string(), "50 % of the last 20 flows by source, of 3 at least, within 10m");

    let policy = parse(
        "version: 1\nclasses: {attack: drop}\nevidence: {by: service, last: 2, threshold: 100%, within: 1ms}",
    );
    let rule = policy.to_abi(0, abi::Mode::Enforce).act.evidence;
    assert_eq!((rule.by, rule.last, rule.flows, rule.threshold, rule.within_ms), (3, 2, 2, 255, 1));
}

#[test]
fn what_only_tells_or_weighs_changes_no_packet() {
    for quiet in ["evidence: {}", "events: {each: flow}", "verdicts: true"] {
        assert!(parse(&format!("version: 1\n{quiet}")).does_nothing(), "{quiet}");
    }
    for changing in ["deny: {}", "metadata: true"] {
        assert!(!parse(&format!("version: 1\n{changing}")).does_nothing(), "{changing}");
    }
}

#[test]
fn evidence_is_refused_with_the_way_out() {
    for (evidence, expected) in [
        ("{by: sorce}", "evidence: by: unknown 'sorce'; did you mean 'source'?"),
        ("{last: 0}", "evidence: last: 0 is out of range; it is 1 to 255"),
        ("{last: 256}", "evidence: last: 256 is out of range; it is 1 to 255"),
        ("{last: 4, flows: 5}", "evidence: flows: 5 is out of range; it is 1 to 4"),
        ("{threshold: 0%}", "evidence: threshold: '0%' is not a share of 1% to 100%"),
        ("{threshold: 101%}", "evidence: threshold: '101%' is not a share of 1% to 100%"),
        ("{threshold: half}", "write a whole number, such as 50%"),
        ("{within: 169h}", "evidence: within: 169h is out of range; it is 1ms to 168h"),
        ("{within: 1us}", "evidence: within: 1us is out of range; it is 1ms to 168h"),
        ("{since: 5m}", "since"),
    ] {
        let error = Policy::parse(&format!("version: 1\nevidence: {evidence}"), &classes()).unwrap_err();
        assert!(error.contains(expected), "{evidence}: {error}");
    }
}

#[test]
fn evidence_needs_its_part_of_the_flow_key() {
    for (by, taken, refused) in [
        (
            "source",
            ["five-tuple+vlan", "source+teid", "source-destination"].as_slice(),
            ["destination"].as_slice(),
        ),
        ("pair", &["five-tuple-bidirectional", "source-destination+vlan"], &["source", "destination"]),
        ("service", &["five-tuple", "five-tuple+teid"], &["source-destination", "source"]),
    ] {
        let policy = parse(&format!("version: 1\nevidence: {{by: {by}}}"));
        for key in taken {
            policy.check_key(key).unwrap();
        }
        for key in refused {
            let error = policy.check_key(key).unwrap_err().to_string();
            assert!(error.contains(&format!("evidence: by: {by} needs")) && error.contains(key), "{error}");
        }
    }
    parse("version: 1").check_key("destination").unwrap();
}

#[test]
fn a_class_may_go_elsewhere_and_be_written_on() {
    let policy = parse(
        "version: 1\nclasses: {attack: {dscp: af41, redirect: {interface: eth2}, after: 2}, scan: {action: bounce, dscp: 0x3f}, \
         other: {mark: 0xffffffff, priority: 3, queue: 65533}, benign: {dscp: 0}}",
    );
    let said: Vec<_> = policy.actions.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "dscp CS0",
            "dscp AF41, redirect to eth2 after 2",
            "dscp 63, bounce",
            "mark 4294967295, priority 3, queue 65533"
        ]
    );
    let value = policy.to_abi(0, abi::Mode::Enforce);
    assert_eq!(value.policy.class_policy.map(|class| class.action)[..4], [abi::Action::Act.code(); 4]);
    assert_eq!(value.act.steer.map(|steer| steer.kinds)[..5], [4, 5, 6, 56, 0]);
    assert_eq!((value.act.steer[1].dscp, value.act.steer[2].dscp, value.act.steer[3].queue), (34, 63, 65533));
    assert_eq!((value.steering(), policy.steering_kinds()), (63, 63));
    assert!(!policy.does_nothing());
    // Who is sent elsewhere may lock themselves out as who is dropped.
    assert_eq!(value.policy.allow, abi::ALLOW_ESSENTIAL);
    assert_eq!([0, 1, 2, 3].map(|class| value.takes_away(class)), [false, true, true, false]);
    let written = parse("version: 1\nclasses: {attack: {dscp: EF}}\nallow: {established: true}");
    assert_eq!(written.to_abi(0, abi::Mode::Enforce).policy.allow, 0);
    assert_eq!(parse("version: 1\nclasses: {scan: bounce}").actions[2].to_string(), "bounce");
    let forwarded = parse("version: 1\nclasses: {scan: forward, other: {action: forward, dscp: EF}}");
    assert_eq!([2, 3].map(|class| forwarded.actions[class].to_string()), ["forward", "dscp EF, forward"]);
    let value = forwarded.to_abi(0, abi::Mode::Enforce);
    assert_eq!(([2, 3].map(|class| value.act.steer[class].kinds), value.takes_away(2)), ([512, 516], true));
    let between = parse(
        "version: 1\nclasses: {scan: {forward: {ports: [a, b], static: {'02:00:00:00:00:ff': b}}, mark: 1}}",
    );
    assert_eq!(between.actions[2].to_string(), "mark 1, forward between a, b");
    assert_eq!(between.to_abi(0, abi::Mode::Enforce).act.steer[2].kinds, 512 | 4096 | 8);
    assert_eq!(
        between.stations().into_iter().collect::<Vec<_>>(),
        [([&[0; 4][..], &[2, 0, 0, 0, 0, 255], &[0; 2]].concat(), 0)]
    );
}

#[test]
fn a_class_may_be_challenged() {
    let policy = parse("version: 1\nclasses: {attack: challenge, scan: {action: challenge, after: 3}}");
    let said: Vec<_> = policy.actions.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["pass", "challenge", "challenge after 3", "pass"]);
    let value = policy.to_abi(0, abi::Mode::Enforce);
    assert_eq!((value.steering(), value.policy.allow), (abi::STEER_CHALLENGE, abi::ALLOW_ESSENTIAL));
    assert!(value.takes_away(1) && value.takes_away(2));
}

#[test]
fn a_class_may_go_to_a_pool() {
    let policy = parse(
        "version: 1\nclasses: {attack: {backend: web}}\npools:\n  web:\n    method: gue\n    interface: eth1\n    source: 10.0.0.1\n    \
         seed: 0x10\n    health: {http: /health, port: 8080, interval: 2s, timeout: 250ms, fall: 5, rise: 1}\n    backends: [{address: \
         10.0.0.12, drain: true}, {address: 10.0.0.11, weight: 3, mac: \"52:54:00:00:00:01\"}]\n",
    );
    let [pool] = &policy.pools[..] else { panic!("{:?}", policy.pools) };
    assert_eq!((pool.method, pool.seed, pool.source), (abi::Method::Gue, 16, "10.0.0.1".parse().ok()));
    let health = pool.health.as_ref().unwrap();
    assert_eq!((health.check, health.port, health.path.as_str()), (abi::Check::Http, 8080, "/health"));
    assert_eq!((health.interval_ms, health.timeout_ms, health.fall, health.rise), (2000, 250, 5, 1));
    let backends: Vec<_> = pool
        .backends
        .iter()
        .map(|it| (it.address.to_string(), it.weight, it.drains, it.mac.is_some()))
        .collect();
    assert_eq!(
        backends,
        [("10.0.0.11".to_string(), 3, false, true), ("10.0.0.12".to_string(), 1, true, false)]
    );
    let class = policy.classes.iter().position(|class| class == "attack").unwrap();
    assert_eq!(policy.actions[class].to_string(), "backend web");
    let element = policy.to_abi(0, abi::Mode::Enforce);
    assert_eq!((element.steering(), element.takes_away(class)), (abi::STEER_BACKEND, true));
    assert_eq!(element.policy.allow & abi::ALLOW_ESSENTIAL, abi::ALLOW_ESSENTIAL);
}

#[test]
fn every_form_of_trigger_is_read() {
    assert_eq!(parse("version: 1\ntrigger: every").trigger, Trigger::Every);
    assert_eq!(
        parse("version: 1\ntrigger: {first-n: 8}").to_abi(0, abi::Mode::Observe).policy.trigger_first_n,
        8
    );
    let interval = parse("version: 1\ntrigger: {interval: 100ms}").to_abi(0, abi::Mode::Observe);
    assert_eq!(interval.policy.trigger_interval_ns, 100_000_000);
    assert_eq!(interval.policy.trigger, abi::Trigger::Interval.code());
}

/// The files of tests/policies/ of a kind: those of the toolkit's test too (tests/unit/test_policy.py).
fn cases(kind: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policies").join(kind);
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut cases: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    cases.sort();
    assert!(cases.len() > 10);
    cases
}

#[test]
fn each_broken_rule_is_named_with_the_way_out() {
    let mut differ = Vec::new();
    for path in cases("bad") {
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().unwrap().strip_prefix("# ").unwrap();
        let error = Policy::load(&path, &classes()).expect_err(&text);
        assert_eq!(error.kind().exit_code(), 2);
        let message = error.to_string();
        if message != format!("{}: {expected}", path.display()) {
            differ.push(message);
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn each_file_has_its_normal_form() {
    for path in cases("good") {
        let expected = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
        let normal = Policy::load(&path, &classes()).unwrap().normal();
        assert_eq!(normal, expected, "{}\n{normal:#}", path.display());
    }
}

#[test]
fn what_is_no_document_is_refused() {
    for text in ["", "~", "[", "version: 1\n---\nversion: 1", "\0", "a: &a [*a]", "version: !x 1\n: :"] {
        refusal(text);
    }
}

#[test]
fn a_policy_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.yaml");
    let load = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let error = Policy::load(&path, &classes()).unwrap_err();
        assert_eq!(error.kind().exit_code(), 2);
        error.to_string()
    };
    assert!(load(b"version: 1\n\xff").contains("p.yaml: not UTF-8 text (byte 11)"));
    assert!(load(&vec![b'#'; (1 << 20) + 1]).contains("p.yaml: larger than 1048576 bytes"));
    let gone = Policy::load(&directory.path().join("gone.yaml"), &classes()).unwrap_err();
    assert!(gone.to_string().contains("gone.yaml: does not exist"), "{gone}");
}

/// Aliases that would unfold to 10^9 strings.
#[test]
fn a_yaml_bomb_is_refused_quickly() {
    let mut text = "version: 1\nallow: {prefixes: &a0 [x]}\n".to_string();
    for level in 1..10 {
        let previous = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("k{level}: &a{level} [{previous}]\n");
    }
    let start = std::time::Instant::now();
    refusal(&text);
    assert!(start.elapsed().as_secs() < 2);
}

proptest! {
    #[test]
    fn no_text_panics(text in "(version: 1\n)?[ -~\n]{0,80}") {
        let _ = Policy::parse(&text, &classes());
    }

    #[test]
    fn prefixes_are_those_of_the_mask(bits in any::<u32>(), length in 0u8..=32) {
        let masked = if length == 0 { 0 } else { bits >> (32 - length) << (32 - length) };
        let network = std::net::Ipv4Addr::from(masked);
        let policy = parse(&format!("version: 1\nallow: {{prefixes: [{network}/{length}]}}"));
        let prefix = policy.prefixes.first().unwrap();
        prop_assert_eq!((prefix.address, prefix.length), (network.into(), length));
        if bits != masked {
            let address = std::net::Ipv4Addr::from(bits);
            let message = refusal(&format!("version: 1\nallow: {{prefixes: [{address}/{length}]}}"));
            let advice = format!("did you mean {network}/{length}?");
            prop_assert!(message.contains(&advice), "{}", message);
        }
    }

    #[test]
    fn rates_become_times(rate in 1u64..1_000_000_000, burst in 1u32..1_000_000) {
        let text = format!("version: 1\nclasses: {{attack: {{action: rate-limit, rate: {rate}/s, burst: {burst}}}}}");
        let policy = parse(&text);
        prop_assert!(matches!(policy.actions[1].action, ClassAction::RateLimit(_)));
        let class = policy.to_abi(0, abi::Mode::Enforce).policy.class_policy[1];
        prop_assert_eq!(class.interval_ns, 1_000_000_000 / rate);
        prop_assert_eq!(class.burst_ns, class.interval_ns * u64::from(burst - 1));
    }
}
