// SPDX-License-Identifier: Apache-2.0
//! Packets carried over AF_XDP sockets, and what stays of them.

use super::*;

#[test]
fn af_xdp_over_veth() {
    let _alone = alone();
    let _world = World::new(1);
    for round in 0..2 {
        let begun = Instant::now();
        let result = through("net_af_xdp0,iface=in", "net_af_xdp1,iface=out", 1, 50_000, 16);
        println!("net_af_xdp, one lane, round {round}: {:?}", begun.elapsed());
        println!("kept by the driver: opened {:?}, closed {:?}", result.opened, dpdk::closed());
        // The driver does not return what lay in the kernel's rings; more than these hold must not be
        // missing.
        assert_eq!(result.opened.in_use, 2 * 2048);
        assert!(dpdk::closed().in_use <= 2 * (2048 + 2048));
        check_through(&result, 50_000);
        assert!(!program(M, "in") && !program(M, "out"), "an XDP program stayed");
        assert!(!promiscuous(M, "in"));
        assert!(!forgotten(), "sockets or mappings stayed");
    }
}

/// AF_XDP sockets' rings are mapped still.
fn forgotten() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("socket:[")
}

#[test]
fn af_xdp_keeps_nothing_of_the_system() {
    let _alone = alone();
    let _world = World::new(1);
    let state = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or("").to_string();
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        (files, maps, line("VmPin"), line("VmRSS"))
    };
    let mut before = None;
    for round in 0..12 {
        let mut lanes =
            inside(M, || dpdk::open("net_af_xdp0,iface=in", Some("net_af_xdp1,iface=out"), 1).unwrap());
        lanes[0].turn(&mut All(true), Duration::from_millis(10)).unwrap();
        drop(lanes);
        println!("{round}: {:?}", state());
        // The first rounds load libraries.
        if round == 3 {
            before = Some(state());
        }
    }
    let (before, after) = (before.unwrap(), state());
    // libxdp 1.3 keeps two files of each device it served; eight rounds, two devices.
    assert!(after.0 <= before.0 + 8 * 2 * 2);
    assert!(after.1 <= before.1 + 2);
}

#[test]
fn af_xdp_two_lanes_are_refused_on_veth() {
    let _alone = alone();
    let _world = World::new(2);
    // A veth has no combined channels, so the driver sees one queue however many there are.
    for device in ["net_af_xdp0,iface=in", "net_af_xdp0,iface=in,queue_count=2"] {
        let error = inside(M, || dpdk::open(device, None, 2).err().unwrap());
        println!("{error}");
        assert!(error.contains("queue"));
    }
}

/// Not a test by itself: holds AF_XDP devices until it is killed.
#[test]
#[ignore]
fn child() {
    if std::env::var("WWD_DPDK_CHILD").is_err() {
        return;
    }
    let mut lanes =
        inside(M, || dpdk::open("net_af_xdp0,iface=in", Some("net_af_xdp1,iface=out"), 1).unwrap());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        lanes[0].turn(&mut All(true), Duration::from_millis(10)).unwrap();
    }
}

/// Starts `child` and kills it when its devices are open.
fn kill() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "af_xdp::child"])
        .env("WWD_DPDK_CHILD", "1")
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !program(M, "out") && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    println!("killed: program stays {}, promiscuous stays {}", program(M, "in"), promiscuous(M, "in"));
    assert!(program(M, "in") && promiscuous(M, "in"));
}

#[test]
fn af_xdp_killed() {
    let _alone = alone();
    let _world = World::new(1);
    kill();
    // What stays lets packets through to the kernel.
    run(&format!("ip -n {M} addr add 10.9.1.2/24 dev in"));
    run(&format!("ip -n {A} neigh replace 10.9.1.2 lladdr {} dev a0", address(M, "in")));
    let heard = inside(M, || {
        let socket = UdpSocket::bind("10.9.1.2:9999").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        inside(A, || send(1, 1));
        socket.recv(&mut [0; 100]).is_ok()
    });
    assert!(heard, "the program that stayed swallows packets");
    run(&format!("ip -n {M} addr del 10.9.1.2/24 dev in"));
    run(&format!("ip -n {A} neigh replace 10.9.1.2 lladdr 02:00:00:00:00:02 dev a0"));
    // And is taken over.
    kill();
    let result = through("net_af_xdp0,iface=in", "net_af_xdp1,iface=out", 1, 5_000, 16);
    check_through(&result, 5_000);
    assert!(!program(M, "in") && !program(M, "out"), "an XDP program stayed");
}

fn address(name: &str, link: &str) -> String {
    let text = run(&format!("ip -n {name} -o link show dev {link}"));
    text.split("link/ether ").nth(1).unwrap().split_whitespace().next().unwrap().to_string()
}

#[test]
fn af_xdp_twice_disturbs_nobody() {
    let _alone = alone();
    let _world = World::new(1);
    let mut first = inside(M, || dpdk::open("net_af_xdp0,iface=in", None, 1).unwrap());
    for devices in [("net_af_xdp1,iface=in", None), ("net_af_xdp1,iface=out", Some("net_af_xdp2,iface=in"))] {
        let error = inside(M, || dpdk::open(devices.0, devices.1, 1).err().unwrap());
        println!("{error}");
        assert!(error.contains("iface=in") && error.contains("busy"));
    }
    assert!(program(M, "in"), "the first lost its program");
    inside(A, || send(1000, 1));
    let mut count = 0;
    while let Ok(more @ 1..) = first[0].turn(&mut All(true), Duration::from_millis(200)) {
        count += more;
    }
    assert_eq!(count, 1000);
    drop(first);
    assert!(!program(M, "in") && !program(M, "out"));
}

#[test]
fn af_xdp_leaves_programs_of_others() {
    let _alone = alone();
    let _world = World::new(1);
    let directory = std::env::temp_dir().join(format!("wwd-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, object) = (directory.join("other.c"), directory.join("other.o"));
    std::fs::write(&source, "__attribute__((section(\"xdp\"))) int other(void *c) { return 2; }\n").unwrap();
    let (source, object) = (source.to_str().unwrap(), object.to_str().unwrap());
    let built = Command::new("clang-14").args(["-O2", "-target", "bpf", "-c", source, "-o", object]).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("left out: no clang-14");
        return;
    }
    run(&format!("ip -n {M} link set dev in xdpdrv obj {object} sec xdp"));
    let error = inside(M, || dpdk::open("net_af_xdp0,iface=in", None, 1).err().unwrap());
    println!("{error}");
    assert!(error.contains("ip link set dev in xdp off"));
    assert!(run(&format!("ip -n {M} -d -j link show dev in")).contains("\"other\""), "it was taken off");
    std::fs::remove_dir_all(directory).unwrap();
}
