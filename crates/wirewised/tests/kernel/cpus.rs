// SPDX-License-Identifier: Apache-2.0
//! Flow tables that CPUs share, with two CPUs at work on them at the same time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use test_needs::{Need, skip};
use wirewised::abi;
use wirewised::abi::maps;
use wirewised::kernel;
use wirewised::object::mapped::MappedArray;
use wirewised::object::{Loaded, Settings, seed_from};
use wirewised::offline::test_run;

use crate::fixture::data_path_with;

/// Where the fixture's state has them, behind slot and key.
const SUM_LENGTH: usize = 32;
const CLAIM: usize = 40;
const ENTRY: usize = 64;
/// IP length of the test frame.
const LENGTH: u64 = 50;
const REPEAT: u32 = 500_000;
const ROUNDS: u64 = 4;

struct Entry {
    key: abi::Key4,
    packets: u64,
    sum_length: u64,
}

/// The first two CPUs this process may use, each with the test frame; their source ports are `ports`.
fn frames(ports: [u8; 2]) -> Option<Vec<(u32, Vec<u8>)>> {
    let cpus = kernel::allowed_cpus().unwrap();
    if cpus.len() < 2 {
        skip(Need::Cpus, "two CPUs contend");
        return None;
    }
    let frame = |(cpu, port): (&u32, u8)| {
        let mut frame = test_run::default_frame();
        frame[35] = port;
        (*cpu, frame)
    };
    Some(cpus.iter().zip(ports).map(frame).collect())
}

fn load(defines: &[&str], frames: &[(u32, Vec<u8>)], table_size: u32, flows: u32) -> Option<Loaded> {
    let object = data_path_with(defines)?;
    let last = frames.iter().map(|(cpu, _)| *cpu).max().unwrap();
    let settings = Settings {
        table_size: Some(table_size),
        bench_flows: flows,
        // The clock of real traffic: entries expire while others come.
        clock: Some(abi::Clock::Fine),
        ..Settings::on_cpu(last, seed_from(11))
    };
    Some(test_run::load("the fixture", &object, &settings).unwrap())
}

/// Entries as a reader sees them: whole, or not at all.
fn entries(table: &MappedArray) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut bytes = [0; ENTRY];
    for index in 0..table.entries() * abi::WAYS {
        let offset = (index % abi::WAYS) as usize * ENTRY;
        if !table.read_whole(index / abi::WAYS, offset, offset + CLAIM, &mut bytes) {
            continue;
        }
        let slot: abi::Slot = bytemuck::pod_read_unaligned(&bytes[..16]);
        if slot.packets > 0 {
            found.push(Entry {
                key: bytemuck::pod_read_unaligned(&bytes[16..32]),
                packets: slot.packets.into(),
                sum_length: bytemuck::pod_read_unaligned(&bytes[SUM_LENGTH..SUM_LENGTH + 8]),
            });
        }
    }
    found
}

/// The claim word and the packets of each entry, as they are.
fn words(table: &MappedArray) -> String {
    let mut bytes = [0; ENTRY];
    let word = |index: u32, bytes: &mut [u8; ENTRY]| {
        table.read_part(index / abi::WAYS, (index % abi::WAYS) as usize * ENTRY, bytes);
        let slot: abi::Slot = bytemuck::pod_read_unaligned(&bytes[..16]);
        let claim: u32 = bytemuck::pod_read_unaligned(&bytes[CLAIM..CLAIM + 4]);
        format!("{claim:x}/{}", slot.packets)
    };
    (0..table.entries() * abi::WAYS).map(|index| word(index, &mut bytes)).collect::<Vec<_>>().join(" ")
}

fn stats(program: &Loaded) -> abi::Stats {
    let own = program.map_array(maps::PER_CPU).unwrap();
    let mut sum: abi::Stats = bytemuck::Zeroable::zeroed();
    for cpu in 0..own.entries() {
        wirewised::reading::counters::add(&mut sum, &own.read::<abi::Cpu>(cpu).unwrap().stats);
    }
    sum
}

fn run(program: &Loaded, frames: &[(u32, Vec<u8>)]) -> u64 {
    for _ in 0..ROUNDS {
        test_run::run_on_cpus(program, frames, REPEAT).unwrap();
    }
    ROUNDS * u64::from(REPEAT) * frames.len() as u64
}

