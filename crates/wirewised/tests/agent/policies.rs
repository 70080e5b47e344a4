// SPDX-License-Identifier: Apache-2.0
//! What a policy does to packets, and how it changes while they pass.

use std::process::Command;

use wirewised::kernel;

use crate::lab::{
    ATTACK, BENIGN, INTERFACE, Lab, SENDER, bundle, bundle_of_classes, changed_bundle, data_path,
};

#[test]
fn the_allow_list_is_checked_before_the_model_and_changes_in_place() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/1000]}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (3, 0));
    lab.policy("classes: {attack: drop}\nallow: {ports: [tcp/1000, 1001]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (0, 3));
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.9.0.0/31, 192.0.2.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (3, 3));
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [192.0.2.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    let stats = lab.stats();
    let status = |name: &str| {
        let rows = stats["status"].as_array().unwrap();
        rows.iter().find(|row| row["status"] == name).unwrap()["packets"].as_u64().unwrap()
    };
    assert_eq!((status("allowed_port"), status("allowed_prefix"), status("classified")), (6, 6, 9));
}

#[test]
fn a_narrower_allow_list_takes_the_place_of_a_wider_one() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.0.0.0/8]}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.9.0.0/16]}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
}

#[test]
fn a_rate_limit_lets_the_burst_through() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {action: rate-limit, rate: 1/m, burst: 5}, benign: count}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, ATTACK, 20), lab.send(1000, BENIGN, 20)), (5, 20));
    let outcomes = lab.stats()["classes"][1]["outcomes"].clone();
    assert_eq!((&outcomes["pass"]["packets"], &outcomes["limited"]["packets"]), (&5.into(), &15.into()));
}

#[test]
fn a_drop_begins_with_the_nth_verdict_in_a_row() {
    let Some(lab) = Lab::new() else { return };
    // On each CPU that its packets come over, the flow has an entry of its own.
    kernel::pin_to_one_cpu().unwrap();
    lab.policy("classes: {attack: {action: drop, after: 3}}");
    lab.attach("--policy p.yaml --mode enforce");
    let flow = lab.flow(1000);
    assert_eq!((flow.send(ATTACK, 2), flow.send(BENIGN, 1), flow.send(ATTACK, 10)), (2, 1, 2));
    let classes = lab.stats()["classes"].clone();
    let packets = |class: usize, outcome: &str| classes[class]["outcomes"][outcome]["packets"].clone();
    assert_eq!((packets(0, "pass"), packets(1, "drop")), (5.into(), 8.into()));
    assert_eq!(classes[1]["action"], "drop after 3");
    // A policy in place of another finds ten in a row.
    lab.policy("classes: {attack: {action: drop, after: 15}}");
    lab.attach("--policy p.yaml");
    assert_eq!(flow.send(ATTACK, 10), 4);
    // A program with other classes counts only its own verdicts, under the same policy.
    let other = ["benign", "attack", "worm"];
    lab.write("worms.wirewise", &bundle_of_classes("worms", data_path().unwrap(), &other));
    lab.ok("swap --bundle worms.wirewise");
    assert_eq!(flow.send(ATTACK, 20), 14);
}

#[test]
fn a_changed_rate_starts_afresh_and_an_unchanged_one_goes_on() {
    let Some(lab) = Lab::new() else { return };
    let give = |rate: &str, burst: u32| {
        lab.policy(&format!("classes: {{attack: {{action: rate-limit, rate: {rate}, burst: {burst}}}}}"));
        lab.attach("--policy p.yaml --mode enforce");
    };
    give("1/m", 20);
    assert_eq!(lab.send(1000, ATTACK, 100), 20);
    give("1000/s", 20);
    assert_eq!(lab.send(1000, ATTACK, 15), 15);
    // Slower, and with the debt of before it would not have the whole burst.
    give("1/m", 8);
    assert_eq!(lab.send(1000, ATTACK, 20), 8);
    give("1/m", 8);
    lab.attach("--mode enforce");
    assert_eq!(lab.send(1000, ATTACK, 20), 0);
    give("1/m", 9);
    assert_eq!(lab.send(1000, ATTACK, 20), 9);
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    give("1/m", 9);
    assert_eq!(lab.send(1000, ATTACK, 20), 9);
}

#[test]
fn a_changed_rate_of_events_starts_afresh() {
    let Some(lab) = Lab::new() else { return };
    let sent = || lab.stats()["events"]["sent"].as_u64().unwrap() as usize;
    let events_of = |rate: &str, burst: u32, packets: usize, swap: &str| {
        lab.policy(&format!("classes: {{attack: count}}\nevents: {{rate: {rate}, burst: {burst}}}"));
        match swap {
            "" => drop(lab.attach("--policy p.yaml")),
            bundle => drop(lab.ok(&format!("swap --bundle {bundle} --policy p.yaml"))),
        }
        let before = sent();
        lab.send(1000, ATTACK, packets);
        sent() - before
    };
    // The limit is one of each CPU, and the packets may come over more than one.
    let within = |burst: usize, packets: usize| burst..=packets.min(burst * 2);
    assert!(within(3, 40).contains(&events_of("1/m", 3, 40, "")));
    assert_eq!(events_of("1000/s", 50, 40, ""), 40);
    assert!(within(3, 40).contains(&events_of("1/m", 3, 40, "")));
    assert!(events_of("1/m", 3, 40, "") <= 3, "the same limit goes on");
    lab.write("second.wirewise", &bundle("second", data_path().unwrap()));
    assert_eq!(events_of("1000/s", 50, 40, "second.wirewise"), 40);
    lab.ok("rollback");
    let before = sent();
    lab.send(1000, ATTACK, 40);
    // What runs again has its own limit of before.
    assert!(within(3, 40).contains(&(sent() - before)));
}

