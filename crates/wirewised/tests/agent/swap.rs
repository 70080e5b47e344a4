// SPDX-License-Identifier: Apache-2.0
//! One model after another: under load, with the flows that are there, and back.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde_json::Value;
use wirewised::kernel;

use crate::lab::{
    ATTACK, BENIGN, INTERFACE, Lab, bundle, bundle_of_classes, changed_bundle, data_path, variant,
};

/// Packets of a status.
pub fn status(stats: &Value, name: &str) -> u64 {
    let rows = stats["status"].as_array().unwrap();
    rows.iter().find(|row| row["status"] == name).unwrap()["packets"].as_u64().unwrap()
}

pub fn flows(lab: &Lab) -> Vec<Value> {
    lab.json("flows --limit 0")["flows"].as_array().unwrap().clone()
}

pub fn sum(flows: &[Value], value: impl Fn(&Value) -> &Value) -> u64 {
    flows.iter().map(|flow| value(flow).as_u64().unwrap()).sum()
}

/// A second bundle, for which nothing is an attack.
pub fn lenient() -> Vec<u8> {
    bundle("second", &variant("BORDER=1000"))
}

/// Interface directories and those beside them.
pub fn directories(lab: &Lab) -> Vec<String> {
    lab.pinned().into_iter().filter(|name| name.matches('/').count() == 1).collect()
}

/// Gives the note beside the pins the version of an agent with other maps.
fn age(lab: &Lab) {
    let note = MapHandle::from_pinned_path(lab.pins().join(INTERFACE).join("meta")).unwrap();
    let value = note.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    let text = String::from_utf8(value).unwrap();
    let (before, rest) = text.split_once("\"version\":").unwrap();
    let (number, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap());
    let older = format!("{before}\"version\":{:<1$}{rest}", 1, number.len());
    note.update(&[0; 4], older.as_bytes(), MapFlags::ANY).unwrap();
}

#[test]
fn what_an_earlier_agent_attached_goes_on_until_it_is_replaced() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {dscp: 34}, benign: pass}");
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes");
    lab.ok(&run);
    age(&lab);
    let judged = || lab.send(1000, BENIGN, 3) + lab.send(1000, ATTACK, 3);
    assert_eq!(judged(), 6);
    let swapped = lab.error(&format!("swap --bundle b.wirewise --interface {INTERFACE}"), 1);
    assert!(swapped.contains("another version of wirewised attached this program"), "{swapped}");
    let again = lab.error(&run, 1);
    assert!(again.contains("attached by another version of wirewised; `--replace` changes that"), "{again}");
    assert_eq!(judged(), 6);
    lab.policy("classes: {attack: drop, benign: pass}");
    lab.ok(&format!("{run} --replace"));
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    age(&lab);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.xdp(INTERFACE), None);
}

