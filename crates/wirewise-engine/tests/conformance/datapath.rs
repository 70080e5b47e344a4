// SPDX-License-Identifier: Apache-2.0
//! The data path of this repository, with the small model of the agent's tests: both loaders give the same byte code, and kernel and
//! engine leave the same codes, packets, flow tables and counters.

use std::path::Path;

use libbpf_rs::ObjectBuilder;
use wirewise_engine::{Linked, Trust};

use crate::support::{
    backends, compare, compile_plain, kernel, options, run_in_engine_named, run_in_kernel_named,
};

const CONFIG: &str = ".rodata.ww_config";
/// `clock` of `struct ww_config`: the time in front of the packet; there is none, so it is 0 for all.
const CLOCK: (usize, u32) = (4, 2);
const TRACE: (usize, u32) = (20, 1);
/// Every element is read after every packet. Nothing is in the lists, and the first events are enough.
const SIZES: [(&str, u32); 6] = [
    ("ww_flows4", 256),
    ("ww_flows6", 256),
    ("ww_deny_filter", 64),
    ("ww_deny_ports", 64),
    ("ww_allow_ports", 64),
    ("ww_events", 512),
];

fn object() -> Vec<u8> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bpf = format!("-I{}", here.join("../../bpf").display());
    let model = format!("-I{}", here.join("../wirewised/tests/fixtures/datapath").display());
    let source = std::fs::read_to_string(here.join("../../bpf/main.bpf.c")).unwrap();
    compile_plain(&source, "v3", &[&bpf, &model, "-Wno-unused-function"])
}

fn configured(mut config: Vec<u8>) -> Vec<u8> {
    for (offset, value) in [CLOCK, TRACE] {
        config[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    config
}

/// Frames of every way through the parser, and noise.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut state = 3u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    for number in 0..400u32 {
        let length = 60 + (random() % 200) as usize;
        let mut frame: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        let ip_type: [u8; 2] = if number % 3 == 0 { [0x86, 0xdd] } else { [8, 0] };
        frame[12..14].copy_from_slice(&ip_type);
        let mut ip = 14;
        if number % 7 == 0 {
            frame[12..14].copy_from_slice(&[0x81, 0]);
            frame[16..18].copy_from_slice(&ip_type);
            ip += 4;
        }
        let protocol = [6, 17, 1, 132, 47, 0, 44, 60][(random() % 8) as usize];
        if ip_type[0] == 8 {
            frame[ip] = if number % 11 == 0 { 0x46 } else { 0x45 };
            frame[ip + 2..ip + 4].copy_from_slice(&((length - ip) as u16).to_be_bytes());
            frame[ip + 6..ip + 8].copy_from_slice(&[0, (number % 13 == 0) as u8]);
            frame[ip + 9] = protocol;
            frame[ip + 12..ip + 20].copy_from_slice(&[10, 0, 0, (number % 20) as u8, 10, 0, 0, 1]);
        } else {
            frame[ip] = 0x60;
            frame[ip + 4..ip + 6].copy_from_slice(&((length - ip) as u16).saturating_sub(40).to_be_bytes());
            frame[ip + 6] = protocol;
            frame[ip + 8..ip + 40].fill((number % 5) as u8);
        }
        // Few ports, so that flows are seen again.
        let ports = ip + if ip_type[0] == 8 { 20 } else { 40 };
        if ports + 13 < length {
            frame[ports..ports + 4].copy_from_slice(&[0, 80, 1, (random() % 4) as u8]);
            if protocol == 17 {
                frame[ports + 4..ports + 6].copy_from_slice(&((length - ports) as u16).to_be_bytes());
            }
            frame[ports + 12] = 0x50;
        }
        frame.truncate(if number % 17 == 0 { 14 + (random() as usize % 40) } else { length });
        frames.push(frame);
    }
    frames
}

#[test]
fn the_data_path_is_the_same_everywhere() {
    let object = object();
    let mut from_elf = Linked::from_elf(&object).unwrap();
    for (name, entries) in SIZES {
        from_elf.set_max_entries(name, entries).unwrap();
    }
    let config = configured(from_elf.map(CONFIG).unwrap().initial().unwrap().to_vec());
    from_elf.set_initial(CONFIG, config).unwrap();
    let frames = frames();
    // SAFETY: the kernel accepts it: where there is one at hand, below.
    let trusted = unsafe { from_elf.clone().assume_verified() };
    let mut expected = None;
    if kernel() {
        // Counters and flow tables are indexed by CPU: the engine is CPU 0, and the object has room for one.
        pin_to_cpu_0();
        let mut open = ObjectBuilder::default().name("wirewise").unwrap().open_memory(&object).unwrap();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if let Some((_, entries)) = SIZES.iter().find(|(known, _)| *known == name) {
                map.set_max_entries(*entries).unwrap();
            }
            if name == CONFIG {
                map.set_initial_value(from_elf.map(CONFIG).unwrap().initial().unwrap()).unwrap();
            }
        }
        let loaded = open.load().unwrap();
        let linked = Linked::from_loaded(&loaded).unwrap();
        assert_eq!(linked.trust(), Trust::Verified);
        assert_eq!(linked.programs(), from_elf.programs());
        assert_eq!(linked.maps().len(), from_elf.maps().len());
        for (ours, theirs) in from_elf.maps().iter().zip(linked.maps()) {
            let described = |map: &wirewise_engine::MapSpec| {
                let sizes = (map.key_size(), map.value_size(), map.max_entries());
                (map.name().to_owned(), map.kind(), sizes, map.is_read_only())
            };
            assert_eq!(described(ours), described(theirs));
        }
        expected = Some(run_in_kernel_named(&loaded, "ww_main", &frames));
    }
    for backend in backends() {
        for (linked, caged) in [(&trusted, false), (&from_elf, true)] {
            let left = run_in_engine_named(linked, options(caged, backend), "ww_main", &frames);
            match &expected {
                Some(expected) => compare(&left, expected, &format!("caged {caged} {backend:?}")),
                None => expected = Some(left),
            }
        }
    }
}

fn pin_to_cpu_0() {
    // SAFETY: a CPU set of zeros is valid, and the calls only read it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set), 0);
    }
}
