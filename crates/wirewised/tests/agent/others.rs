// SPDX-License-Identifier: Apache-2.0
//! Programs of others on the interface, and agents that are not root.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;

use wirewised::abi::Hook;
use wirewised::kernel::objects;
use wirewised::object::{Opened, Runs, Settings};
use wirewised::plane::{Joining, Plane, Port};

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle_of_classes, data_path, small_path};

/// A loaded program that the agent knows nothing of.
fn foreign_program() -> OwnedFd {
    let mut opened = Opened::open("other", &small_path(&[]).unwrap()).unwrap();
    opened.prepare(&Settings::live(Runs::InKernel(Hook::Xdp)).unwrap()).unwrap();
    let loaded = opened.load().unwrap();
    loaded.entry().unwrap().as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn a_program_of_somebody_else_is_only_replaced_when_told() {
    let Some(lab) = Lab::new() else { return };
    let program = foreign_program();
    let id = objects::program_info(program.as_fd()).unwrap().id;
    for with_link in [false, true] {
        let index = lab.enter(|| wirewised::interface::netdev::index(INTERFACE).unwrap());
        let link = lab.enter(|| {
            if with_link {
                return Some(
                    Plane::XDP_GENERIC
                        .attach(program.as_fd(), Port::Interface(index), Joining::default())
                        .unwrap(),
                );
            }
            Plane::XDP_GENERIC.attach_without_link(program.as_fd(), index).unwrap();
            None
        });
        let run = format!("run --bundle b.wirewise --interface {INTERFACE}");
        let error = lab.error(&run, 1);
        assert!(error.contains(&format!("{INTERFACE} is taken: program {id} (ww_main)")), "{error}");
        assert!(error.contains("--replace"), "{error}");
        assert_eq!((lab.xdp(INTERFACE), lab.pinned()), (Some((2, id.into())), Vec::new()));

        let plan = lab.ok(&format!("{run} --replace --dry-run"));
        assert!(plan.contains(&format!("take program {id} (ww_main) off {INTERFACE}")), "{plan}");
        assert_eq!(lab.xdp(INTERFACE), Some((2, id.into())));

        assert_eq!(lab.json(&format!("{run} --replace"))["action"], "replaced");
        assert_eq!(lab.xdp(INTERFACE).unwrap().0, 1);
        lab.ok(&format!("detach --interface {INTERFACE}"));
        lab.assert_untouched();
        drop(link);
    }
}

#[test]
fn what_was_there_comes_back_if_ours_cannot_be_attached() {
    let Some(lab) = Lab::new() else { return };
    let program = foreign_program();
    lab.enter(|| {
        let index = wirewised::interface::netdev::index(INTERFACE).unwrap();
        Plane::XDP_GENERIC.attach_without_link(program.as_fd(), index).unwrap();
    });
    let before = lab.xdp(INTERFACE);
    lab.sender_sh("ip link set ww1 mtu 9000");
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --replace");
    assert!(lab.error(&run, 3).contains("the driver refuses native XDP"));
    assert_eq!(lab.xdp(INTERFACE), before);
    assert_eq!(lab.pinned(), [""; 0]);
    // The same for one of ours in the other plane.
    lab.attach("--plane xdp-generic --replace");
    let ours = lab.xdp(INTERFACE);
    let pinned = lab.pinned();
    assert!(lab.error(&run, 3).contains("the driver refuses native XDP"));
    assert_eq!((lab.xdp(INTERFACE), lab.pinned()), (ours, pinned));
    assert_eq!(lab.status()["attached"], true);
}

#[test]
fn files_may_have_any_name_in_any_locale() {
    let Some(lab) = Lab::new() else { return };
    let (bundle, policy) = ("une forêt, l'été.wirewise", "à moi.yaml");
    lab.write(bundle, &std::fs::read(lab.path("b.wirewise")).unwrap());
    lab.policy("classes: {attack: drop}");
    std::fs::rename(lab.path("p.yaml"), lab.path(policy)).unwrap();
    let output = lab
        .command(&format!("run --interface {INTERFACE} --mode enforce --yes --json"))
        .args(["--bundle", bundle, "--policy", policy])
        .env("LC_ALL", "POSIX")
        .env_remove("HOME")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    let status = lab.status();
    assert!(status["policy"]["file"].as_str().unwrap().ends_with(policy), "{status}");
    // A shadow needs the first's bundle again, by the name it remembers.
    lab.ok("swap --shadow --bundle b.wirewise");
    assert_eq!(lab.status()["shadow"]["bundle"]["name"], "first");
}

/// The agent as user 65534 with nothing but some capabilities.
fn with_capabilities(lab: &mut Lab, capabilities: &str) {
    let list = capabilities.split(',').map(|name| format!("+{name}")).collect::<Vec<_>>().join(",");
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    lab.runner = words.map(String::from).to_vec();
    lab.runner.extend([format!("--inh-caps=-all,{list}"), format!("--ambient-caps=-all,{list}")]);
}

#[test]
fn three_capabilities_are_enough_and_a_missing_one_is_named() {
    let Some(mut lab) = Lab::new() else { return };
    lab.copy_agent();
    lab.policy("classes: {attack: drop}");
    std::fs::create_dir(lab.pins()).unwrap();
    with_capabilities(&mut lab, "bpf,net_admin,perfmon");
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes");
    let error = lab.error(&run, 3);
    assert!(error.contains("is not writable for this user") && error.contains("chown"), "{error}");

    chown(lab.pins(), Some(65534), Some(65534)).unwrap();
    assert_eq!(lab.json(&run)["status"]["plane_obtained"], "xdp-native");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    assert_eq!(lab.stats()["classes"][1]["outcomes"]["drop"]["packets"], 3);
    assert_eq!(lab.json("flows")["found"], 2);
    assert_eq!(lab.ok("events --json").lines().count(), 3);
    assert_eq!(lab.json(&run)["action"], "adopted");
    lab.write("c.wirewise", &bundle_of_classes("other", data_path().unwrap(), &["attack", "benign"]));
    assert_eq!(lab.json("swap --bundle c.wirewise")["flows"], "kept");
    assert_eq!(lab.json("rollback")["status"]["bundle"]["name"], "first");
    assert_eq!(lab.json(&format!("{run} --replace --flow-table-size 2048"))["action"], "replaced");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!((lab.xdp(INTERFACE), lab.pinned()), (None, Vec::new()));

    for (left, missing) in
        [("net_admin,perfmon", "CAP_BPF"), ("bpf,perfmon", "CAP_NET_ADMIN"), ("bpf,net_admin", "CAP_PERFMON")]
    {
        with_capabilities(&mut lab, left);
        let error = lab.error(&run, 3);
        assert!(error.contains(&format!("{missing} is missing")), "{error}");
        assert!(
            !["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]
                .iter()
                .any(|name| *name != missing && error.contains(&format!("{name} is missing")))
        );
        assert_eq!((lab.xdp(INTERFACE), lab.pinned()), (None, Vec::new()));
    }
}

#[test]
fn doctor_finds_what_run_would_stumble_over() {
    let Some(lab) = Lab::new() else { return };
    let report = lab.json(&format!("doctor --interface {INTERFACE}"));
    assert_eq!(report["ready"], true);
    let found = |report: &serde_json::Value, check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).unwrap()["level"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for check in
        ["kernel", "CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "bpffs", "interface", "native", "programs"]
    {
        assert_eq!(found(&report, check), "ok", "{check}");
    }
    lab.attach("");
    assert_eq!(found(&lab.json(&format!("doctor --interface {INTERFACE}")), "programs"), "ok");
    // For an agent that keeps its pins elsewhere, ours is somebody else's.
    let elsewhere =
        lab.run(&format!("doctor --interface {INTERFACE} --json --pin-root {}/other", lab.pins().display()));
    assert_eq!(elsewhere.status.code(), Some(3));
    let report = serde_json::from_slice(&elsewhere.stdout).unwrap();
    assert_eq!(found(&report, "programs"), "error");

    let lo = lab.run("doctor --interface lo --json");
    assert_eq!(lo.status.code(), Some(3));
    assert_eq!(found(&serde_json::from_slice(&lo.stdout).unwrap(), "native"), "error");
    assert_eq!(lab.json("doctor --interface lo --plane xdp-generic")["ready"], true);
}
