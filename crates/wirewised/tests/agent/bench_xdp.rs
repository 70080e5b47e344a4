// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench xdp`: that it measures something, and leaves nothing.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench_planes::{assert_nothing_is_left, error, folder, longer_until, number};

fn command(folder: &tempfile::TempDir, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirewised"));
    command.args(["bench", "xdp"]).args(arguments.split_whitespace()).current_dir(folder.path());
    command
}

#[test]
fn packets_are_dropped_forwarded_and_a_service_answers_and_nothing_stays() {
    let Some(folder) = folder() else { return };
    let measure = |seconds: &str| -> Value {
        let arguments = format!("--bundle b.wirewise --rate 20000 --seconds {seconds} --json");
        let mut command = command(&folder, &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let process = child.id();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_nothing_is_left(process);
        if said.contains("the server answers nothing in ") {
            return Value::Null;
        }
        assert!(output.status.success(), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // Where CPUs are busy an interval may be over before anything has come.
    let report = longer_until(measure, |report| {
        if report.is_null() {
            return false;
        }
        let moved = ["drop", "forward"].map(|part| report[part].as_array().unwrap().clone()).concat();
        let offered = |row: &Value| number(&row["offered_per_second"]) > 0.0;
        moved.iter().all(|row| number(&row["per_second"]) > 0.0 && offered(row))
            && report["flood"].as_array().unwrap().iter().all(|row| match row["rate"].as_u64() {
                Some(0) => row["transactions"].as_u64() > Some(0),
                _ => offered(row),
            })
    });
    let rows = |part: &str| report[part].as_array().unwrap().clone();
    let ways = |part: &str| rows(part).iter().map(|row| row["way"].as_str().unwrap().to_string()).collect();
    let (drop, forward): (Vec<_>, Vec<_>) = (ways("drop"), ways("forward"));
    assert!(drop.starts_with(&["xdp-native", "xdp-generic", "tc-ingress"].map(String::from)), "{drop:?}");
    // Without `nft` there are no rows of its rules, and that is said.
    let rules = drop.iter().filter(|way| way.starts_with("stack")).count();
    let left_out = report["left_out"].to_string();
    assert_eq!(rules == 0, left_out.contains("`nft`"), "{report}");
    assert_eq!(cfg!(feature = "dpdk"), !left_out.contains("dpdk"), "{report}");
    let cores: Vec<_> = rows("drop")
        .iter()
        .filter(|row| row["way"] == "xdp-native, from memory")
        .map(|row| row["cores"].as_u64().unwrap())
        .collect();
    assert!(cores.len() > 1 && cores.iter().copied().eq(1..=cores.len() as u64), "{report}");
    assert_eq!((forward.len(), forward.last().unwrap().as_str()), (forward.len(), "stack: routing"));
    let flood = rows("flood");
    let begun: Vec<_> = flood.iter().filter(|row| row["rate"] == 0).collect();
    assert_eq!(begun.len() * 2, flood.len());
    for row in begun {
        assert!(number(&row["median_ns"]) > 0.0 && number(&row["share"]) > 0.0, "{row}");
    }
    assert!(flood.iter().all(|row| row["rate"] == 0 || row["rate"] == 20_000));
}

#[test]
fn bad_questions_change_nothing() {
    let Some(folder) = folder() else { return };
    let refused = |arguments: &str, said: &str| {
        let said_so = error(command(&folder, arguments).output().unwrap(), 2);
        assert!(said_so.contains(said), "{said_so}");
    };
    refused("--bundle gone.wirewise", "does not exist");
    refused("--bundle b.wirewise --seconds 61s", "at most 60s");
    refused("--bundle b.wirewise --rate 0", "1 to 100000000, or max");
    let told = command(&folder, "--bundle b.wirewise --dry-run").output().unwrap();
    assert!(String::from_utf8(told.stdout).unwrap().ends_with("nothing was changed\n"));
}
