// SPDX-License-Identifier: Apache-2.0
//! Compiles C with clang, runs it in the kernel and in engines, and compares what they leave.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use libbpf_rs::{MapCore, MapFlags, MapType, Object, ObjectBuilder, ProgramInput};
use test_needs::{Need, skip};
use wirewise_engine::{Backend, ClockSource, Engine, Linked, MapKind, Options};

pub const CPUS: [&str; 4] = ["v1", "v2", "v3", "v4"];

const HEADERS: &str = "
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC(\"license\") = \"GPL\";
#define ARRAY(name, value_type, entries) struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, entries); \\
	__type(key, __u32); __type(value, value_type); } name SEC(\".maps\")
ARRAY(out, __u64, 64);
static __always_inline void put(__u32 index, __u64 value)
{
	__u64 *place = bpf_map_lookup_elem(&out, &index);
	if (place)
		*place = value;
}
";

/// clang 19 where it is, for -mcpu=v4; else the default one. `None`: no clang.
pub fn clang() -> Option<&'static str> {
    ["clang-19", "clang-18", "clang"].into_iter().find(|name| {
        let status = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

/// Compiles C for eBPF.
pub fn compile_plain(source: &str, cpu: &str, arguments: &[&str]) -> Vec<u8> {
    let clang = clang().expect("the tests need clang");
    let output = tempfile::NamedTempFile::new().unwrap();
    let multiarch = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut child = Command::new(clang)
        .args(["--target=bpf", &format!("-mcpu={cpu}"), "-O2", "-g", "-Wall", "-Werror", &multiarch])
        .args(arguments)
        .args(["-x", "c", "-c", "-", "-o"])
        .arg(output.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "clang refused:\n{source}");
    std::fs::read(output.path()).unwrap()
}

/// Compiles C that writes its results to `out`.
pub fn compile(source: &str, cpu: &str) -> Vec<u8> {
    compile_plain(&format!("{HEADERS}{source}"), cpu, &[])
}

/// Whether this process may load programs. Without, the tests that compare with it do so among themselves, and count as skipped.
pub fn kernel() -> bool {
    // SAFETY: no arguments, no memory.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip(Need::Root, "comparing with the kernel needs root");
    }
    root
}

pub fn load(object: &[u8]) -> Object {
    let open = ObjectBuilder::default().name("test").unwrap().open_memory(object).unwrap();
    open.load().expect("the kernel refuses the program")
}

/// What a run leaves: the code, the packet, and all values of all arrays and hash maps, by map and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub code: u32,
    pub packet: Vec<u8>,
    pub maps: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
}

pub fn frame() -> Vec<u8> {
    (0..64).map(|byte: u8| byte.wrapping_mul(37)).collect()
}

fn plain_name(name: &str) -> String {
    name.find('.').map_or(name, |point| &name[point..]).to_owned()
}

fn kernel_maps(object: &Object) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for map in object.maps() {
        let kind = MapKind::from_code(map.map_type().into());
        if !matches!(kind, Some(MapKind::Array | MapKind::Hash | MapKind::LpmTrie)) {
            continue;
        }
        // Nobody puts anything there; the kernel lists all keys of these two, and has no value for them.
        let is_empty = matches!(map.map_type(), MapType::Cpumap | MapType::Xskmap);
        let values = map.keys().filter(|_| !is_empty).map(|key| {
            let value = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            (key, value)
        });
        all.insert(plain_name(&map.name().to_string_lossy()), values.collect());
    }
    all
}

pub fn engine_maps(engine: &Engine, linked: &Linked) -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for spec in linked.maps() {
        let map = engine.map(spec.name()).unwrap();
        let values = match spec.kind() {
            MapKind::Array => (0..spec.max_entries())
                .map(|index| {
                    let key = index.to_ne_bytes().to_vec();
                    let value = map.lookup(&key).unwrap().to_vec();
                    (key, value)
                })
                .collect(),
            MapKind::Hash | MapKind::LpmTrie => {
                map.entries().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
            }
            _ => continue,
        };
        all.insert(spec.name().to_owned(), values);
    }
    all
}

/// Program arrays are filled by name: `tail_0` goes to index 0 of `tails`.
fn tail_index(name: &str) -> Option<u32> {
    name.strip_prefix("tail_")?.parse().ok()
}

pub fn run_in_kernel(object: &Object, packets: &[Vec<u8>]) -> Vec<Left> {
    run_in_kernel_named(object, "test", packets)
}

/// The kernel runs no frame shorter than an Ethernet header; such are left out everywhere.
const SHORTEST_FRAME: usize = 14;

