// SPDX-License-Identifier: Apache-2.0
//! Objects compiled while the tests run, and captures of packets for them.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};
use test_needs::{Need, skip};

use crate::common::{bundle_with, manifest, members};
use crate::compiled::{clang, compile};

/// The small data path of fixtures/fixture.bpf.c with some macros defined. `None`, the test being skipped, where there is no
/// clang for eBPF.
pub fn object(defines: &[&str]) -> Option<Vec<u8>> {
    compile("tests/fixtures/fixture.bpf.c", defines)
}

/// The data path of this repository with one thing more; none: as it is.
pub fn hostile(defines: &[&str]) -> Option<Vec<u8>> {
    compile("tests/fixtures/hostile.bpf.c", defines)
}

/// An actor of one action, where this process may load it.
pub fn toy_actor() -> Option<Vec<u8>> {
    may_load().then(|| compile("tests/fixtures/toy.bpf.c", &[]))?
}

/// Version of the compiler that makes these objects, such as 19.1.7.
pub fn clang_version() -> Option<String> {
    let output = Command::new(clang()?).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split("version ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned())
}

/// As `object`, where this process may also load it.
pub fn loadable(defines: &[&str]) -> Option<Vec<u8>> {
    may_load().then(|| object(defines))?
}

/// The data path of this repository with the model of fixtures/datapath, where this process may load it.
pub fn data_path() -> Option<Vec<u8>> {
    static OBJECT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    may_load().then(|| OBJECT.get_or_init(|| compile("../../bpf/main.bpf.c", &[])).clone())?
}

/// As `data_path`, with some macros defined.
pub fn data_path_with(defines: &[&str]) -> Option<Vec<u8>> {
    may_load().then(|| compile("../../bpf/main.bpf.c", defines))?
}

fn may_load() -> bool {
    let missing = wirewised::kernel::missing_capabilities();
    if !missing.is_empty() {
        skip(Need::Root, format_args!("loading a program needs {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// A folder with a bundle around `object`, and what a test puts there.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new(object: &[u8]) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let mut members = members(object);
        members.insert("model.json".to_owned(), model().to_string().into_bytes());
        place.write("b.wirewise", &bundle_with(&manifest(&members), &members));
        place.write("x.bpf.o", object);
        place
    }

    /// Writes a bundle whose model is of a family that this agent does not know; the manifest says of it what `model` says.
    pub fn write_unknown_family(&self, name: &str, object: &[u8], model: Value) {
        let mut members = members(object);
        members
            .insert("model.json".to_owned(), br#"{"family": "rules", "rules": ["length > 100"]}"#.to_vec());
        let mut manifest = manifest(&members);
        manifest["model"]["family"] = "rules".into();
        for (key, value) in model.as_object().unwrap() {
            manifest["model"][key] = value.clone();
        }
        self.write(name, &bundle_with(&manifest, &members));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Names of the files here.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs the agent in this folder.
    pub fn run(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_wirewised"))
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .env("TMPDIR", self.folder.path())
            .output()
            .unwrap()
    }

    /// Standard output of a run that must succeed.
    pub fn stdout(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    /// The one line of a run that must fail with this exit code.
    pub fn error(&self, arguments: &str, exit_code: i32) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit_code), "{arguments}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
        stderr.trim_end().to_owned()
    }
}

/// The fixture's model: one tree, length <= 100 is class 0.
fn model() -> Value {
    json!({"family": "tree-ensemble", "version": 1, "n_features": 1, "n_classes": 2, "votes": "majority",
        "n_outputs": 1, "base": [0], "trees": [{"feature": [0, -1, -1], "threshold": [100, 0, 0],
        "left": [1, -1, -1], "right": [2, -1, -1], "value": [[], [0], [1]], "output": null}]})
}

/// A UDP packet from 10.0.0.`host` whose IPv4 total length is `length`.
pub fn udp(host: u8, length: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, host], [10, 0, 1, 1], 64)
        .udp(5000, 53);
    builder.write(&mut frame, &vec![0; usize::from(length) - 28]).unwrap();
    frame
}

/// A pcap file with nanoseconds; the packets are a millisecond apart from 1 s on.
pub fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    file.extend(numbers(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 1]));
    for (index, frame) in (0u32..).zip(frames) {
        let length = frame.len() as u32;
        file.extend(numbers(&[1 + index / 1000, index % 1000 * 1_000_000, length, length]));
        file.extend(frame);
    }
    file
}
