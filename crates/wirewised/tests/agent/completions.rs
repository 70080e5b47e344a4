// SPDX-License-Identifier: Apache-2.0
//! What bash puts where the cursor is, by the script that the agent prints.

use std::path::Path;
use std::process::Command;

use crate::lab::{INTERFACE, Lab};

const AGENT: &str = env!("CARGO_BIN_EXE_wirewised");

/// What bash offers for the last word, in a folder.
fn offered(words: &str, folder: &Path) -> Vec<String> {
    let script = format!(
        "source <(wirewised completions bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
         _clap_complete_wirewised wirewised \"${{COMP_WORDS[COMP_CWORD]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let path = format!("{}:{}", Path::new(AGENT).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let bash =
        Command::new("bash").args(["-c", &script]).env("PATH", path).current_dir(folder).output().unwrap();
    assert!(bash.status.success(), "{}", String::from_utf8_lossy(&bash.stderr));
    let text = String::from_utf8(bash.stdout).unwrap();
    text.lines().map(|line| line.trim_end().to_string()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn bash_is_told_commands_and_bundles() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one.wirewise", "two.wirewise", "capture.pcap"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    std::fs::create_dir(folder.path().join("older")).unwrap();
    assert_eq!(offered("wirewised sta", folder.path()), ["status", "stats"]);
    let bundles = offered("wirewised run --bundle ''", folder.path());
    assert!(bundles.contains(&"one.wirewise".to_string()) && bundles.contains(&"two.wirewise".to_string()));
    assert!(!bundles.iter().any(|name| name.contains("pcap")), "{bundles:?}");
    assert!(bundles.iter().any(|name| name.starts_with("older")), "{bundles:?}");
    assert_eq!(offered("wirewised replay capture.pcap --bundle t", folder.path()), ["two.wirewise"]);
    assert_eq!(offered("wirewised flows --sort p", folder.path()), ["packets"]);
}

#[test]
fn bash_is_told_interfaces_and_the_classes_of_what_runs() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let folder = lab.path("");
    let interfaces = lab.enter(|| offered("wirewised status --interface ''", Path::new(&folder)));
    assert!(
        interfaces.contains(&INTERFACE.to_string()) && interfaces.contains(&"lo".to_string()),
        "{interfaces:?}"
    );
    let pins = lab.pins().display().to_string();
    for which in ["", "--interface ww0 "] {
        let words = format!("wirewised flows --pin-root {pins} {which}--class ''");
        assert_eq!(lab.enter(|| offered(&words, Path::new(&folder))), ["benign", "attack"]);
    }
    let words = format!("wirewised flows --pin-root {pins} --class at");
    assert_eq!(lab.enter(|| offered(&words, Path::new(&folder))), ["attack"]);
    // A shell has no place for an error.
    let words = format!("wirewised flows --pin-root {pins}/none --class ''");
    assert_eq!(lab.enter(|| offered(&words, Path::new(&folder))), [""; 0]);
}