#[test]
fn enforcing_without_an_allow_list_is_refused_unless_told() {
    let Some(lab) = Lab::new() else { return };
    let run = "run --bundle b.wirewise --interface ww0 --policy p.yaml";
    lab.policy("classes: {attack: drop}");
    let error = lab.error(&format!("{run} --mode enforce"), 2);
    assert!(
        error.contains("you may lock yourself out") && error.contains("--allow-current-session"),
        "{error}"
    );
    lab.assert_untouched();
    let plan = lab.run(&format!("{run} --mode enforce --dry-run"));
    assert!(plan.status.success() && String::from_utf8_lossy(&plan.stderr).contains("lock-out"), "{plan:?}");
    // Observing locks nobody out, and neither does what is attached already.
    lab.ok(run);
    let error = lab.error("run --bundle b.wirewise --interface ww0 --mode enforce", 2);
    assert!(error.contains("you may lock yourself out"), "{error}");
    assert_eq!(lab.status()["mode"], "observe");
    lab.ok(&format!("{run} --mode enforce --yes"));
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    lab.ok("detach --interface ww0");

    for policy in ["classes: {attack: drop}\nallow: {ports: [22]}", "classes: {attack: count}"] {
        lab.policy(policy);
        lab.ok(&format!("{run} --mode enforce"));
        lab.ok("detach --interface ww0");
    }
}

#[test]
fn the_current_session_is_allowed_also_behind_sudo() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let run =
        "run --bundle b.wirewise --interface ww0 --policy p.yaml --mode enforce --allow-current-session";
    let none = lab.command(run).env_remove("SSH_CONNECTION").output().unwrap();
    if !none.status.success() {
        let error = String::from_utf8_lossy(&none.stderr);
        assert!(
            none.status.code() == Some(2) && error.contains("nobody is logged in here over SSH"),
            "{error}"
        );
        lab.assert_untouched();
    }
    // As sudo does it: the variable is the parent's.
    let agent = lab.command(run);
    let words: Vec<_> = std::iter::once(agent.get_program()).chain(agent.get_args()).collect();
    let command = words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
    let script = format!("env -u SSH_CONNECTION {command}; exit $?");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("SSH_CONNECTION", format!("{SENDER} 50022 10.9.0.2 22"));
    let output = shell.current_dir(lab.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("10.9.0.1, where you are logged in from (SSH_CONNECTION of process"), "{said}");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
}

#[test]
fn dhcp_passes_whatever_the_model_says_unless_the_policy_drops_it() {
    let Some(lab) = Lab::new() else { return };
    let send = |essential: &str| {
        lab.policy(&format!("classes: {{attack: drop}}\nessential: {essential}"));
        lab.attach("--policy p.yaml --mode enforce");
        (lab.send_between(67, 68, ATTACK, 3), lab.send_between(66, 68, ATTACK, 3))
    };
    assert_eq!(send("pass"), (3, 0));
    let stats = lab.stats();
    let rows = stats["status"].as_array().unwrap().iter();
    let essential: Vec<_> = rows.filter(|row| row["status"] == "allowed_essential").collect();
    assert_eq!(essential[0]["packets"], 3);
    assert_eq!(send("drop"), (0, 0));
}

#[test]
fn replies_are_allowed_by_their_source_port() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {source_ports: [udp/53]}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send_between(53, 1000, ATTACK, 3), lab.send_between(54, 1000, ATTACK, 3)), (3, 0));
    lab.policy("classes: {attack: drop}\nallow: {source_ports: [tcp/53, 54]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send_between(53, 1000, ATTACK, 3), lab.send_between(54, 1000, ATTACK, 3)), (0, 3));
}

#[test]
fn enforce_needs_a_policy() {
    let Some(lab) = Lab::new() else { return };
    let error = lab.error("run --bundle b.wirewise --interface ww0 --mode enforce", 2);
    assert!(error.contains("--mode enforce needs --policy FILE"), "{error}");
    lab.assert_untouched();
    lab.attach("");
    let error = lab.error("run --bundle b.wirewise --interface ww0 --mode enforce", 2);
    assert!(error.contains("--mode enforce needs --policy FILE"), "{error}");
    assert_eq!(lab.status()["mode"], "observe");
}

#[test]
fn a_policy_that_acts_sooner_than_the_bundle_was_set_for_is_warned_of() {
    let Some(lab) = Lab::new() else { return };
    let point = serde_json::json!({"operating_point": {"after": 2}});
    lab.write(
        "b.wirewise",
        &changed_bundle("first", data_path().unwrap(), |manifest| manifest["fidelity"] = point.clone()),
    );
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --dry-run");
    for (attack, warned) in [("drop", true), ("{action: drop, after: 2}", false), ("count", false)] {
        lab.policy(&format!("classes: {{attack: {attack}}}"));
        let output = lab.run(&run);
        assert!(output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.contains("p.yaml acts on attack after fewer verdicts in a row"), warned, "{said}");
        assert_eq!(said.contains("`attack: {action: drop, after: 2}` in the policy"), warned, "{said}");
    }
}
