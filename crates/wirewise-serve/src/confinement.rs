// SPDX-License-Identifier: Apache-2.0
//! What a fault in the code that reads packets, requests or bundles cannot be made to do, with or without the unit for systemd: use capabilities
//! that nothing here needs, and make system calls that neither the service nor a command of the agent ever makes.

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use crate::config::Config;

/// Loading programs, attaching them, and the verifier's leave to use pointers as the flow table does.
const PROGRAMS: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::NET_ADMIN).union(CapabilitySet::PERFMON);
/// Only for the agent's commands, to which they are passed on: raw sockets and locked memory of planes in user space.
const FOR_COMMANDS: CapabilitySet = CapabilitySet::NET_RAW.union(CapabilitySet::IPC_LOCK);

/// Modules and kernels, the machine's time and power, other processes' memory, mounts and roots, ports, keys, other machines' calls.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_personality,
    libc::SYS_vhangup,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// For this process and all that it starts, until they end. Comes before its other threads, because each thread has capabilities of its own. What
/// the process does not have, as in a container, it does without.
pub fn begin(config: &Config) {
    if let Err(why) = drop_capabilities(config) {
        tracing::warn!("capabilities that the service does not need are kept: {why}");
    }
    if let Err(why) = refuse_calls() {
        tracing::warn!("system calls that the service never makes are not refused (seccomp): {why}");
    }
}

/// What the service uses itself.
fn needs(config: &Config) -> CapabilitySet {
    let admin = if config.needs_admin() { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    let raw = if config.evidence.is_some() { CapabilitySet::NET_RAW } else { CapabilitySet::empty() };
    PROGRAMS | admin | raw
}

fn drop_capabilities(config: &Config) -> Result<(), Errno> {
    // Even if the bounding set has more, a program that is started gets nothing back.
    thread::set_no_new_privs(true)?;
    let own = needs(config);
    let kept = own | FOR_COMMANDS;
    for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        // An error: the kernel knows no capability of this number.
        let is_bound = thread::capability_is_in_bounding_set(capability).unwrap_or(false);
        if is_bound && !kept.contains(capability) {
            match thread::remove_capability_from_bounding_set(capability) {
                // Without CAP_SETPCAP, as under the unit, the set stays as it is.
                Err(Errno::PERM) => break,
                result => result?,
            }
        }
    }
    let mut sets = thread::capabilities(None)?;
    sets.permitted &= kept;
    sets.inheritable &= kept;
    sets.effective &= own;
    thread::set_capabilities(None, sets)
}

/// A refused call is answered with EPERM.
fn refuse_calls() -> Result<(), String> {
    seccompiler::apply_filter_all_threads(&filter()?).map_err(|error| error.to_string())
}

fn filter() -> Result<BpfProgram, String> {
    let rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;

    use super::*;

    const CHILD: &str = "WW_TEST_CONFINED";

    /// In a process of its own, for there is no way back.
    #[test]
    fn calls_that_nobody_makes_are_refused_to_what_is_started_too() {
        if std::env::var_os(CHILD).is_none() {
            let me = std::env::current_exe().unwrap();
            let name = "confinement::tests::calls_that_nobody_makes_are_refused_to_what_is_started_too";
            let output =
                Command::new(me).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        // Reads only, so root may, but for the filter.
        let changes_nothing = || {
            // SAFETY: takes a number only; this one asks and changes nothing.
            let answer = unsafe { libc::personality(0xffff_ffff) };
            if answer < 0 { io::Error::last_os_error().raw_os_error() } else { None }
        };
        assert_eq!(changes_nothing(), None);
        refuse_calls().unwrap();
        assert_eq!(changes_nothing(), Some(libc::EPERM));
        assert_eq!(std::thread::spawn(changes_nothing).join().unwrap(), Some(libc::EPERM));
        let status = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    }
}
