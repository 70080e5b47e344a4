// SPDX-License-Identifier: Apache-2.0
//! The BPF file system where nothing has mounted one: in mount namespaces of their own with a new /sys, as a machine has it
//! after boot without systemd, and as `ip netns exec` makes it.

use std::process::Output;

use serde_json::Value;

use crate::lab::{INTERFACE, Lab};

/// What `script` does in the namespace of the interface under test, and in a mount namespace with a new /sys. `$W` is the
/// agent, `$RUN` its command to attach, `$FS` prints the type of the file system at /sys/fs/bpf. The shell that runs the
/// script is the agent's parent, and in the same mount namespace.
fn script(lab: &Lab, script: &str) -> Output {
    let head = "mount -t sysfs sysfs /sys || exit 99\nFS='stat --file-system --format=%T /sys/fs/bpf'\n";
    lab.write("script", format!("{head}{script}\n").as_bytes());
    lab.enter(|| {
        std::process::Command::new("unshare")
            .args(["--mount", "sh", "script"])
            .current_dir(lab.path(""))
            .env("W", env!("CARGO_BIN_EXE_wirewised"))
            .env(
                "RUN",
                format!(
                    "{} run --bundle b.wirewise --interface {INTERFACE}",
                    env!("CARGO_BIN_EXE_wirewised")
                ),
            )
            .output()
            .unwrap()
    })
}

/// The lines that a script that must succeed printed.
fn lines(lab: &Lab, text: &str) -> Vec<String> {
    let output = script(lab, &format!("set -e\n{text}"));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed.lines().map(str::to_owned).collect()
}

fn json(lab: &Lab, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(lab.path(name)).unwrap()).unwrap()
}

/// Runs a script that ends with a command of the agent which must be refused for a missing feature; returns its one line.
fn refused(lab: &Lab, text: &str) -> String {
    let output = script(lab, text);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("error: "), "{said}");
    said
}

#[test]
fn run_mounts_a_bpf_file_system_where_there_is_none() {
    let Some(lab) = Lab::new() else { return };
    let said = lines(
        &lab,
        "$W doctor --json >doctor; $W status --json >status; $FS
         $RUN --dry-run --json >dry 2>&1; $RUN --dry-run | grep mounts; $FS
         $RUN --json >first 2>note; $FS; stat --format=%a /sys/fs/bpf; ls /sys/fs/bpf/wirewise; cat note
         $RUN --mode observe --json >second 2>&1
         $W detach --interface ww0 >/dev/null; $FS; ! ls -d /sys/fs/bpf/wirewise 2>/dev/null",
    );
    let note = "note: mounted a BPF file system at /sys/fs/bpf, as there was none, in a mount namespace that is not that of \
                pid 1: all that is attached ends with that namespace";
    let mounts = "  mounts       a BPF file system at /sys/fs/bpf, where there is none yet";
    assert_eq!(said, ["sysfs", mounts, "sysfs", "bpf_fs", "1700", INTERFACE, note, "bpf_fs"]);
    let doctor = json(&lab, "doctor");
    let finding = doctor["findings"].as_array().unwrap().iter().find(|it| it["check"] == "bpffs").unwrap();
    assert_eq!(doctor["ready"], true);
    assert_eq!(finding["level"], "ok");
    assert_eq!(finding["found"], "none at /sys/fs/bpf yet: `run` mounts it");
    assert_eq!(json(&lab, "dry")["mounts"], "/sys/fs/bpf");
    assert_eq!(
        (&json(&lab, "first")["action"], &json(&lab, "first")["mounts"]),
        (&"attached".into(), &"/sys/fs/bpf".into())
    );
    assert_eq!(
        (&json(&lab, "second")["action"], &json(&lab, "second")["mounts"]),
        (&"adopted".into(), &Value::Null)
    );
    assert_eq!(lab.xdp(INTERFACE), None);
}

#[test]
fn a_read_only_sys_is_no_obstacle() {
    let Some(lab) = Lab::new() else { return };
    let said = lines(&lab, "mount -o remount,ro /sys; $RUN >/dev/null 2>&1; $FS; ls /sys/fs/bpf/wirewise");
    assert_eq!(said, ["bpf_fs", INTERFACE]);
}

#[test]
fn two_agents_make_one_mount() {
    let Some(lab) = Lab::new() else { return };
    let said = lines(
        &lab,
        "ip link add second type veth peer name other
         $RUN >/dev/null 2>&1 &
         $W run --bundle b.wirewise --interface second >/dev/null 2>&1
         wait $!
         ls /sys/fs/bpf/wirewise",
    );
    assert_eq!(said, ["second", INTERFACE], "the first's pins are hidden under a second mount");
}

#[test]
fn a_mount_that_would_end_with_the_agent_is_not_made() {
    let Some(lab) = Lab::new() else { return };
    let error = refused(&lab, "exec $RUN");
    assert!(error.contains("would end with it") && error.contains("--netns NAME"), "{error}");
    let namespace = lab.sh("ip netns identify");
    let error = refused(&lab, &format!("ip netns exec {} $RUN", namespace.trim()));
    assert!(error.contains("would end with it"), "{error}");
    let error = refused(&lab, &format!("ip netns exec {} $RUN --dry-run", namespace.trim()));
    assert!(error.contains("would end with it"), "{error}");
    let doctor = script(&lab, "exec $W doctor");
    assert_eq!(doctor.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("ERROR    bpffs"));
    lab.assert_untouched();
}

#[test]
fn where_it_may_not_mount_the_refusal_says_why() {
    let Some(lab) = Lab::new() else { return };
    let without = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    let error = refused(&lab, &format!("{without} $RUN"));
    assert!(error.contains("mounting one needs CAP_SYS_ADMIN; as root: `mount -t bpf"), "{error}");
    let error = refused(&lab, "mount -t tmpfs none /sys; $RUN");
    assert!(error.contains("no directory /sys/fs/bpf") && error.contains("mount -t sysfs"), "{error}");
    let error = refused(&lab, "mount -t tmpfs none /sys/fs/bpf; touch /sys/fs/bpf/file; $RUN");
    assert!(error.contains("something else is mounted at /sys/fs/bpf"), "{error}");
    let error = refused(&lab, "$RUN --pin-root /sys/fs/bpf/../wirewise");
    assert!(error.contains("is not in a BPF file system, so nothing could outlive"), "{error}");
    lab.assert_untouched();
}

#[test]
fn a_mount_stays_where_run_fails_later() {
    let Some(lab) = Lab::new() else { return };
    lab.write(
        "broken.wirewise",
        &crate::lab::bundle("broken", &crate::lab::small_path(&["BROKEN"]).unwrap()),
    );
    let said = lines(
        &lab,
        "$W run --bundle missing.wirewise --interface ww0 2>/dev/null || $FS
         $W run --bundle b.wirewise --interface nowhere 2>/dev/null || $FS
         $W run --bundle broken.wirewise --interface ww0 >/dev/null 2>&1 || $FS; ! ls -d /sys/fs/bpf/wirewise 2>/dev/null",
    );
    assert_eq!(said, ["sysfs", "sysfs", "bpf_fs"]);
}
