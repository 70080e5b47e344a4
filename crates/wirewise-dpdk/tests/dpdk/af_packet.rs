// SPDX-License-Identifier: Apache-2.0
//! Packets carried over the kernel's packet sockets.

use super::*;

#[test]
fn af_packet_over_veth() {
    let _alone = alone();
    let _world = World::new(1);
    let begun = Instant::now();
    // Rings with room for what comes while a busy machine lets a lane wait.
    let (first, second) = ("net_af_packet0,iface=in,framecnt=4096", "net_af_packet1,iface=out,framecnt=4096");
    let result = through(first, second, 1, 50_000, 16);
    println!("net_af_packet, one lane: {:?}", begun.elapsed());
    check_through(&result, 50_000);
    assert_eq!(dpdk::closed(), full(16383));
    assert!(!promiscuous(M, "in") && !promiscuous(M, "out"));
    // An interface's name alone gets a number that is free and a queue for each lane.
    let result = through("in", "net_af_packet0,iface=out,qpairs=2", 2, 50_000, 16);
    check_through(&result, 50_000);
    assert!(result.judged.iter().all(|lane| !lane.is_empty()), "one lane got everything");
    assert_eq!(dpdk::closed(), full(2 * 16383));
}

#[test]
fn af_packet_counts_what_the_kernel_dropped() {
    let _alone = alone();
    let _world = World::new(1);
    let mut lanes = inside(M, || dpdk::open("in", None, 1).unwrap());
    inside(A, || send(3000, 1));
    while lanes[0].turn(&mut All(true), Duration::from_millis(100)).unwrap() > 0 {}
    let counts = lanes[0].counts();
    println!("{counts:?}");
    assert!(counts.lost > 0);
    assert_eq!(counts.received + counts.lost, 3000);
    drop(lanes);
    // What the kernel does not take is not sent.
    let mut lanes = inside(M, || dpdk::open("in", Some("out"), 1).unwrap());
    run(&format!("ip -n {M} link set out down"));
    inside(A, || send(100, 1));
    while lanes[0].turn(&mut All(true), Duration::from_millis(100)).unwrap() > 0 {}
    let counts = lanes[0].counts();
    println!("{counts:?}");
    assert_eq!(counts, LaneCounts { received: 100, lost: 0, sent: 0, unsent: 100, ..counts });
}

#[test]
fn both_ways() {
    let _alone = alone();
    let _world = World::new(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut lanes = inside(M, || dpdk::open("in", Some("out"), 1).unwrap());
        let worker = scope.spawn(|| {
            while !over.load(Relaxed) {
                lanes[0].turn(&mut All(true), Duration::from_millis(10)).unwrap();
            }
            drop(lanes);
        });
        let echo = scope.spawn(|| {
            enter(B);
            let socket = UdpSocket::bind("10.9.1.2:9999").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut text = [0; 100];
            while !over.load(Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut text) {
                    socket.send_to(&text[..length], from).unwrap();
                }
            }
        });
        let back = inside(A, || {
            let socket = UdpSocket::bind("10.9.1.1:2000").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let mut text = [0; 100];
            (0..100_u8)
                .filter(|i| {
                    socket.send_to(&[*i; 20], "10.9.1.2:9999").unwrap();
                    socket.recv(&mut text).is_ok() && text[0] == *i
                })
                .count()
        });
        over.store(true, Relaxed);
        echo.join().unwrap();
        assert!(back >= 99, "{back} came back");
        worker.join().unwrap();
    });
}
