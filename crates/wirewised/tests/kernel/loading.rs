// SPDX-License-Identifier: Apache-2.0
//! What the fuzz target `object` has found, and what is near it, loaded into the kernel. scripts/fuzz.sh runs this.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use wirewise_engine::Linked;
use wirewised::abi::HASH_SEEDS;
use wirewised::bundle::inspection;
use wirewised::bundle::manifest::Flow;
use wirewised::object::{Opened, Settings};

use crate::common::{manifest, members};
use crate::fixture::loadable;

/// kB.
const MOST_MEMORY: u64 = 256 << 10;

#[derive(Debug, Default)]
struct Counts {
    inputs: u64,
    accepted: u64,
    loaded: u64,
}

/// xorshift64 (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    /// Sets bytes, and copies words from one place to another.
    fn change(&mut self, bytes: &mut [u8]) {
        for _ in 0..self.below(4) {
            let length = [1, 4, 8][self.below(3)];
            let Some(last) = bytes.len().checked_sub(length).filter(|last| *last > 0) else { return };
            let (from, to) = (self.below(last), self.below(last));
            match length {
                1 => bytes[to] = self.below(256) as u8,
                _ => bytes.copy_within(from / 4 * 4..from / 4 * 4 + length, to / 4 * 4),
            }
        }
    }
}

/// The kernel may refuse what the agent accepts; what it takes is what was read.
fn load(bytes: &[u8], flow: &Flow, latest: &PathBuf, counts: &mut Counts) {
    counts.inputs += 1;
    let Ok(program) = inspection::check(bytes, flow) else { return };
    counts.accepted += 1;
    fs::write(latest, bytes).unwrap();
    let object = program.encode();
    let read = Linked::from_elf(&object).unwrap();
    let mut prepared = Opened::open("fuzzed", &object).unwrap();
    prepared.prepare_to_verify(&Settings::on_cpu(0, [1; HASH_SEEDS])).unwrap();
    let message = match Opened::open("fuzzed", &object).unwrap().try_load() {
        Ok(Ok(loaded)) => {
            counts.loaded += 1;
            assert_eq!(Linked::from_loaded(&loaded.object).unwrap().programs(), read.programs());
            return;
        }
        Ok(Err(refusal)) => {
            fs::remove_file(&refusal.log_file).unwrap();
            refusal.into_error("fuzzed").to_string()
        }
        Err(error) => error.to_string(),
    };
    assert!(!message.chars().any(char::is_control) && message.len() < 2000, "{message:?}");
}

/// Descriptors of programs, maps and types that this process holds.
fn held() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let names = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    names.filter(|name| ["bpf", "btf"].iter().any(|kind| name.to_string_lossy().contains(kind))).count()
}

fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
#[ignore = "takes FUZZ_SECONDS, with inputs of the folder FUZZ_CORPUS: scripts/fuzz.sh"]
fn programs_that_the_fuzzer_found_are_loaded_as_they_were_read() {
    let Some(small) = loadable(&["TAIL_CALL"]) else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let (seconds, folder) =
        (variable("FUZZ_SECONDS").parse().unwrap(), PathBuf::from(variable("FUZZ_CORPUS")));
    let latest = PathBuf::from(variable("FUZZ_LATEST"));
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let flow = serde_json::from_value(manifest(&members(&small))["flow"].clone()).unwrap();
    let (begin, mut counts) = (Instant::now(), Counts::default());
    load(&small, &flow, &latest, &mut counts);
    assert_eq!(counts.loaded, 1);
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    let mut number = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        // Each file once as it is; then what is near one of them, or near the object that nothing is wrong with.
        let mut bytes = match files.get(number) {
            Some(file) => fs::read(file).unwrap(),
            None if random.below(2) == 0 || files.is_empty() => small.clone(),
            None => fs::read(&files[random.below(files.len())]).unwrap(),
        };
        if number >= files.len() {
            random.change(&mut bytes);
        }
        number += 1;
        load(&bytes, &flow, &latest, &mut counts);
    }
    fs::remove_file(&latest).unwrap();
    assert_eq!(held(), 0);
    let peak = peak_memory();
    println!(
        "fuzz load: {} inputs in {seconds} s, {} accepted, {} loaded, at most {} MB, no crash",
        counts.inputs,
        counts.accepted,
        counts.loaded,
        peak >> 10
    );
    assert!(peak <= MOST_MEMORY, "{peak} kB");
}
