// SPDX-License-Identifier: Apache-2.0
//! The directory of the pins belongs to who attaches, and nobody can keep the agent out of it for ever.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{INTERFACE, Lab};

/// An ordinary user.
const USER: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// A process that has the lock of a directory until it is killed.
struct Holder(Child);

impl Holder {
    fn of(directory: &Path) -> Self {
        let child =
            Command::new("flock").arg("--no-fork").arg(directory).args(["sleep", "60"]).spawn().unwrap();
        let holder = Self(child);
        let taken =
            || !Command::new("flock").arg("-n").arg(directory).arg("true").status().unwrap().success();
        while !taken() {
            std::thread::sleep(Duration::from_millis(10));
        }
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn an_ordinary_user_cannot_hold_the_lock() {
    let Some(lab) = Lab::new() else { return };
    let hold = || {
        let [program, arguments @ ..] = USER;
        let mut command = Command::new(program);
        command.args(arguments).args(["flock", "-n"]).arg(lab.pins()).arg("true").stderr(Stdio::null());
        command.status().unwrap().success()
    };
    lab.attach("");
    assert_eq!(mode(&lab.pins()), 0o700);
    assert!(!hold());
    // As an older agent made it.
    std::fs::set_permissions(lab.pins(), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(hold());
    lab.attach("--mode observe");
    assert!(!hold());
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn who_waits_is_told_for_whom_and_not_for_ever() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let holder = Holder::of(&lab.pins());
    let begin = Instant::now();
    let output = lab.run(&format!("detach --interface {INTERFACE}"));
    assert!(begin.elapsed() >= Duration::from_secs(10));
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let [note, error] = lines[..] else { panic!("{said}") };
    let process = holder.0.id();
    assert!(
        note.starts_with(&format!("note: waiting for process {process} (sleep), which has locked")),
        "{said}"
    );
    assert!(
        error.starts_with("error: ") && error.contains(&format!("is locked by process {process} (sleep)"))
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(lab.xdp(INTERFACE).is_some());
    drop(holder);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn a_directory_that_somebody_made_before_is_not_used() {
    let Some(lab) = Lab::new() else { return };
    let run = format!("run --bundle b.wirewise --interface {INTERFACE}");
    std::fs::create_dir(lab.pins()).unwrap();
    chown(lab.pins(), Some(65534), Some(65534)).unwrap();
    let error = lab.error(&run, 3);
    assert!(
        error.contains("belongs to user 65534, who could put anything there; run as that user"),
        "{error}"
    );
    let doctor = lab.run("doctor --json");
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(doctor["ready"], false);
    chown(lab.pins(), Some(0), Some(0)).unwrap();
    std::fs::set_permissions(lab.pins(), PermissionsExt::from_mode(0o777)).unwrap();
    let error = lab.error(&run, 3);
    assert!(error.contains("others may write to it (mode 777)"), "{error}");
    std::fs::remove_dir(lab.pins()).unwrap();
    std::os::unix::fs::symlink("elsewhere", lab.pins()).unwrap();
    std::fs::create_dir(lab.pins().with_file_name("elsewhere")).unwrap();
    let error = lab.error(&run, 3);
    assert!(error.contains("is a symbolic link"), "{error}");
    assert_eq!(lab.xdp(INTERFACE), None);
}