#[test]
fn under_load_no_packet_goes_unclassified_and_no_flow_state_is_lost() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let before = lab.attach("--policy p.yaml --mode enforce");
    let seen = lab.received();
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.flow(1000).send_during(ATTACK, || {
        for next in ["c.wirewise", "b.wirewise"].repeat(3) {
            let told = lab.json(&format!("swap --bundle {next}"));
            assert_eq!(
                (&told["action"], &told["flows"], &told["counters"]),
                (&"swapped".into(), &"kept".into(), &"kept".into())
            );
            assert_eq!(lab.json("rollback")["action"], "rolled back");
            assert_eq!(lab.json("rollback")["to"]["name"], told["to"]["name"]);
        }
    });
    let (received, stats, flows) = (lab.received() - seen, lab.stats(), flows(&lab));
    assert!(received > 1000, "{received}");
    // The programs count what the driver handed to them: each packet once, with a class, by the model.
    assert_eq!(status(&stats, "classified"), received);
    assert_eq!(stats["classes"][1]["outcomes"]["drop"]["packets"], received);
    assert_eq!(stats["inferred"], received);
    for name in ["undecided", "no_policy", "not_ip", "malformed_ip"] {
        assert_eq!(status(&stats, name), 0, "{name}");
    }
    // One flow, with an entry on each CPU its packets came over; all packets are in its state.
    assert_eq!(sum(&flows, |flow| &flow["packets"]), received);
    assert_eq!(sum(&flows, |flow| &flow["state"]["sum_length"]), received * (ATTACK as u64 + 28));
    assert_eq!(stats["flows"]["new"], flows.len());
    for name in ["expired", "evicted", "refused"] {
        assert_eq!(stats["flows"][name], 0, "{name}");
    }
    let after = lab.status();
    assert_eq!((&after["link_id"], &after["mode"]), (&before["link_id"], &"enforce".into()));
    assert_ne!(after["program_id"], before["program_id"]);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn status_says_what_runs_and_what_ran_and_rollback_goes_back() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let first = lab.attach("--policy p.yaml --mode enforce");
    assert!(lab.error("rollback", 2).contains("nothing ran before that could come back"));
    lab.write("c.wirewise", &lenient());
    assert_eq!(lab.send(1000, ATTACK, 3), 0);

    let plan = lab.json("swap --bundle c.wirewise --dry-run");
    assert_eq!((&plan["action"], &plan["to"]["name"]), (&"would swap".into(), &"second".into()));
    assert_eq!(lab.status()["program_id"], first["program_id"]);
    assert_eq!(directories(&lab), [format!("wirewise/{INTERFACE}")]);

    let told = lab.json(&format!("swap --bundle c.wirewise --interface {INTERFACE}"));
    let status = &told["status"];
    assert_eq!(
        (&status["bundle"]["name"], &status["previous"]["bundle"]["name"]),
        (&"second".into(), &"first".into())
    );
    assert_eq!(status["previous"]["bundle"]["digest"], first["bundle"]["digest"]);
    assert_eq!((&status["previous"]["shares_flows"], &status["mode"]), (&true.into(), &"enforce".into()));
    assert_eq!(
        (&status["classes"][1]["action"], &status["policy"]["file"]),
        (&"drop".into(), &lab.path("p.yaml").display().to_string().into())
    );
    let text = lab.ok("status");
    assert!(text.contains("previous     first, sha256 ") && text.contains("`wirewised rollback`"), "{text}");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    // The bundle that runs already is left alone, and what ran before with it.
    assert_eq!(lab.json("swap --bundle c.wirewise")["action"], "kept");
    // A policy that is changed now is the interface's, so it stays when the model goes back.
    lab.policy("classes: {attack: count}\nallow: {ports: [udp/77]}");
    lab.ok(&format!("run --bundle c.wirewise --interface {INTERFACE} --policy p.yaml --yes"));

    assert_eq!(lab.json("rollback --dry-run")["action"], "would roll back");
    assert_eq!(lab.status()["bundle"]["name"], "second");
    let back = lab.json("rollback")["status"].clone();
    assert_eq!((&back["bundle"]["name"], &back["program_id"]), (&"first".into(), &first["program_id"]));
    assert_eq!(
        (&back["classes"][1]["action"], &back["previous"]["bundle"]["name"]),
        (&"count".into(), &"second".into())
    );
    lab.policy("classes: {attack: drop}");
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn a_policy_that_comes_with_a_swap_goes_with_its_rollback() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/1001]}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/1002]}");
    let sent = |lab: &Lab| [1000, 1001, 1002].map(|port| lab.send(port, ATTACK, 2));
    assert_eq!(sent(&lab), [0, 2, 0]);
    assert_eq!(lab.json("swap --bundle c.wirewise --policy p.yaml")["policy"], "new");
    assert_eq!(sent(&lab), [0, 0, 2]);
    lab.ok("rollback");
    assert_eq!(sent(&lab), [0, 2, 0]);
    lab.ok("rollback");
    assert_eq!(sent(&lab), [0, 0, 2]);
}

