// SPDX-License-Identifier: Apache-2.0
//! Devices without an interface of the kernel's, taps, and what goes wrong.

use super::*;

#[test]
fn null_flows() {
    let _alone = alone();
    let mut lanes = dpdk::open("net_null0,size=64", Some("net_null1,size=64"), 1).unwrap();
    let lane = &mut lanes[0];
    let mut sizes = 0_u64;
    let mut judge = With(|packet: &mut [u8]| {
        sizes += packet.len() as u64;
        true
    });
    let mut count = 0;
    while count < 10_000 {
        count += lane.turn(&mut judge, Duration::from_millis(10)).unwrap();
    }
    assert_eq!(sizes, count as u64 * 64);
    // A null device keeps nothing.
    assert_eq!(dpdk::account(), full(16383));
    let counts = lane.counts();
    assert_eq!((counts.received, counts.sent, counts.unsent), (count as u64, count as u64, 0));
    // What it takes: an empty judge, what passes is sent to the other null device.
    for passes in [true, false] {
        let mut judge = All(passes);
        let mut count = 0_u64;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            for _ in 0..100 {
                count += lane.turn(&mut judge, Duration::ZERO).unwrap() as u64;
            }
        }
        let rate = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
        println!("net_null, one lane, all pass {passes}: {rate:.2} million packets/s");
    }
    drop(lanes);
    assert_eq!(dpdk::account(), dpdk::Account::default());
    assert_eq!(dpdk::closed().in_use, 0);
    assert_eq!(dpdk::closed().available, 16383);
}

#[test]
fn null_two_lanes_and_again() {
    let _alone = alone();
    for round in 0..3 {
        let lanes = dpdk::open("net_null0,size=64", Some("net_null1"), 2).unwrap();
        let counts: Vec<LaneCounts> = std::thread::scope(|scope| {
            let workers: Vec<_> = lanes
                .into_iter()
                .map(|mut lane| {
                    scope.spawn(move || {
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_millis(500) {
                            lane.turn(&mut All(true), Duration::ZERO).unwrap();
                        }
                        lane.counts()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        println!("round {round}: {counts:?}");
        assert!(counts.iter().all(|counts| counts.received > 1000 && counts.sent == counts.received));
        assert_eq!(dpdk::closed(), full(2 * 16383));
    }
}

#[test]
fn refusals() {
    let _alone = alone();
    let refuse = |first: &str, second: Option<&str>, lanes: u32| {
        let error = dpdk::open(first, second, lanes).err().unwrap();
        println!("{error}");
        error
    };
    assert!(refuse("net_af_packet0,iface=wwd-none", None, 1).contains("net_af_packet0"));
    assert!(refuse("net_af_packet0,iface=lo", None, 2).contains("qpairs=2"));
    assert!(refuse("net_null0", Some("net_null0"), 1).contains("already"));
    assert!(refuse("net_null0", None, 5000).contains("1024 at most"));
    assert!(refuse("net_nothing0", None, 1).contains("net_nothing0"));
    assert!(refuse("net_null0,colour=red", None, 1).contains("colour"));
    assert!(refuse("0000:01:00.0", None, 1).contains("restart"));
    assert!(refuse("", None, 1).contains("names no"));
    assert!(refuse("net_null0", None, 0).contains("at least"));
    assert!(refuse("wwd-none", None, 1).contains("wwd-none"));
    assert!(refuse("lo", Some("lo"), 1).contains("same interface"));
    // And after all that it opens.
    let mut lanes = dpdk::open("net_null0", None, 1).unwrap();
    assert!(lanes[0].turn(&mut All(true), Duration::from_secs(1)).unwrap() > 0);
}

#[test]
fn judges_that_fail_keep_nothing() {
    let _alone = alone();
    struct Bad(u32);
    impl Judge for Bad {
        fn judge(
            &mut self,
            _: &mut [u8],
            _: u32,
            packets: &mut [Span],
            fates: &mut Vec<Fate>,
        ) -> Result<(), String> {
            match self.0 {
                0 => Err("no mood".into()),
                1 => {
                    fates.resize(packets.len() + 1, Fate::Passes);
                    Ok(())
                }
                _ => panic!("worse"),
            }
        }
    }
    for kind in 0..3 {
        let mut lanes = dpdk::open("net_null0", Some("net_null1"), 1).unwrap();
        let mut bad = Bad(kind);
        let lane = &mut lanes[0];
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lane.turn(&mut bad, Duration::from_secs(1))
        }));
        println!("{outcome:?}");
        assert!(!matches!(outcome, Ok(Ok(_))));
        drop(lanes);
        assert_eq!(dpdk::closed(), full(16383));
    }
}

fn write_capture(path: &str, packets: &[Vec<u8>]) {
    let mut text = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        text.extend(word.to_le_bytes());
    }
    for packet in packets {
        for word in [1, 2, packet.len() as u32, packet.len() as u32] {
            text.extend(word.to_le_bytes());
        }
        text.extend(packet);
    }
    std::fs::write(path, text).unwrap();
}

fn read_capture(path: &str) -> Vec<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).unwrap().read_to_end(&mut text).unwrap();
    let mut packets = Vec::new();
    let mut at = 24;
    while at < text.len() {
        let length = u32::from_le_bytes(text[at + 8..at + 12].try_into().unwrap()) as usize;
        packets.push(text[at + 16..at + 16 + length].to_vec());
        at += 16 + length;
    }
    packets
}

