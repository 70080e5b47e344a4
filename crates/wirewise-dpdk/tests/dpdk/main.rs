// SPDX-License-Identifier: Apache-2.0
//! Needs root, the DPDK runtime packages, ip and ethtool. Makes network namespaces named wwd-dpdk-… and
//! removes them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod af_packet;
mod af_xdp;
mod virtual_devices;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wirewise_dpdk as dpdk;
use wirewise_lane::{Fate, Judge, Lane, LaneCounts, Span};

static ONE: Mutex<()> = Mutex::new(());

/// One test at a time: they share EAL and names of namespaces.
fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of so many buffers came back.
fn full(available: u64) -> dpdk::Account {
    dpdk::Account { available, in_use: 0 }
}

fn fate(passes: bool) -> Fate {
    if passes { Fate::Passes } else { Fate::Ends }
}

struct All(bool);

impl Judge for All {
    fn judge(
        &mut self,
        _: &mut [u8],
        _: u32,
        packets: &mut [Span],
        fates: &mut Vec<Fate>,
    ) -> Result<(), String> {
        fates.extend(packets.iter().map(|_| fate(self.0)));
        Ok(())
    }
}

struct With<F>(F);

impl<F: FnMut(&mut [u8]) -> bool> Judge for With<F> {
    fn judge(
        &mut self,
        area: &mut [u8],
        _: u32,
        packets: &mut [Span],
        fates: &mut Vec<Fate>,
    ) -> Result<(), String> {
        for span in packets {
            fates.push(fate((self.0)(&mut area[span.start..span.start + span.length])));
        }
        Ok(())
    }
}

fn run(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const A: &str = "wwd-dpdk-a";
const M: &str = "wwd-dpdk-m";
const B: &str = "wwd-dpdk-b";

/// Sender a (10.9.1.1) — in, middle, out — receiver b (10.9.1.2).
struct World;

impl World {
    fn new(queues: u32) -> World {
        World::clear();
        for name in [A, M, B] {
            run(&format!("ip netns add {name}"));
            run(&format!("ip -n {name} link set lo up"));
        }
        let q = format!("numtxqueues {queues} numrxqueues {queues}");
        run(&format!("ip -n {M} link add in {q} type veth peer name a0 {q} netns {A}"));
        run(&format!("ip -n {M} link add out {q} type veth peer name b0 {q} netns {B}"));
        for (space, name) in [(A, "a0"), (M, "in"), (M, "out"), (B, "b0")] {
            run(&format!("ip netns exec {space} sysctl -q -w net.ipv6.conf.{name}.disable_ipv6=1"));
            run(&format!("ip netns exec {space} ethtool -K {name} tx off rx off gro off tso off gso off"));
        }
        run(&format!("ip -n {A} link set a0 address 02:00:00:00:00:01 up"));
        run(&format!("ip -n {B} link set b0 address 02:00:00:00:00:02 up"));
        run(&format!("ip -n {M} link set in up"));
        run(&format!("ip -n {M} link set out up"));
        run(&format!("ip -n {A} addr add 10.9.1.1/24 dev a0"));
        run(&format!("ip -n {B} addr add 10.9.1.2/24 dev b0"));
        run(&format!("ip -n {A} neigh add 10.9.1.2 lladdr 02:00:00:00:00:02 dev a0"));
        run(&format!("ip -n {B} neigh add 10.9.1.1 lladdr 02:00:00:00:00:01 dev b0"));
        World
    }

    fn clear() {
        for name in [A, M, B] {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        World::clear();
    }
}

fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    // SAFETY: changes this thread's namespace only.
    assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}

/// Runs something in a namespace, on a thread of its own.
fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                enter(name);
                work()
            })
            .join()
            .unwrap()
    })
}

fn program(name: &str, link: &str) -> bool {
    run(&format!("ip -n {name} -j link show dev {link}")).contains("\"prog\"")
}

fn promiscuous(name: &str, link: &str) -> bool {
    run(&format!("ip -n {name} -j link show dev {link}")).contains("PROMISC")
}

const MARK: &[u8] = b"wwd-dpdk";

