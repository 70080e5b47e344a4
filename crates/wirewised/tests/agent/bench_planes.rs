// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench planes`: what it says is consistent, and nothing of it stays, however it ends.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use test_needs::{Need, skip};

use crate::lab::{bundle, data_path};
use crate::quiet::PATIENCE;

/// What the queue of a veth holds, and a batch of the sender's: packets on the way while the others are counted.
const ON_THE_WAY: u64 = 2 * 256;

/// A folder with a bundle. `None`, the test being skipped, where there is no root, clang or second CPU.
pub fn folder() -> Option<tempfile::TempDir> {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        skip(Need::Root, "network namespaces need root");
        return None;
    }
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip(Need::Cpus, "one CPU sends, another one receives");
        return None;
    }
    let Some(object) = data_path() else {
        skip(Need::Clang, "no clang to compile the test's eBPF object with");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.wirewise"), bundle("first", object)).unwrap();
    Some(folder)
}

fn command(folder: &tempfile::TempDir, before: &[&str], arguments: &str) -> Command {
    let agent = [env!("CARGO_BIN_EXE_wirewised")];
    let mut words = before.iter().chain(&agent);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["bench", "planes"]).args(arguments.split_whitespace());
    command.current_dir(folder.path());
    command
}

fn run(folder: &tempfile::TempDir, arguments: &str) -> Output {
    command(folder, &[], arguments).output().unwrap()
}

/// The one line of a run that must fail with this exit code.
pub fn error(output: Output, exit_code: i32) -> String {
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(exit_code), "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

/// Processes, the kernel's threads among them, that belong to the wire of a process: they name its interface.
fn remnants(process: u32) -> Vec<String> {
    let interface = format!("wb{process}");
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let told = processes.map(|path| {
        let read = |name: &str| fs::read(path.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("comm"), read("cmdline")].concat()).replace('\0', " ")
    });
    told.filter(|told| told.contains(&format!("{interface}-")) || told.contains(&format!("{interface} ")))
        .collect()
}

pub fn assert_nothing_is_left(process: u32) {
    let begin = Instant::now();
    while !remnants(process).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "left behind: {:?}", remnants(process));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!fs::exists(format!("/sys/class/net/wb{process}")).unwrap());
    assert!(!fs::exists(format!("/sys/fs/bpf/wirewise/wb{process}")).unwrap());
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Measures over longer and longer intervals until something came in each of them.
pub fn longer_until(measure: impl Fn(&str) -> Value, something: impl Fn(&Value) -> bool) -> Value {
    let mut report = Value::Null;
    for seconds in ["100ms", "400ms", "1600ms", "6s"] {
        report = measure(seconds);
        if something(&report) {
            return report;
        }
    }
    panic!("nothing came in 6 s: {report}")
}