#[test]
fn pcap_is_judged_once() {
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("wwd-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (from, to) = (directory.join("from.pcap"), directory.join("to.pcap"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let mut packets: Vec<Vec<u8>> = (0..3000_u32)
        .map(|i| {
            let length = 60 + (i as usize * 37) % 1455;
            let mut packet: Vec<u8> = (0..length).map(|at| (i as usize * 31 + at * 7) as u8).collect();
            // Every third has a VLAN tag.
            packet[12..14].copy_from_slice(if i % 3 == 0 { &[0x81, 0] } else { &[8, 0] });
            packet
        })
        .collect();
    // More than an mbuf holds: the driver chains mbufs, and these cannot be made one.
    let jumbo = 5;
    let whole = packets.clone();
    for i in 0..jumbo {
        packets.insert(i * 100, vec![i as u8; 9000]);
    }
    write_capture(from, &packets);
    let mut lanes =
        dpdk::open(&format!("net_pcap0,rx_pcap={from}"), Some(&format!("net_pcap1,tx_pcap={to}")), 1)
            .unwrap();
    let mut seen = Vec::new();
    let mut judge = With(|packet: &mut [u8]| {
        seen.push(packet.to_vec());
        seen.len() % 2 == 0
    });
    while lanes[0].turn(&mut judge, Duration::from_millis(100)).unwrap() > 0 {}
    let counts = lanes[0].counts();
    println!("{counts:?}");
    drop(lanes);
    assert_eq!(seen.len(), whole.len());
    assert!(seen == whole, "the bytes differ");
    assert_eq!(counts, LaneCounts { received: 3000, lost: jumbo as u64, sent: 1500, unsent: 0, ..counts });
    let sent = read_capture(to);
    let passed: Vec<Vec<u8>> = whole.into_iter().skip(1).step_by(2).collect();
    assert!(sent == passed, "what was sent differs");
    assert_eq!(dpdk::closed(), full(16383));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn tap_works() {
    let _alone = alone();
    let _world = World::new(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut lanes =
            inside(A, || dpdk::open("net_tap0,iface=wwdtap0", Some("net_null1,no-rx=1"), 1).unwrap());
        run(&format!("ip -n {A} link del a0"));
        run(&format!("ip -n {A} addr add 10.9.1.1/24 dev wwdtap0"));
        run(&format!("ip -n {A} link set wwdtap0 up"));
        run(&format!("ip -n {A} neigh add 10.9.1.2 lladdr 02:00:00:00:00:02 dev wwdtap0"));
        let worker = scope.spawn(|| {
            let mut seen: HashMap<u32, u32> = HashMap::new();
            let mut judge = With(|packet: &mut [u8]| {
                if let Some(number) = number(packet) {
                    *seen.entry(number).or_insert(0) += 1;
                }
                true
            });
            while lanes[0].turn(&mut judge, Duration::from_millis(100)).unwrap() > 0 || !over.load(Relaxed) {}
            println!("{:?}", lanes[0].counts());
            drop(lanes);
            seen
        });
        inside(A, || send(20_000, 4));
        std::thread::sleep(Duration::from_millis(300));
        over.store(true, Relaxed);
        let seen = worker.join().unwrap();
        assert_eq!(seen.len(), 20_000);
        assert!(seen.values().all(|&times| times == 1));
        assert!(!run(&format!("ip -n {A} link")).contains("wwdtap0"));
        assert_eq!(dpdk::closed(), full(16383));
    });
}

/// Deletes an interface under a lane; the lane must say so soon.
fn gone(space: &'static str, first: &str, second: Option<&str>, link: &str) {
    let mut lanes = inside(space, || dpdk::open(first, second, 1).unwrap());
    assert_eq!(lanes[0].turn(&mut All(true), Duration::from_millis(50)).map(|_| ()), Ok(()));
    run(&format!("ip -n {space} link del {link}"));
    let begun = Instant::now();
    let error = loop {
        match lanes[0].turn(&mut All(true), Duration::from_millis(50)) {
            Ok(_) => assert!(begun.elapsed() < Duration::from_secs(5), "no end"),
            Err(error) => break error,
        }
    };
    println!("after {:?}: {error}", begun.elapsed());
    assert!(error.contains(link) && error.contains("gone"));
    assert!(lanes[0].turn(&mut All(true), Duration::from_millis(50)).is_err());
    let begun = Instant::now();
    drop(lanes);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn interfaces_that_go() {
    let _alone = alone();
    let world = World::new(1);
    gone(M, "net_af_packet0,iface=in", None, "in");
    drop(world);
    let world = World::new(1);
    gone(M, "net_null0", Some("net_af_packet0,iface=out"), "out");
    drop(world);
    let world = World::new(1);
    gone(M, "net_af_xdp0,iface=in", Some("net_null0"), "in");
    drop(world);
    let world = World::new(1);
    gone(M, "net_null0", Some("net_af_xdp0,iface=out"), "out");
    drop(world);
    let _world = World::new(1);
    gone(M, "net_tap0,iface=wwdtap1", None, "wwdtap1");
    // And the process can go on.
    let mut lanes = dpdk::open("net_null0", None, 1).unwrap();
    assert!(lanes[0].turn(&mut All(true), Duration::from_secs(1)).unwrap() > 0);
}

#[test]
fn leaves_nothing() {
    let _alone = alone();
    drop(dpdk::open("net_null0", None, 1).unwrap());
    let own = format!("/var/run/dpdk/lane-{}", std::process::id());
    assert!(!std::path::Path::new(&own).exists());
    println!("/var/run/dpdk exists: {}", std::path::Path::new("/var/run/dpdk").exists());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    println!("threads: {threads}");
}
