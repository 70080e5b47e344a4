// SPDX-License-Identifier: Apache-2.0
//! A second model beside the first: it sees the same packets and changes nothing.

use serde_json::{Value, json};
use wirewised::kernel;

use crate::carrier::wait;
use crate::lab::{
    ATTACK, BENIGN, INTERFACE, Lab, bundle, bundle_of_classes, changed_bundle, data_path, variant,
};
use crate::swap::{directories, flows, lenient, status, sum};

fn shadow(lab: &Lab) -> Value {
    lab.stats()["shadow"].clone()
}

pub fn wide(name: &str) -> Vec<u8> {
    changed_bundle(name, &variant("WIDE"), |manifest| {
        manifest["flow"]["layout_digest"] = "1".into();
        manifest["flow"]["entry6_size"] = 96.into();
        let more = json!({"name": "more", "type": "u64", "offset": 8});
        manifest["flow"]["state"].as_array_mut().unwrap().push(more);
    })
}

#[test]
fn it_changes_no_verdict_and_counts_where_the_models_disagree() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/2000]}");
    let first = lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &lenient());
    assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 2)), (2, 0));
    assert_eq!(shadow(&lab), Value::Null);
    let before = lab.pinned();
    assert_eq!(lab.json("swap --shadow --bundle c.wirewise --dry-run")["action"], "would shadow");
    assert_eq!((lab.status()["program_id"].clone(), lab.pinned()), (first["program_id"].clone(), before));

    let told = lab.json("swap --shadow --bundle c.wirewise");
    assert_eq!((&told["action"], &told["status"]["bundle"]["name"]), (&"shadowing".into(), &"first".into()));
    assert_eq!(told["flow_table_bytes"], first["flow_tables"]["bytes"]);
    let sent = [(1000, BENIGN, 7), (1000, ATTACK, 5), (2000, ATTACK, 3)]
        .map(|(port, payload, count)| lab.send(port, payload, count));
    assert_eq!(sent, [7, 0, 3]);
    let found = shadow(&lab);
    assert_eq!((&found["packets"], &found["agree"], &found["disagree"]), (&12.into(), &7.into(), &5.into()));
    assert_eq!(found["pairs"][0], json!({"first": "benign", "shadow": "benign", "packets": 7}));
    assert_eq!(found["pairs"][1], json!({"first": "attack", "shadow": "benign", "packets": 5}));
    // The first counts on, in the same counters and flow tables.
    let stats = lab.stats();
    assert_eq!((&stats["classes"][0]["packets"], &stats["classes"][1]["packets"]), (&9.into(), &7.into()));
    assert_eq!(sum(&flows(&lab), |flow| &flow["packets"]), 16);
    assert!(lab.ok("status").contains("shadow       second agrees on 7 of 12 packets (58.33 %)"));
    let text = lab.ok("stats");
    assert!(text.contains("shadow disagrees") && text.contains("attack"), "{text}");
    // A policy that is changed now holds for both.
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/2001]}");
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml"));
    assert_eq!((lab.send(2001, ATTACK, 1), lab.send(2000, ATTACK, 1)), (1, 0));
    assert_eq!(shadow(&lab)["packets"], 13);

    let ended = lab.json("swap --no-shadow");
    assert_eq!((&ended["agreement"]["packets"], &ended["status"]["shadow"]), (&13.into(), &Value::Null));
    assert_eq!(ended["status"]["program_id"], first["program_id"]);
    assert_eq!(directories(&lab), [format!("wirewise/{INTERFACE}")]);
    assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 2)), (2, 0));
    assert!(lab.error("swap --no-shadow", 2).contains("no shadow runs here"));
    assert!(lab.error("swap --promote", 2).contains("no shadow runs here"));
    lab.ok("swap --shadow --bundle c.wirewise");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn a_model_agrees_with_itself_on_every_packet() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.ok("swap --shadow --bundle b.wirewise");
    lab.send(1000, BENIGN, 500);
    lab.send(1000, ATTACK, 500);
    let found = shadow(&lab);
    assert_eq!(
        (&found["packets"], &found["agree"], &found["disagree"]),
        (&1000.into(), &1000.into(), &0.into())
    );
}