#[test]
fn what_is_measured_is_consistent_and_nothing_stays() {
    let Some(folder) = folder() else { return };
    let measure = |seconds: &str| -> Value {
        let arguments = format!(
            "--bundle b.wirewise --no-filter --plane xdp-native --plane af-packet --rate 20000,max --seconds {seconds} --json"
        );
        let mut command = command(&folder, &[], &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let process = child.id();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_nothing_is_left(process);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let began = Instant::now();
    let report = longer_until(measure, |report| {
        let rows = report["results"].as_array().unwrap();
        rows.iter().all(|row| row["received"].as_u64() > Some(0) && number(&row["cpu"]["softirq_ns"]) > 0.0)
    });
    let took = began.elapsed().as_secs_f64();
    assert!(number(&report["sender_most"]) > 0.0, "{report}");
    assert_ne!(report["sender_cpu"], report["receiver_cpu"]);
    let rows = report["results"].as_array().unwrap();
    let measured: Vec<_> = rows.iter().map(|row| (row["program"].as_str(), row["plane"].as_str())).collect();
    let expected = [(None, None), (Some("first"), Some("xdp-native")), (Some("first"), Some("af-packet"))];
    assert_eq!(measured, expected.map(|of| [of, of]).concat());
    for (row, rate) in rows.iter().zip([Some(20_000), None].iter().cycle()) {
        assert_eq!(row["rate"].as_u64(), *rate);
        let [sent, taken, received] = ["sent", "taken", "received"].map(|key| row[key].as_u64().unwrap());
        assert!(taken <= sent + ON_THE_WAY, "{row}");
        // What the driver took may wait for the agent.
        assert!(row["plane"] == "af-packet" || received <= taken + ON_THE_WAY, "{row}");
        let seconds = number(&row["seconds"]);
        assert!((0.09..took).contains(&seconds), "{row}");
        // Paced: what the sender could not send in time it makes up for, and sends no more.
        assert!(rate.is_none_or(|rate| sent as f64 <= rate as f64 * took), "{row}");
        assert!((number(&row["offered_per_second"]) * seconds - sent as f64).abs() < 1.0, "{row}");
        assert!((number(&row["received_per_second"]) * seconds - received as f64).abs() < 1.0, "{row}");
        let spent = ["user_ns", "system_ns", "softirq_ns"].map(|kind| number(&row["cpu"][kind]));
        let sum: f64 = spent.iter().sum();
        assert!(spent.iter().all(|ns| *ns >= 0.0), "{row}");
        assert!(
            row["plane"] == "af-packet" || sum == spent[2],
            "the kernel's planes are all soft interrupt: {row}"
        );
        assert!((number(&row["ns_per_packet"]) * received as f64 - sum).abs() < 1e-3 * sum, "{row}");
        // One CPU, and its clocks are not read at one moment.
        assert!(sum < 1.1 * seconds * 1e9, "{row}");
    }
    let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str()).step_by(2).collect();
    assert_eq!(modes, [None, Some("enforce"), Some("observe")]);
}

/// Kills it while packets are carried in user space.
fn end_by(signal: i32) {
    let Some(folder) = folder() else { return };
    let rates = ["1000"; 20].join(",");
    let arguments = format!("--bundle b.wirewise --plane af-packet --rate {rates} --seconds 1s --json");
    let mut command = command(&folder, &[], &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = child.id();
    let begin = Instant::now();
    let carries = |told: &String| told.contains("--plane af-packet");
    while !remnants(process).iter().any(carries) {
        assert!(begin.elapsed() < PATIENCE, "no agent carries packets");
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(&child, signal);
    child.wait().unwrap();
    assert_nothing_is_left(process);
}

fn kill(child: &Child, signal: i32) {
    // SAFETY: the child was not waited for, so the number is its own.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn nothing_stays_of_one_that_is_killed() {
    end_by(libc::SIGKILL);
}

#[test]
fn nothing_stays_of_one_that_is_interrupted() {
    end_by(libc::SIGINT);
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be() {
    let Some(folder) = folder() else { return };
    let output = run(&folder, "--bundle b.wirewise --plane tc-ingress --rate 1000,max --dry-run");
    let said = String::from_utf8(output.stdout).unwrap();
    for part in ["first", "tc-ingress", "1000, max", "nothing was changed"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let Some(folder) = folder() else { return };
    let refused = |arguments: &str, part: &str| {
        let said = error(run(&folder, arguments), 2);
        assert!(said.contains(part), "{said}");
    };
    refused("", "--bundle");
    refused("--bundle nowhere.wirewise", "nowhere.wirewise");
    refused("--bundle b.wirewise --plane xdp-nativ", "xdp-native");
    refused("--bundle b.wirewise --plane tc-egress", "outgoing");
    refused("--bundle b.wirewise --rate 0", "1 to 100000000");
    refused("--bundle b.wirewise --seconds 5m", "60s");
    let one = command(&folder, &["taskset", "--cpu-list", "0"], "--bundle b.wirewise").output().unwrap();
    assert!(error(one, 3).contains("two CPUs"));
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"];
    let unprivileged = command(&folder, &nobody, "--no-filter").current_dir("/").output().unwrap();
    assert!(error(unprivileged, 3).contains("run as root"));
}
