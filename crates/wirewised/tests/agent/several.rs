// SPDX-License-Identifier: Apache-2.0
//! Several interfaces in one command.

use serde_json::{Value, json};

use crate::lab::{
    ATTACK, BENIGN, FAR, INTERFACE, Lab, Namespace, SECOND, SENDER, bind, bundle, second, variant,
};
use crate::shadow::wide;

fn both(lab: &Lab, arguments: &str) -> Value {
    lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE},{SECOND} {arguments} --yes"))["interfaces"].take()
}

fn attached(lab: &Lab) -> [bool; 2] {
    [INTERFACE, SECOND].map(|interface| lab.xdp(interface).is_some())
}

/// A datagram from one host behind the router to the other, and an answer.
fn there_and_back(lab: &Lab, far: &Namespace) {
    let (near, beyond) = (lab.enter_sender(|| bind(SENDER, 2000)), far.enter(|| bind(FAR, 1000)));
    let mut data = [0; 2048];
    let patience = Some(crate::quiet::PATIENCE);
    for socket in [&near, &beyond] {
        socket.set_read_timeout(patience).unwrap();
    }
    near.send_to(&[0; BENIGN], (FAR, 1000)).unwrap();
    let (_, from) = beyond.recv_from(&mut data).unwrap();
    beyond.send_to(&[0; BENIGN], from).unwrap();
    near.recv_from(&mut data).unwrap();
}

#[test]
fn all_interfaces_or_none() {
    let Some(lab) = Lab::new() else { return };
    let far = second(&lab);
    let dry = lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE},{SECOND} --dry-run"));
    assert_eq!(dry["interfaces"].as_array().unwrap().len(), 2);
    assert_eq!(attached(&lab), [false; 2]);
    for (names, why) in [
        ("ww0,ww2,ww9", "ww9"),
        ("ww0,wlan*", "no interface matches 'wlan*'; there are: "),
        ("ww0,", "a name is missing"),
    ] {
        let error = lab.error(&format!("run --bundle b.wirewise --interface {names}"), 2);
        assert!(error.contains(why), "{error}");
        lab.assert_untouched();
    }
    // The driver refuses a program where the other end sends longer frames, which shows only when the first interface is attached.
    far.sh("ip link set far0 mtu 9000");
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE},{SECOND}"), 3);
    assert!(error.contains(&format!("{SECOND}: the driver refuses native XDP")), "{error}");
    lab.assert_untouched();
    // What was there before stays, with its new policy, and is named.
    lab.attach("");
    lab.policy("classes: {attack: count}");
    let error =
        lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE},{SECOND} --policy p.yaml"), 3);
    assert!(
        error.contains(&format!("{SECOND}: the driver")) && error.contains("ww0 is adopted all the same"),
        "{error}"
    );
    assert_eq!(attached(&lab), [true, false]);
    far.sh("ip link set far0 mtu 1500");
    both(&lab, "");
    assert_eq!(attached(&lab), [true; 2]);
    let error = lab.error(&format!("detach --interface {INTERFACE},ww9"), 2);
    assert!(error.contains("ww9"), "{error}");
    assert_eq!(attached(&lab), [true; 2]);
    assert_eq!(lab.json("detach --interface ww?")["interfaces"].as_array().unwrap().len(), 2);
    lab.assert_untouched();
}

#[test]
fn both_directions_of_a_router_meet_in_one_set_of_tables() {
    let Some(lab) = Lab::new() else { return };
    let far = second(&lab);
    let names = format!("--interface {INTERFACE},{SECOND}");
    let ours = both(&lab, "--share-flows");
    assert_eq!(ours[0]["status"]["interface"], INTERFACE);
    let status = lab.json(&format!("status {names}"))["attachments"].take();
    assert_eq!(
        [0, 1].map(|at: usize| status[at]["shares_flows_with"].clone()),
        [json!([SECOND]), json!([INTERFACE])]
    );
    there_and_back(&lab, &far);
    // Each direction is a flow of this bundle, and either interface shows both.
    let flows = |interface| lab.json(&format!("flows --interface {interface}"))["found"].as_u64().unwrap();
    assert_eq!((flows(INTERFACE), flows(SECOND)), (2, 2));
    let stats = lab.json(&format!("stats {names}"));
    let packets = |of: &Value| of["classes"][0]["packets"].as_u64().unwrap();
    assert_eq!([0, 1].map(|at: usize| packets(&stats["interfaces"][at])), [1, 1]);
    assert_eq!((packets(&stats["total"]), &stats["total"]["flows"]["new"]), (2, &json!(2)));
    assert!(lab.error("stats --interface ww* --watch", 2).contains("looks at one interface"));
    assert!(lab.error("flows --interface ww*", 2).contains("this command looks at one"));
    // The same command again goes on with both; one that has tables of its own cannot join.
    assert_eq!(both(&lab, "--share-flows")[1]["action"], "adopted");
    lab.ok(&format!("detach --interface {SECOND}"));
    lab.json(&format!("run --bundle b.wirewise --interface {SECOND}"));
    let error = lab.error(&format!("run --bundle b.wirewise {names} --share-flows"), 2);
    assert!(error.contains(&format!("{SECOND} is attached with flow tables of its own")), "{error}");
    lab.ok(&format!("detach --interface {SECOND}"));
    assert_eq!(both(&lab, "--share-flows")[1]["action"], "attached");
    assert_eq!((flows(INTERFACE), flows(SECOND)), (2, 2));
    lab.ok("detach --interface ww*");
    lab.assert_untouched();
}

#[test]
fn a_swap_takes_place_on_all_interfaces_or_on_none() {
    let Some(lab) = Lab::new() else { return };
    let far = second(&lab);
    both(&lab, "--share-flows");
    there_and_back(&lab, &far);
    lab.write("new.wirewise", &bundle("second", &variant("BORDER=1000")));
    let running = || {
        let all = lab.json("status")["attachments"].take();
        [0, 1].map(|at: usize| all[at]["bundle"]["name"].as_str().unwrap().to_string())
    };
    // What the bundle cannot keep is refused before either changes.
    lab.write("wide.wirewise", &wide("wide"));
    assert!(!lab.run("swap --interface ww* --bundle wide.wirewise").status.success());
    let error = lab.error("swap --interface ww0 --bundle wide.wirewise --reset-flows", 2);
    assert!(error.contains("ww0 shares its flow tables with ww2"), "{error}");
    assert_eq!(running(), ["first", "first"]);
    let told = lab.json("swap --interface ww* --bundle new.wirewise")["interfaces"].take();
    assert_eq!([0, 1].map(|at: usize| told[at]["action"].clone()), [json!("swapped"), json!("swapped")]);
    assert_eq!(running(), ["second", "second"]);
    // Flows go on, in one set of tables.
    let flows = |interface| lab.json(&format!("flows --interface {interface}"))["found"].as_u64().unwrap();
    assert_eq!((flows(INTERFACE), flows(SECOND)), (2, 2));
    assert_eq!(lab.send(1000, ATTACK, 1), 1);
    assert_eq!(flows(SECOND), 3);
    lab.json("rollback --interface ww*");
    assert_eq!(running(), ["first", "first"]);
    lab.ok("detach --interface ww*");
    lab.assert_untouched();
}
