// SPDX-License-Identifier: Apache-2.0
//! What `stats --watch`, `flows` and `events` show of real packets.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use wirewised::attachment::Attachment;
use wirewised::error::Result;
use wirewised::kernel::pin_to_one_cpu;
use wirewised::reading::events::{Event, Listener};

use crate::carrier::wait;
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER};
use crate::quiet::PATIENCE;

#[test]
fn flows_are_listed_with_class_and_state() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.send(1000, BENIGN, 4);
    lab.send(2000, ATTACK, 6);
    let answer = lab.json("flows --sort packets");
    assert_eq!(answer["found"], 2);
    let [first, second] = &answer["flows"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(
        (&first["packets"], &first["class"], &first["destination_port"]),
        (&6.into(), &"attack".into(), &2000.into())
    );
    assert_eq!((&first["source"], &first["destination"]), (&SENDER.into(), &RECEIVER.into()));
    assert_eq!(first["state"]["sum_length"], 6 * (ATTACK + 28));
    let mean = &first["features"][1];
    assert_eq!(
        (&mean["name"], &mean["value"], &mean["unit"]),
        (&"mean".into(), &528.0.into(), &"bytes".into())
    );
    assert_eq!((&second["packets"], &second["class"]), (&4.into(), &"benign".into()));
    assert!(second["age_seconds"].as_f64().unwrap() < 10.0);

    assert_eq!(lab.json("flows --class attack")["found"], 1);
    let text = lab.ok("flows --limit 1 --sort packets --state");
    assert!(text.contains("> 10.9.0.2:2000 UDP") && text.contains("total 3168 bytes"), "{text}");
    assert!(!text.contains('='), "no internals: {text}");
    let raw = lab.ok("flows --limit 1 --sort packets --state raw");
    assert!(raw.contains("sum_length=3168"), "{raw}");
    assert!(text.contains("1 more; --limit 0 shows all"), "{text}");
    assert!(
        lab.error("flows --class worm", 2).contains("unknown class 'worm'; the bundle has: benign, attack")
    );
}

#[test]
fn many_flows_are_listed_in_little_memory() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("--flow-table-size 524288");
    pin_to_one_cpu().unwrap();
    lab.spread(200_000);
    // Some find no empty place and take another's.
    let entries = lab.stats()["flows"]["new"].as_u64().unwrap() as usize;
    assert!(entries > 190_000, "{entries}");
    let mut times = Vec::new();
    for arguments in [
        "--json --limit 0",
        "--json --limit 0 --sort packets",
        "--limit 0 --state",
        "--json --limit 1000",
        "--limit 1000 --sort packets",
    ] {
        let file = std::fs::File::create(lab.path("flows")).unwrap();
        let flows = lab.command(&format!("flows {arguments}"));
        // The tables alone are more than 100 MiB.
        let mut bounded = Command::new("prlimit");
        bounded.arg(format!("--as={}", 48 << 20)).arg(flows.get_program()).args(flows.get_args());
        times.push(processor_time(bounded.stdout(file)));
        let text = std::fs::read_to_string(lab.path("flows")).unwrap();
        let limited = arguments.contains("1000");
        if arguments.contains("--json") {
            let answer: Value = serde_json::from_str(&text).unwrap();
            let flows = answer["flows"].as_array().unwrap();
            assert_eq!(answer["found"], entries);
            let shown = if limited { 1000 } else { entries };
            assert_eq!(flows.len(), shown);
            let keys: HashSet<_> =
                flows.iter().map(|flow| (&flow["source_port"], &flow["destination_port"])).collect();
            assert_eq!(keys.len(), shown);
        } else {
            let lines: Vec<_> = text.lines().collect();
            let shown = if limited { 1000 } else { entries };
            assert_eq!(lines.len(), if limited { 2 + shown } else { 1 + shown });
            let column = lines[0].find("packets").unwrap();
            assert!(lines[1..=shown].iter().all(|line| line[column..].starts_with('1')), "{}", lines[1]);
        }
    }
    // As many flows, but not in the order in which they lie.
    assert!(times[1] < times[0] * 8, "{times:?}");
    let sorted = lab.json("flows --limit 0 --sort newest");
    let times: Vec<_> = sorted["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| flow["last_seen_ns"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b));
    assert_eq!(times.len(), entries);
}