/// The number in a packet that `send` made.
fn number(packet: &[u8]) -> Option<u32> {
    let at = packet.windows(MARK.len()).position(|window| window == MARK)?;
    Some(u32::from_be_bytes(packet[at + 8..at + 12].try_into().unwrap()))
}

/// Sends numbered datagrams, slowly enough for small rings.
fn send(count: u32, flows: u16) {
    let sockets: Vec<UdpSocket> =
        (0..flows).map(|flow| UdpSocket::bind(("10.9.1.1", 2000 + flow)).unwrap()).collect();
    for i in 0..count {
        let mut text = MARK.to_vec();
        text.extend(i.to_be_bytes());
        text.resize(20, 0);
        sockets[i as usize % sockets.len()].send_to(&text, "10.9.1.2:9999").unwrap();
        if i % 32 == 31 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

struct Outcome {
    opened: dpdk::Account,
    counts: Vec<LaneCounts>,
    arrived: HashMap<u32, u32>,
    judged: Vec<HashMap<u32, u32>>,
}

/// The middle judges numbered packets on its lanes; those with an even number pass. Ends when no more come.
fn through(first: &str, second: &str, lanes: u32, count: u32, flows: u16) -> Outcome {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            enter(B);
            let socket = UdpSocket::bind("10.9.1.2:9999").unwrap();
            // Room for what comes while a busy machine lets this thread wait.
            let room = 8 << 20;
            // SAFETY: a socket that is open and a number that lives here.
            let set = unsafe {
                let (at, size) = (&raw const room, size_of::<i32>() as u32);
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, at.cast(), size)
            };
            assert_eq!(set, 0);
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut arrived = HashMap::new();
            let mut text = [0; 2048];
            loop {
                match socket.recv(&mut text) {
                    Ok(length) => {
                        *arrived.entry(number(&text[..length]).unwrap()).or_insert(0) += 1;
                    }
                    Err(_) if over.load(Relaxed) => return arrived,
                    Err(_) => {}
                }
            }
        });
        let lanes = inside(M, || dpdk::open(first, Some(second), lanes).unwrap());
        let opened = dpdk::account();
        let ready = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = lanes
            .into_iter()
            .map(|mut lane| {
                let ready = ready.clone();
                let over = &over;
                scope.spawn(move || {
                    let mut seen: HashMap<u32, u32> = HashMap::new();
                    let mut judge = With(|packet: &mut [u8]| match number(packet) {
                        Some(number) => {
                            *seen.entry(number).or_insert(0) += 1;
                            number % 2 == 0
                        }
                        None => false,
                    });
                    ready.fetch_add(1, Relaxed);
                    while lane.turn(&mut judge, Duration::from_millis(100)).unwrap() > 0
                        || !over.load(Relaxed)
                    {}
                    let counts = lane.counts();
                    (counts, seen)
                })
            })
            .collect();
        while ready.load(Relaxed) < workers.len() as u64 {
            std::thread::yield_now();
        }
        inside(A, || send(count, flows));
        std::thread::sleep(Duration::from_millis(500));
        over.store(true, Relaxed);
        let (counts, judged) = workers.into_iter().map(|worker| worker.join().unwrap()).unzip();
        Outcome { opened, counts, arrived: receiver.join().unwrap(), judged }
    })
}

fn check_through(result: &Outcome, count: u32) {
    let mut judged: HashMap<u32, u32> = HashMap::new();
    for lane in &result.judged {
        for (number, times) in lane {
            *judged.entry(*number).or_insert(0) += times;
        }
    }
    println!("counts {:?}, judged {}, arrived {}", result.counts, judged.len(), result.arrived.len());
    assert_eq!(judged.len(), count as usize);
    assert!(judged.values().all(|&times| times == 1));
    assert_eq!(result.arrived.len(), count.div_ceil(2) as usize);
    assert!(result.arrived.iter().all(|(number, &times)| number % 2 == 0 && times == 1));
    assert_eq!(result.counts.iter().map(|counts| counts.sent).sum::<u64>(), u64::from(count.div_ceil(2)));
    assert!(result.counts.iter().all(|counts| counts.unsent == 0 && counts.lost == 0));
}