#[test]
fn the_shadow_takes_over_and_the_first_comes_back() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let first = lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &lenient());
    lab.send(1000, ATTACK, 4);
    lab.ok("swap --shadow --bundle c.wirewise");
    let told = lab.json("swap --promote");
    assert_eq!((&told["to"]["name"], &told["flows"]), (&"second".into(), &"kept".into()));
    assert_eq!(
        (&told["status"]["shadow"], &told["status"]["previous"]["bundle"]["name"]),
        (&Value::Null, &"first".into())
    );
    assert_eq!(directories(&lab), ["", "::previous"].map(|beside| format!("wirewise/{INTERFACE}{beside}")));
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    assert_eq!(sum(&flows(&lab), |flow| &flow["packets"]), 7);
    assert_eq!(lab.json("rollback")["status"]["program_id"], first["program_id"]);
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    // A swap and a rollback end a shadow too.
    for next in ["swap --bundle c.wirewise", "rollback"] {
        let bundle = if next == "rollback" { "c.wirewise" } else { "b.wirewise" };
        lab.ok(&format!("swap --shadow --bundle b.wirewise --running {bundle}"));
        lab.ok(next);
        assert_eq!(lab.status()["shadow"], Value::Null);
        assert!(!lab.pins().join(format!("{INTERFACE}::shadow")).exists());
    }
}

#[test]
fn a_shadow_with_another_flow_layout_brings_its_own_flows() {
    let Some(lab) = Lab::new() else { return };
    kernel::pin_to_one_cpu().unwrap();
    lab.policy("classes: {attack: drop}\ntrigger: {packets: [2]}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("wide.wirewise", &wide("wide"));
    let flow = lab.flow(1000);
    flow.send(ATTACK, 1);
    lab.ok("swap --shadow --bundle wide.wirewise");
    flow.send(ATTACK, 2);
    // The first knows three packets of the flow, and judged the second; for the shadow it is its second that is the third.
    let pairs = json!([
        {"first": "attack", "shadow": "attack", "packets": 1},
        {"first": "attack", "shadow": "(none)", "packets": 1},
    ]);
    assert_eq!(shadow(&lab)["pairs"], pairs);
    let told = lab.json("swap --promote");
    assert_eq!(told["flows"], "those of the shadow");
    assert!(told["differences"][0].as_str().unwrap().contains("other state of a flow"), "{told}");
    let found = flows(&lab);
    assert_eq!((found.len(), sum(&found, |flow| &flow["packets"])), (1, 2));
    // Its verdict is kept, so the flow's next packet is dropped without the model.
    let before = lab.stats();
    assert_eq!(flow.send(ATTACK, 1), 0);
    let after = lab.stats();
    assert_eq!(
        (&after["inferred"], status(&after, "undecided")),
        (&before["inferred"], status(&before, "undecided"))
    );
    lab.ok("rollback");
    assert_eq!(sum(&flows(&lab), |flow| &flow["packets"]), 3);
}

#[test]
fn other_classes_are_compared_by_name() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.write(
        "c.wirewise",
        &bundle_of_classes("reversed", data_path().unwrap(), &["attack", "benign", "worm"]),
    );
    lab.ok("swap --shadow --bundle c.wirewise");
    lab.send(1000, BENIGN, 3);
    lab.send(1000, ATTACK, 2);
    let found = shadow(&lab);
    assert_eq!((&found["agree"], &found["disagree"]), (&0.into(), &5.into()));
    assert_eq!(found["pairs"][0], json!({"first": "benign", "shadow": "attack", "packets": 3}));
}