pub fn run_in_kernel_named(object: &Object, name: &str, packets: &[Vec<u8>]) -> Vec<Left> {
    if let Some(tails) = object.maps().find(|map| map.name() == "tails") {
        for program in object.progs() {
            if let Some(index) = tail_index(&program.name().to_string_lossy()) {
                use std::os::fd::{AsFd, AsRawFd};
                let fd = program.as_fd().as_raw_fd();
                tails.update(&index.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).unwrap();
            }
        }
    }
    let program = object.progs_mut().find(|program| program.name() == name).expect("the program");
    let mut all = Vec::new();
    for packet in packets.iter().filter(|packet| packet.len() >= SHORTEST_FRAME) {
        let mut data = vec![0; packet.len() + 256];
        let input =
            ProgramInput { data_in: Some(packet), data_out: Some(&mut data), ..ProgramInput::default() };
        let output = program.test_run(input).expect("the kernel cannot run the program");
        let (code, length) = (output.return_value, output.data.map_or(0, |data| data.len()));
        data.truncate(length);
        all.push(Left { code, packet: data, maps: kernel_maps(object) });
    }
    all
}

pub fn options(caged: bool, backend: Backend) -> Options {
    Options { caged: caged.then_some(true), clock: ClockSource::Manual, backend, ..Options::default() }
}

pub fn run_in_engine(linked: &Linked, options: Options, packets: &[Vec<u8>]) -> Vec<Left> {
    run_in_engine_named(linked, options, "test", packets)
}

pub fn run_in_engine_named(linked: &Linked, options: Options, name: &str, packets: &[Vec<u8>]) -> Vec<Left> {
    let mut engine = Engine::new(linked, options).unwrap();
    let programs: Vec<_> = engine.programs().map(|(name, id)| (name.to_owned(), id)).collect();
    if let Some(mut tails) = engine.map_mut("tails") {
        for (name, id) in &programs {
            if let Some(index) = tail_index(name) {
                tails.set(index, Some(*id)).unwrap();
            }
        }
    }
    let program = engine.program(name).expect("the program");
    let mut all = Vec::new();
    for packet in packets.iter().filter(|packet| packet.len() >= SHORTEST_FRAME) {
        let mut packet = packet.clone();
        let code = engine.run_xdp(program, &mut packet, 0).unwrap();
        all.push(Left { code, packet, maps: engine_maps(&engine, linked) });
    }
    all
}

/// The engines a test compares with the kernel.
pub fn backends() -> Vec<Backend> {
    vec![
        Backend::Cranelift,
        #[cfg(feature = "aot")]
        Backend::Clang,
    ]
}

/// Runs the program `test` of C source for every instruction set in the kernel, and in the engine with and without cage;
/// everything must be the same.
pub fn same_everywhere(source: &str) {
    same_with_packets(source, &[frame()]);
}

pub fn same_with_packets(source: &str, packets: &[Vec<u8>]) {
    same_for(source, packets, &CPUS);
}

fn same_for(source: &str, packets: &[Vec<u8>], cpus: &[&str]) {
    for cpu in cpus {
        let object = compile(source, cpu);
        let from_elf = Linked::from_elf(&object).unwrap();
        let (linked, expected) = if kernel() {
            let loaded = load(&object);
            let linked = Linked::from_loaded(&loaded).unwrap();
            assert_eq!(linked.programs(), from_elf.programs(), "both loaders give the same byte code");
            let expected = run_in_kernel(&loaded, packets);
            (linked, Some(expected))
        } else {
            // SAFETY: the tests' programs are ones that the kernel accepts, and is asked about where there is one.
            (unsafe { from_elf.clone().assume_verified() }, None)
        };
        let mut expected = expected;
        for backend in backends() {
            for (linked, caged) in [(&linked, false), (&linked, true), (&from_elf, true)] {
                let left = run_in_engine(linked, options(caged, backend), packets);
                match &expected {
                    Some(expected) => {
                        compare(&left, expected, &format!("-mcpu={cpu} caged {caged} {backend:?}\n{source}"))
                    }
                    None => expected = Some(left),
                }
            }
        }
    }
}

pub fn same_from_v3(source: &str) {
    same_for(source, &[frame()], &CPUS[2..]);
}

pub fn same_from_v4(source: &str) {
    same_for(source, &[frame()], &CPUS[3..]);
}

/// Fails with the values that differ, and nothing else.
pub fn compare(left: &[Left], expected: &[Left], what: &str) {
    for (packet, (left, expected)) in left.iter().zip(expected).enumerate() {
        let mut differ = Vec::new();
        for (name, values) in &expected.maps {
            for (key, value) in values {
                let ours = left.maps.get(name).and_then(|values| values.get(key));
                if ours != Some(value) {
                    differ.push(format!("{name}{key:?}: {ours:?} instead of {value:?}"));
                }
            }
        }
        assert!(differ.is_empty(), "packet {packet}: {}\n{what}", differ.join("\n"));
        assert_eq!(left, expected, "packet {packet}: {what}");
    }
}