#[test]
fn flow_tables_that_do_not_fit_are_refused_by_name_and_reset_when_told() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.send(1000, ATTACK, 3);
    let wide = changed_bundle("wide", &variant("WIDE"), |manifest| {
        manifest["flow"]["layout_digest"] = "1".into();
        manifest["flow"]["entry6_size"] = 96.into();
        let more = serde_json::json!({"name": "more", "type": "u64", "offset": 8});
        manifest["flow"]["state"].as_array_mut().unwrap().push(more);
    });
    lab.write("wide.wirewise", &wide);
    let before = (lab.status(), lab.pinned());
    for arguments in ["swap --bundle wide.wirewise", "swap --bundle wide.wirewise --dry-run"] {
        let error = lab.error(arguments, 1);
        assert!(
            error.contains(
                "wide cannot go on with the flow tables of first: it keeps other state of a flow, with more"
            ),
            "{error}"
        );
        assert!(error.contains("`--reset-flows`"), "{error}");
        assert_eq!((lab.status(), lab.pinned()), before);
    }
    let output = lab.run("swap --bundle wide.wirewise --reset-flows");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success()
            && warning.contains("warning: flows: the flow tables begin empty: it keeps other state"),
        "{warning}"
    );
    assert_eq!(flows(&lab).len(), 0);
    lab.send(1000, ATTACK, 3);
    // The counters have the same classes, so they go on.
    assert_eq!(lab.stats()["classes"][1]["packets"], 6);
    assert_eq!(sum(&flows(&lab), |flow| &flow["state"]["sum_length"]), 3 * (ATTACK as u64 + 28));
    assert_eq!(lab.status()["previous"]["shares_flows"], false);
    lab.ok("rollback");
    assert_eq!(sum(&flows(&lab), |flow| &flow["packets"]), 3);

    let change = |object: &[u8], key: &'static str, value: Value| {
        changed_bundle("other", object, move |manifest| manifest["flow"][key] = value)
    };
    let larger = variant("WW_TABLE_SIZE=2048");
    for (object, key, value, expected) in [
        (data_path().unwrap(), "key", "host-pair".into(), "its flow key is host-pair, not five-tuple"),
        (&larger[..], "table_size", 2048.into(), "it wants 2048 entries a CPU, not 1024"),
    ] {
        lab.write("other.wirewise", &change(object, key, value));
        assert!(lab.error("swap --bundle other.wirewise", 1).contains(expected));
    }
}

#[test]
fn a_flow_keeps_its_verdict_until_the_trigger_fires_again() {
    let Some(lab) = Lab::new() else { return };
    // A flow's packets on another CPU are another flow.
    kernel::pin_to_one_cpu().unwrap();
    lab.policy("classes: {attack: drop}\ntrigger: {packets: [1, 4]}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &lenient());
    let flow = lab.flow(1000);
    assert_eq!(flow.send(ATTACK, 2), 0);
    lab.ok("swap --bundle c.wirewise");
    assert_eq!(lab.send(1001, ATTACK, 1), 1, "a new flow is judged by the new model");
    assert_eq!(flow.send(ATTACK, 1), 0, "packet 3 of the flow");
    assert_eq!(flow.send(ATTACK, 2), 2, "packets 4 and 5");
}

#[test]
fn a_verdict_is_never_taken_for_one_of_another_models_classes() {
    let Some(lab) = Lab::new() else { return };
    // A flow's packets on another CPU are another flow.
    kernel::pin_to_one_cpu().unwrap();
    lab.policy("classes: {attack: drop}\ntrigger: {packets: [1]}\nallow: {ports: [udp/2000]}");
    lab.attach("--policy p.yaml --mode enforce");
    let object = data_path().unwrap();
    // The same model; its class 0, of short packets, has another name.
    lab.write("c.wirewise", &bundle_of_classes("reversed", object, &["attack", "benign"]));
    lab.write("d.wirewise", &bundle_of_classes("third", object, &["attack", "benign", "worm"]));
    let (one, two) = (lab.flow(1000), lab.flow(1001));
    assert_eq!((one.send(BENIGN, 2), two.send(BENIGN, 2)), (2, 2));
    let told = lab.json("swap --bundle c.wirewise");
    assert_eq!((&told["flows"], &told["counters"]), (&"kept".into(), &"from zero".into()));
    let first = &told["status"]["classes"][0];
    assert_eq!((&first["name"], &first["action"]), (&"attack".into(), &"drop".into()));
    // Class 0 of the first model is benign; the second would drop its class 0, but judges the flow's next packet anew.
    assert_eq!(one.send(ATTACK, 2), 2);
    let stats = lab.stats();
    assert_eq!((&stats["inferred"], status(&stats, "undecided")), (&1.into(), 0));
    assert_eq!(stats["classes"][1]["packets"], 2);
    assert_eq!(sum(&flows(&lab), |flow| &flow["packets"]), 6);
    assert_eq!(
        (lab.send(1002, BENIGN, 1), lab.send(2000, BENIGN, 1)),
        (0, 1),
        "policy and allow list go by name"
    );
    // Two swaps later the flow that slept still has the first model's verdict.
    assert_eq!(lab.json("swap --bundle d.wirewise")["new_classes"], serde_json::json!(["worm"]));
    assert_eq!((two.send(ATTACK, 2), one.send(BENIGN, 1)), (2, 0));
    assert_eq!(status(&lab.stats(), "undecided"), 0);
    // Back: the second model's class 1 is benign, the third's too; then the first's, for which class 1 is attack.
    lab.ok("rollback");
    lab.ok("swap --bundle b.wirewise");
    assert_eq!(two.send(BENIGN, 2), 2);
    assert_eq!(status(&lab.stats(), "undecided"), 0);
}

#[test]
fn an_action_for_a_class_that_is_gone_is_not_dropped_silently() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    let before = (lab.status(), lab.pinned());
    lab.write("c.wirewise", &bundle_of_classes("worms", data_path().unwrap(), &["benign", "worm"]));
    let error = lab.error("swap --bundle c.wirewise", 2);
    assert!(
        error.contains("classes that the new bundle has not (attack); it has benign, worm")
            && error.contains("`--policy FILE`"),
        "{error}"
    );
    assert!(lab.error("swap --bundle c.wirewise --policy p.yaml", 2).contains("unknown class 'attack'"));
    assert_eq!((lab.status(), lab.pinned()), before);
    lab.policy("classes: {worm: drop}");
    let status = lab.json("swap --bundle c.wirewise --policy p.yaml --yes")["status"].clone();
    assert_eq!((&status["mode"], &status["classes"][1]["action"]), (&"enforce".into(), &"drop".into()));
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
}