/// Runs a command that must succeed; how long processors were at it, however many others wanted them.
#[allow(clippy::zombie_processes, reason = "`wait4` waits for it")]
fn processor_time(command: &mut Command) -> Duration {
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: zero is a value of every field; the child was not waited for; both outlive the call.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut used), child.id() as i32);
        used
    };
    assert_eq!(status, 0);
    [used.ru_utime, used.ru_stime]
        .iter()
        .map(|time| Duration::new(time.tv_sec as u64, 1000 * time.tv_usec as u32))
        .sum()
}

#[test]
fn events_tell_of_what_does_not_simply_pass() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nevents: {rate: 1/m, burst: 3}");
    lab.attach("--policy p.yaml");
    lab.send(1000, BENIGN, 4);
    lab.send(2000, ATTACK, 8);
    let lines = lab.ok("events --json");
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The limit is one of each CPU, and the packets may come over more than one.
    assert!((3..=6).contains(&events.len()), "{lines}");
    for event in &events {
        assert_eq!(
            (&event["wirewise"]["class"], &event["wirewise"]["outcome"]),
            (&"attack".into(), &"would-drop".into())
        );
        assert_eq!((&event["src_ip"], &event["dest_port"]), (&SENDER.into(), &2000.into()));
        assert_eq!(event["wirewise"]["length"], ATTACK + 28);
        assert_eq!((&event["proto"], &event["in_iface"]), (&"UDP".into(), &INTERFACE.into()));
        assert_eq!((&event["event_type"], &event["flow_id"]), (&"wirewise".into(), &events[0]["flow_id"]));
        assert!(event["community_id"].as_str().unwrap().starts_with("1:"), "{event}");
        let timestamp = event["timestamp"].as_str().unwrap();
        assert!(
            timestamp.starts_with("20") && timestamp.ends_with("+0000") && timestamp.len() == 31,
            "{event}"
        );
    }
    let counted = lab.stats()["events"].clone();
    let count = |name: &str| counted[name].as_u64().unwrap();
    assert_eq!((count("sent"), count("limited")), (events.len() as u64, 8 - events.len() as u64));
    // Reading takes nothing away.
    assert_eq!(lab.ok("events --json"), lines);
    assert_eq!(lab.ok("events").lines().count(), events.len());
}

#[test]
fn the_newest_events_are_kept_without_a_reader_and_none_is_lost_with_one() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: count}\nevents: {rate: 1000000/s, burst: 1000000}");
    lab.attach("--policy p.yaml");
    // The packets come over the CPU that sends them.
    pin_to_one_cpu().unwrap();
    let flow = lab.flow(1000);
    for _ in 0..50 {
        flow.send(ATTACK, 100);
    }
    let packet = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["wirewise"]["packets"].as_u64().unwrap()
    };
    let kept: Vec<_> = lab.ok("events --json").lines().map(packet).collect();
    assert_eq!(kept, (5000 - 2047..=5000).collect::<Vec<_>>());

    let mut child = lab.command("events --follow --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| packet(&line.unwrap()));
    assert_eq!(lines.by_ref().take(2048).collect::<Vec<_>>(), kept);
    // Ahead of the reader by less than the ring holds, however rarely the reader gets a CPU.
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sent in (0..4000).step_by(100) {
                wait("the reader follows", || read.load(Ordering::Relaxed) + 1500 > sent);
                flow.send(ATTACK, 100);
            }
        });
        for expected in 5001..=9000 {
            assert_eq!(lines.next(), Some(expected));
            read.fetch_add(1, Ordering::Relaxed);
        }
    });
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}

