// SPDX-License-Identifier: Apache-2.0
//! Too little memory: `run` says which limit it is and what to do, leaves nothing, and traffic flows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use test_needs::{Need, skip};

use crate::lab::{BENIGN, INTERFACE, Lab};
use crate::quiet::PATIENCE;

/// Tables of several hundred MiB.
const LARGE: &str = "--flow-table-size 1048576";

fn refused(lab: &Lab, plane: &str, options: &str, says: &[&str]) {
    let error = lab.error(
        &format!("run --bundle b.wirewise --interface {INTERFACE} --plane {plane} {options} --yes"),
        1,
    );
    for said in says {
        assert!(error.contains(said), "{plane}: {said}: {error}");
    }
    lab.assert_untouched();
    assert_eq!(lab.send(2000, BENIGN, 3), 3, "{plane}");
}

#[test]
fn too_few_addresses_are_named() {
    let Some(mut lab) = Lab::new() else { return };
    let planes =
        if cfg!(feature = "dpdk") { &["af-packet", "af-xdp", "dpdk"][..] } else { &["af-packet", "af-xdp"] };
    for plane in planes {
        for mebibytes in [60, 100] {
            lab.run_by(&["prlimit", &format!("--as={}", mebibytes << 20)]);
            refused(&lab, plane, "", &["too little memory", "address space is", "MiB are left", "ulimit -v"]);
        }
    }
}

#[test]
fn too_little_locked_memory_is_named() {
    let Some(mut lab) = Lab::new() else { return };
    // Who may lock memory is not limited.
    let limited = |bytes: u32| {
        let limit = format!("--memlock={bytes}");
        ["setpriv", "--bounding-set=-ipc_lock", "prlimit", &limit].map(String::from)
    };
    let words = limited(64 << 10);
    lab.run_by(&words.each_ref().map(String::as_str));
    refused(&lab, "af-xdp", "", &["ww0", "cannot share memory", "ulimit -l", "CAP_IPC_LOCK", "8 MiB"]);
    // Nor is it ever taken for attached meanwhile.
    let mut agent = lab.foreground("--plane af-xdp");
    while agent.0.try_wait().unwrap().is_none() {
        assert!(!lab.run("status --check").status.success());
    }
    assert!(!agent.0.wait().unwrap().success());
    lab.assert_untouched();
    // That much is enough.
    let words = limited(8 << 20);
    lab.run_by(&words.each_ref().map(String::as_str));
    let mut agent = lab.foreground("--plane af-xdp --json");
    let begin = std::time::Instant::now();
    while !lab.run("status --check").status.success() {
        assert!(begin.elapsed() < PATIENCE && agent.0.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    agent.signal(libc::SIGTERM);
    assert!(agent.0.wait().unwrap().success());
    lab.assert_untouched();
}

/// A control group with a limit, without anybody in it.
struct Group(PathBuf);

impl Group {
    fn with_limit(bytes: u64) -> Option<Self> {
        for (tree, file) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self(Path::new(tree).join(format!("wirewised-{}", std::process::id())));
            if Path::new(tree).join("cgroup.procs").exists()
                && fs::create_dir(&group.0).is_ok()
                && group.0.join(file).exists()
                && fs::write(group.0.join(file), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is busy until the last process is quite gone.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => return,
            }
        }
    }
}

#[test]
fn a_control_group_that_is_too_small_is_named_before_the_kernel_kills() {
    let Some(mut lab) = Lab::new() else { return };
    let Some(group) = Group::with_limit(100 << 20) else {
        skip(Need::Tools, "no control group with a limit on memory can be made here");
        return;
    };
    let name = group.0.display().to_string();
    let enter = format!("echo $$ > {name}/cgroup.procs && exec \"$@\"");
    lab.run_by(&["sh", "-c", &enter, "sh"]);
    let planes = ["xdp-native", "tc-ingress", "af-packet", "af-xdp", "dpdk"];
    for plane in planes.into_iter().filter(|plane| *plane != "dpdk" || cfg!(feature = "dpdk")) {
        let says = [&name, "too little memory", "is 100.0 MiB", "MemoryMax=", "--flow-table-size"];
        refused(&lab, plane, LARGE, &says);
    }
    // What fits runs.
    lab.attach("--flow-table-size 1024");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}
