// SPDX-License-Identifier: Apache-2.0
//! Devices that the kernel does not have: DPDK's. What holds of a virtual one holds of a card by its PCI address.

use serde_json::{Value, json};

use crate::carrier::{Carrier, packets, wait};
use crate::lab::{Lab, bundle, variant};

const RUN: &str = "run --bundle b.wirewise --plane dpdk --yes";

fn status(lab: &Lab) -> Value {
    lab.json("status --interface net_null0")["attachments"][0].clone()
}

#[test]
fn a_device_is_operated_by_its_name() {
    let Some(lab) = Lab::new() else { return };
    let dry = lab.ok(&format!("{RUN} --interface net_null0,size=64 --dry-run"));
    assert!(dry.contains("to net_null0 as dpdk") && dry.contains("nothing was changed"), "{dry}");
    lab.assert_untouched();
    // 36 bytes of zeros are no packet that could be classified; it counts them as what they are.
    let carrier = Carrier::on(&lab, "dpdk", "net_null0,size=64", "");
    let strange = || {
        let rows = lab.json("stats --interface net_null0")["status"].as_array().unwrap().clone();
        rows.iter().map(|row| row["packets"].as_u64().unwrap()).sum::<u64>()
    };
    wait("packets are judged", || strange() > 1_000);
    let found = status(&lab);
    assert_eq!((&found["interface"], &found["attached"]), (&json!("net_null0"), &json!(true)));
    assert_eq!((&found["plane_asked"], &found["plane_obtained"]), (&json!("dpdk"), &json!("dpdk")));
    assert!(found["pins"].as_str().unwrap().ends_with("/net_null0"), "{found}");
    wait("it accounts for its buffers", || {
        let lane = status(&lab)["carrier"]["lanes"][0].clone();
        lane["frames"] == 8191 && lane["received"].as_u64() > Some(1_000) && lane["lost"] == 0
    });
    let doctor = lab.ok("doctor --interface net_null0 --plane dpdk");
    assert!(
        doctor.contains("a virtual device of DPDK's (net_null)") && doctor.contains("carried by process"),
        "{doctor}"
    );
    let error = lab.error(&format!("{RUN} --interface net_null0 --flow-table-size 4096"), 1);
    assert!(error.contains("net_null0: wirewise is attached"), "{error}");
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    lab.ok("swap --bundle longer.wirewise --interface net_null0");
    assert_eq!(status(&lab)["bundle"]["name"], "longer");
    let before = strange();
    wait("packets are judged by the second", || strange() > before);
    lab.ok("detach --interface net_null0");
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[test]
fn a_killed_agent_gives_its_device_back_and_the_next_begins_at_once() {
    let Some(lab) = Lab::new() else { return };
    let carrier = Carrier::on(&lab, "dpdk", "net_null0", "--to net_null1");
    carrier.signal(libc::SIGKILL);
    carrier.end();
    assert_eq!(status(&lab)["attached"], false);
    let carrier = Carrier::on(&lab, "dpdk", "net_null0", "--to net_null1,size=128");
    wait("packets are sent on", || {
        let carrier = status(&lab)["carrier"].clone();
        carrier["to"] == "net_null1" && carrier["lanes"][0]["sent"].as_u64() > Some(1_000)
    });
    carrier.signal(libc::SIGTERM);
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[test]
fn packets_of_a_capture_come_by_a_device_too() {
    let Some(lab) = Lab::new() else { return };
    lab.write("c.pcap", &crate::surroundings::capture());
    let carrier = Carrier::on(&lab, "dpdk", "net_pcap0,rx_pcap=c.pcap", "");
    wait("its packet is judged", || packets(&lab, 1) == 1);
    lab.ok("detach --interface net_pcap0");
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[test]
fn devices_that_are_not_there_are_refused() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    for (options, says) in [
        ("--interface net_nil0", "DPDK has no driver here for a device of this name; it has net_af_packet"),
        ("--interface 0000:ff:1f.7", "there is no such PCI device; `lspci -D`"),
        ("--interface net_null0 --to net_null0", "it is the interface itself"),
        ("--interface net_null0 --to nowhere", "no interface 'nowhere'"),
        ("--interface net_null0 --driver net_af_xdp --to net_null1", "a device has its own driver"),
        ("--interface net_null0 --offloads off", "nothing is merged there"),
        ("--interface net_null0 --mode enforce --policy p.yaml", "goes nowhere"),
    ] {
        let error = lab.error(&format!("{RUN} {options}"), 2);
        assert!(error.contains(says), "{options}: {error}");
        lab.assert_untouched();
    }
    let error = lab.error(&format!("{RUN} --interface net_null0,rubbish=1"), 1);
    assert!(error.contains("net_null0,rubbish=1: plugging it in"), "{error}");
    let error = lab.error("run --bundle b.wirewise --interface net_null0 --plane af-packet", 2);
    assert!(error.contains("no interface 'net_null0'"), "{error}");
    let doctor = lab.run("doctor --interface 0000:ff:1f.7 --plane dpdk");
    let said = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.status.code() == Some(3) && said.contains("no such PCI device"), "{said}");
    lab.assert_untouched();
}