#[test]
fn whoever_listens_hears_every_event_of_one_reading() {
    #[derive(Default)]
    struct Heard(Vec<Event>, u64);

    impl Listener for Heard {
        fn event(&mut self, event: &Event) -> Result<()> {
            self.0.push(event.clone());
            Ok(())
        }

        fn missed(&mut self, events: u64) -> Result<()> {
            assert!(self.0.is_empty(), "what was missed comes before what is behind it");
            self.1 += events;
            Ok(())
        }
    }

    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: count}\nevents: {rate: 1000000/s, burst: 1000000}");
    lab.attach("--policy p.yaml");
    pin_to_one_cpu().unwrap();
    let attachment = lab.enter(|| Attachment::open(&lab.pins().join(INTERFACE)).unwrap());
    let mut events = attachment.events().unwrap();
    let flow = lab.flow(1000);
    for _ in 0..21 {
        flow.send(ATTACK, 100);
    }
    let (mut first, mut second) = (Heard::default(), Heard::default());
    events.tell(&mut [&mut first, &mut second]).unwrap();
    assert_eq!((first.0.len(), first.1), (2048, 2100 - 2048));
    assert_eq!(
        first.0.iter().map(|event| event.wirewise.packets).collect::<Vec<_>>(),
        (53..=2100).collect::<Vec<_>>()
    );
    assert_eq!((&first.0, first.1), (&second.0, second.1));
    // What was told is not told again, to whomever.
    let mut late = Heard::default();
    events.tell(&mut [&mut late]).unwrap();
    assert_eq!((late.0, late.1), (Vec::new(), 0));
}

#[test]
fn watching_gives_rates_and_ends_with_a_signal() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let mut child =
        lab.command("stats --watch --interval 200ms --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(first["interval_seconds"], Value::Null);
    assert_eq!(first["classes"][1]["packets_per_second"], Value::Null);
    lab.send(1000, ATTACK, 50);
    let packets = |line: &Value| line["classes"][1]["packets"].as_u64().unwrap();
    // Lines that were due before the packets came say nothing of them.
    let second = std::iter::repeat_with(&mut next).find(|line| packets(line) > 0).unwrap();
    let seconds = second["interval_seconds"].as_f64().unwrap();
    let gained = packets(&second) as f64;
    let rate = second["classes"][1]["packets_per_second"].as_f64().unwrap();
    assert!((rate - gained / seconds).abs() < 1e-6, "{second}");
    let bits = second["classes"][1]["bits_per_second"].as_f64().unwrap();
    assert!((bits - rate * 8.0 * (ATTACK + 42) as f64).abs() < 1e-3, "{second}");
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}

/// A terminal of 80 by 24: what a person holds, and what a program gets.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let nothing = std::ptr::null_mut();
    // SAFETY: the call writes two descriptors, which nobody else has, and reads `size`.
    let done = unsafe { libc::openpty(&mut ours, &mut theirs, nothing, std::ptr::null(), &size) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are open, and nobody else's.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn half_an_escape_sequence_stops_neither_the_live_view_nor_its_end() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let (mut person, terminal) = terminal();
    let mut child = lab
        .command("stats --watch --interval 100ms")
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal)
        .spawn()
        .unwrap();
    let mut shown = person.try_clone().unwrap();
    let (tell, drawn) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(1..) = shown.read(&mut buffer) {
            let _ = tell.send(());
        }
    });
    let draws = |why: &str| drawn.recv_timeout(PATIENCE).expect(why);
    draws("it begins");
    person.write_all(b"\x1b[").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    while drawn.try_recv().is_ok() {}
    lab.send(1000, ATTACK, 50);
    draws("it shows what came since");
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut ended = None;
    wait("it ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{ended:?}");
}