/// Missed packets, of which there are a few in 100,000, but more where other work takes a CPU away while a claim is held.
fn few_missed(stats: &abi::Stats, packets: u64) -> u64 {
    let missed = stats.flows_missed;
    assert!(missed * 100 < packets, "{missed} of {packets} packets were missed");
    missed
}

/// No flow has two entries, and the state of each is that of its packets.
fn whole(entries: &[Entry]) {
    let keys: HashSet<[u8; 16]> = entries.iter().map(|entry| bytemuck::cast(entry.key)).collect();
    assert_eq!(keys.len(), entries.len(), "a flow has two entries");
    for Entry { key, packets, sum_length } in entries {
        assert_eq!(*sum_length, packets * LENGTH, "{key:?}");
    }
}

/// Packets of flows that nobody takes the entry of are all accounted, but those that were counted as missed.
fn all_accounted(flows: u32, ports: [u8; 2]) {
    let Some(frames) = frames(ports) else { return };
    let Some(program) = load(&["SHARED"], &frames, 1 << 20, flows) else { return };
    let packets = run(&program, &frames);
    let stats = stats(&program);
    let entries = entries(&program.map_array("ww_flows4").unwrap());
    whole(&entries);
    let accounted: u64 = entries.iter().map(|entry| entry.packets).sum();
    assert_eq!(accounted + few_missed(&stats, packets), packets);
    assert_eq!((stats.flows_new, stats.flows_expired), (entries.len() as u64, 0));
    assert_eq!((stats.flows_evicted, stats.flows_refused), (0, 0));
    let classified = stats.class_outcome.iter().flatten().map(|count| count.packets).sum::<u64>();
    assert_eq!((classified, stats.inferred), (packets, packets));
}

#[test]
fn one_flow_on_two_cpus_is_one_flow() {
    all_accounted(0, [64, 64]);
}

#[test]
fn new_flows_on_two_cpus_get_one_entry_each() {
    all_accounted(30_000, [64, 64]);
    all_accounted(1000, [64, 65]);
}

/// In a table too small for them flows take each other's entries all the time; with an idle timeout of a few microseconds, those of
/// flows that ended.
fn storm(defines: &[&str], table_size: u32, flows: u32) -> Option<abi::Stats> {
    let frames = frames([64, 64])?;
    let program = load(defines, &frames, table_size, flows)?;
    let table = program.map_array("ww_flows4").unwrap();
    let over = AtomicBool::new(false);
    let packets = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut read = 0;
            // Once at least: both CPUs may be busy until the end.
            loop {
                let last = over.load(Ordering::Relaxed);
                let entries = entries(&table);
                // Read one after the other, so a flow may have moved and be there twice; but each is whole.
                entries.iter().for_each(|entry| assert_eq!(entry.sum_length, entry.packets * LENGTH));
                read += entries.len();
                if last {
                    break read;
                }
            }
        });
        let packets = run(&program, &frames);
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
        packets
    });
    // Nobody holds an entry now, so all that are in use are whole.
    let left = entries(&table);
    assert_eq!(left.len() as u64, stats(&program).flows_new, "claims and packets: {}", words(&table));
    whole(&left);
    let stats = stats(&program);
    few_missed(&stats, packets);
    Some(stats)
}

#[test]
fn storms_of_evictions_leave_whole_entries() {
    let Some(stats) = storm(&["SHARED"], 64, 20_000) else { return };
    assert!(stats.flows_evicted + stats.flows_refused > 1_000_000, "{}", stats.flows_evicted);
}

#[test]
fn storms_of_expiry_leave_whole_entries() {
    let Some(stats) = storm(&["SHARED", "IDLE_NS=3000ULL"], 256, 20_000) else { return };
    assert!(stats.flows_expired > 1_000_000, "{}", stats.flows_expired);
}

/// The claim is released by an exchange where stores may be seen in another order.
#[test]
fn every_way_to_release_is_verified_and_counts() {
    let Some(frames) = frames([64, 64]) else { return };
    let Some(program) = load(&["SHARED", "WW_RELEASE_BY_EXCHANGE=1"], &frames, 1 << 16, 0) else { return };
    let packets = run(&program, &frames);
    let missed = few_missed(&stats(&program), packets);
    let entries = entries(&program.map_array("ww_flows4").unwrap());
    assert_eq!(entries.iter().map(|entry| entry.packets).sum::<u64>() + missed, packets);
}
