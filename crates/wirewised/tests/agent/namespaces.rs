// SPDX-License-Identifier: Apache-2.0
//! Interfaces of one name in two network namespaces, and interfaces that move from one to the other.

use crate::lab::{Lab, xdp_of};

/// An interface called `vb` in both namespaces.
fn twins() -> Option<Lab> {
    let lab = Lab::new()?;
    for namespace in lab.namespaces() {
        crate::lab::sh(&format!("ip -n {namespace} link add vb type veth peer name vp"));
    }
    Some(lab)
}

#[test]
fn two_interfaces_of_one_name_never_meet() {
    let Some(lab) = twins() else { return };
    let [sender, receiver] = lab.namespaces();
    let run = "run --bundle b.wirewise --interface vb";
    let programs = [sender, receiver].map(|namespace| {
        let status = lab.json(&format!("{run} --netns {namespace}"))["status"].clone();
        (status["program_id"].as_u64().unwrap(), status["pins"].as_str().unwrap().to_owned())
    });
    assert_ne!(programs[0].1, programs[1].1);
    let attached = || [sender, receiver].map(|namespace| xdp_of(namespace, "vb").map(|(_, program)| program));
    assert_eq!(attached(), [Some(programs[0].0), Some(programs[1].0)]);
    for (namespace, (program, _)) in [sender, receiver].into_iter().zip(&programs) {
        let again = lab.json(&format!("{run} --netns {namespace}"));
        assert_eq!(
            (&again["action"], &again["status"]["program_id"]),
            (&"adopted".into(), &(*program).into())
        );
        let stats = lab.json(&format!("stats --interface vb --netns /run/netns/{namespace}"));
        assert_eq!(stats["interface"], "vb");
    }

    lab.ok(&format!("detach --interface vb --netns {receiver}"));
    assert_eq!(attached(), [Some(programs[0].0), None]);
    // The one that is left is not this namespace's.
    for command in ["detach", "stats", "rollback", "swap --bundle b.wirewise"] {
        let error = lab.error(&format!("{command} --interface vb --netns {receiver}"), 2);
        assert!(error.contains("no wirewise program on 'vb' of this network namespace"), "{error}");
        assert!(error.contains(&format!("vb (--netns {sender})")), "{error}");
    }
    let error = lab.error(&format!("swap --bundle b.wirewise --netns {receiver}"), 2);
    assert!(error.contains(&format!("not in this network namespace: vb (--netns {sender})")), "{error}");
    assert_eq!(attached(), [Some(programs[0].0), None]);
    lab.ok(&format!("detach --interface vb --netns {sender}"));
    assert_eq!((attached(), lab.pinned()), ([None, None], Vec::new()));
}

#[test]
fn an_interface_keeps_its_program_when_it_moves() {
    let Some(lab) = Lab::new() else { return };
    let [sender, receiver] = lab.namespaces();
    lab.sh("ip link add vb type veth peer name vp");
    let run = "run --bundle b.wirewise --interface vb";
    let program = lab.json(run)["status"]["program_id"].as_u64().unwrap();
    lab.sh(&format!("ip link set vb netns {sender}"));
    assert_eq!(xdp_of(sender, "vb").unwrap().1, program);
    assert!(lab.error("detach --interface vb", 2).contains(&format!("vb (--netns {sender})")));
    // Another of the name, and one that gives its name away, go beside.
    lab.sh("ip link add vb type veth peer name vp2");
    let other = lab.json(run)["status"]["program_id"].as_u64().unwrap();
    lab.sh("ip link set vb name was-vb");
    assert_eq!(lab.json("status --interface was-vb")["attachments"][0]["program_id"], other);
    assert_eq!(lab.json(&format!("{run} --netns {sender}"))["action"], "adopted");
    lab.ok(&format!("detach --interface vb --netns {sender}"));
    assert_eq!(xdp_of(sender, "vb"), None);
    assert_eq!(xdp_of(receiver, "was-vb").unwrap().1, other);
    lab.ok("detach --interface was-vb");
    lab.assert_untouched();
}

#[test]
fn what_is_no_network_namespace_is_refused() {
    let Some(mut lab) = Lab::new() else { return };
    for command in ["status", "doctor", "stats", "flows", "events", "rollback", "detach --interface lo"] {
        let error = lab.error(&format!("{command} --netns no-such"), 2);
        assert!(error.contains("--netns no-such: no network namespace of this name"), "{error}");
    }
    let mounts = lab.error("status --netns /proc/self/ns/mnt", 2);
    assert!(mounts.contains("/proc/self/ns/mnt is no network namespace"), "{mounts}");
    let [sender, _] = lab.namespaces().map(str::to_owned);
    lab.copy_agent();
    lab.runner = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(String::from).to_vec();
    let error = lab.error(&format!("status --netns {sender}"), 3);
    assert!(error.contains("needs CAP_SYS_ADMIN"), "{error}");
}
