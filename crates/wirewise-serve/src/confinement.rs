// SPDX-License-Identifier: Apache-2.0
//! System calls that neither the service nor a command of the agent ever makes, which the kernel refuses to them from here on: what a fault
//! in what reads packets, requests or bundles could not be made to do. The unit for systemd admits still fewer; this also holds without it.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

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

/// For all threads of this process, and what they start, until they end. A refused call is answered with EPERM. Where the kernel has no
/// filters, or those around this process leave it no right to more, the service works as well without.
pub fn begin() {
    let applied = filter()
        .and_then(|filter| seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string()));
    if let Err(why) = applied {
        tracing::warn!("system calls that the service never makes are not refused (seccomp): {why}");
    }
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
        begin();
        assert_eq!(changes_nothing(), Some(libc::EPERM));
        assert_eq!(std::thread::spawn(changes_nothing).join().unwrap(), Some(libc::EPERM));
        let status = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    }
}