#[test]
fn bad_swaps_change_nothing() {
    let Some(lab) = Lab::new() else { return };
    assert!(lab.error("swap --bundle b.wirewise", 2).contains("nothing is attached under"));
    assert!(lab.error("rollback", 2).contains("nothing is attached under"));
    lab.assert_untouched();
    lab.attach("");
    let before = (lab.status(), lab.pinned());
    let broken = crate::lab::small_path(&["BROKEN"]).unwrap();
    lab.write("other.wirewise", &bundle("other", &broken));
    lab.write("broken.wirewise", &bundle_of_classes("broken", &broken, &["benign", "attack", "worm"]));
    lab.write("object.wirewise", &bundle("no object", b"no ELF"));
    for (file, code, expected) in [
        ("broken", 4, "invalid access to packet"),
        ("other", 2, "its map ww_allow4 has another layout than the one in use"),
        ("object", 2, "object.wirewise: program.bpf.o is no ELF object"),
        ("gone", 2, "gone.wirewise: does not exist"),
    ] {
        let error = lab.error(&format!("swap --bundle {file}.wirewise --reset-flows"), code);
        assert!(error.contains(expected), "{error}");
        assert_eq!((lab.status(), lab.pinned()), before);
    }
}

#[test]
fn a_policy_of_a_swap_locks_nobody_out_unasked() {
    let Some(lab) = Lab::new() else { return };
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    let swap = "swap --bundle c.wirewise --policy p.yaml";
    lab.policy("classes: {attack: drop}\nallow: {ports: [22]}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.policy("classes: {attack: drop}");
    let error = lab.error(swap, 2);
    assert!(error.contains("you may lock yourself out") && error.contains("--yes"), "{error}");
    assert_eq!(lab.status()["bundle"]["name"], "first");
    let plan = lab.run(&format!("{swap} --dry-run"));
    assert!(plan.status.success() && String::from_utf8_lossy(&plan.stderr).contains("lock-out"), "{plan:?}");
    for policy in ["classes: {attack: drop}\nallow: {established: true}", "classes: {attack: count}"] {
        lab.policy(policy);
        lab.ok(swap);
        lab.ok("rollback");
    }
    lab.policy("classes: {attack: drop}");
    lab.ok(&format!("{swap} --yes"));
    assert_eq!(lab.status()["bundle"]["name"], "second");
    // Who observes drops nothing.
    lab.ok("detach --interface ww0");
    lab.attach("");
    lab.ok(swap);
}