#[test]
fn both_models_together_make_as_many_tail_calls_as_the_kernel_allows() {
    let Some(lab) = Lab::new() else { return };
    let chain = |name: &str, define: &str| bundle(name, &variant(define));
    lab.write("b.wirewise", &chain("first", "CHAIN=16"));
    lab.write("c.wirewise", &chain("second", "CHAIN=16"));
    lab.write("d.wirewise", &chain("third", "CHAIN=17"));
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    let before = (lab.status(), lab.pinned());
    let error = lab.error("swap --shadow --bundle d.wirewise", 2);
    assert!(error.contains("together they are 34 tail calls, and the kernel allows 33"), "{error}");
    assert_eq!((lab.status(), lab.pinned()), before);
    lab.ok("swap --shadow --bundle c.wirewise");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 2)), (3, 0));
    let found = shadow(&lab);
    assert_eq!((&found["agree"], &found["disagree"]), (&5.into(), &0.into()));
}

#[test]
fn the_file_of_what_runs_is_needed_and_can_be_named() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.write("c.wirewise", &lenient());
    std::fs::rename(lab.path("b.wirewise"), lab.path("moved.wirewise")).unwrap();
    let before = (lab.status(), lab.pinned());
    let error = lab.error("swap --shadow --bundle c.wirewise", 2);
    assert!(
        error.contains("needs the file of the bundle that runs, first") && error.contains("`--running FILE`"),
        "{error}"
    );
    let error = lab.error("swap --shadow --bundle c.wirewise --running c.wirewise", 2);
    assert!(error.contains("is another bundle now"), "{error}");
    assert_eq!((lab.status(), lab.pinned()), before);
    lab.ok("swap --shadow --bundle c.wirewise --running moved.wirewise");
    assert_eq!(lab.status()["shadow"]["bundle"]["name"], "second");
}

#[test]
fn under_load_shadows_come_and_go_without_a_trace() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &lenient());
    let seen = lab.received();
    lab.flow(1000).send_during(ATTACK, || {
        for _ in 0..4 {
            lab.ok("swap --shadow --bundle c.wirewise");
            wait("the shadow sees packets", || shadow(&lab)["disagree"].as_u64().unwrap() > 0);
            let found = lab.json("swap --no-shadow")["agreement"].clone();
            assert_eq!(found["agree"], 0, "{found}");
            assert!(found["disagree"].as_u64().unwrap() > 0, "{found}");
        }
    });
    let (received, stats, found) = (lab.received() - seen, lab.stats(), flows(&lab));
    assert_eq!((status(&stats, "classified"), &stats["inferred"]), (received, &received.into()));
    assert_eq!(sum(&found, |flow| &flow["packets"]), received);
    assert_eq!(sum(&found, |flow| &flow["state"]["sum_length"]), received * (ATTACK as u64 + 28));
}

#[test]
fn killed_while_it_begins_or_ends_nothing_stays_behind() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &bundle("second", &variant("BORDER=1000")));
    let start = std::time::Instant::now();
    lab.ok("swap --shadow --bundle c.wirewise");
    let whole = start.elapsed();
    let mut seen = [0; 2];
    for kill in 0.. {
        // Longer and longer, for a machine that gets slower meanwhile.
        if kill >= 30 && (kill == 150 || seen.iter().all(|count| *count > 0)) {
            break;
        }
        let running = !lab.status()["shadow"].is_null();
        let next = if running { "swap --no-shadow" } else { "swap --shadow --bundle c.wirewise" };
        let mut child =
            lab.command(&format!("{next} --json")).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * kill / 15);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lab.send(1000, ATTACK, 1), 0, "kill {kill}");
        seen[usize::from(lab.status()["shadow"].is_null() == running)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE}"));
    let shadowed = !lab.status()["shadow"].is_null();
    assert_eq!(directories(&lab).len(), if shadowed { 2 } else { 1 }, "{:?}", directories(&lab));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}
