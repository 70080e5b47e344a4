// SPDX-License-Identifier: Apache-2.0
//! TC, by tcx links or, on kernels that have none, by filters of clsact: on socket buffers, in either direction. Programs of others may be
//! at the same place; what the one before lets through, the next one sees.

mod filter;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use crate::abi;
use crate::error::Error;
use crate::interface::offloads::Direction;
use crate::kernel::objects::check;
use crate::plane::{Abilities, Drops, Hook, Joining, Order, Plane, Site, link};
use crate::text::shell::quoted;
pub use filter::{Filter, FilterHandle};

const OF_BUFFERS: u32 = abi::STEER_REDIRECT | abi::STEER_DSCP | abi::STEER_BY_COMPANION | abi::STEER_VERDICTS;

pub const INGRESS: Plane = Plane(&Abilities {
    name: "tc-ingress",
    about: "Incoming packets at TC, beside the programs of others",
    choose: "programs of others are attached there too",
    needs: "nothing",
    native: false,
    shared: true,
    sees_merged: true,
    direction: Direction::Received,
    drops: Drops::Always,
    steers: abi::STEER_BOUNCE | abi::STEER_BACKEND | abi::STEER_FORWARD | abi::STEER_BRIDGE | OF_BUFFERS,
    place: Site::Kernel(&Tc::Ingress),
});

pub const EGRESS: Plane = Plane(&Abilities {
    name: "tc-egress",
    about: "Outgoing packets at TC, as the host hands them over",
    choose: "what this host sends is to be judged",
    needs: "nothing",
    native: false,
    shared: true,
    sees_merged: true,
    direction: Direction::Sent,
    drops: Drops::Always,
    steers: OF_BUFFERS,
    place: Site::Kernel(&Tc::Egress),
});

/// In which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tc {
    Ingress,
    Egress,
}

/// The first kernel with tcx links.
pub const SINCE: &str = "6.6";
/// Of one direction of one interface: BPF_MPROG_MAX.
const MOST_PROGRAMS: usize = 64;

/// Whether this kernel has tcx, as it says itself of an interface.
pub fn is_there(ifindex: u32) -> bool {
    ask(ifindex, Tc::Ingress).is_ok()
}

impl Hook for Tc {
    fn kind(&self) -> abi::Hook {
        match self {
            Self::Ingress => abi::Hook::TcIngress,
            Self::Egress => abi::Hook::TcEgress,
        }
    }

    /// Those of tcx in the order in which they see packets, then ours of a filter.
    fn query(&self, ifindex: u32) -> io::Result<Vec<u32>> {
        let mut programs = match ask(ifindex, *self) {
            // A kernel without tcx has nothing there.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Vec::new(),
            programs => programs?,
        };
        programs.extend(filter::programs(*self, ifindex));
        Ok(programs)
    }

    fn ifindex(&self, link: &libbpf_sys::bpf_link_info) -> Option<u32> {
        let is_tcx = link.type_ == libbpf_sys::BPF_LINK_TYPE_TCX;
        // SAFETY: `tcx` is the part of the union that the type names; read of another it is a number, and not used.
        is_tcx.then_some(unsafe { link.__bindgen_anon_1.tcx.ifindex })
    }

    fn attach(
        &self,
        program: BorrowedFd<'_>,
        ifindex: u32,
        joining: Joining,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        if joining.clsact || !is_there(ifindex) {
            return Filter::begin(*self, program, ifindex, joining.order, pin);
        }
        // Before or after nothing in particular: at the head, or the tail.
        let flags = match joining.order {
            Order::First | Order::Companion | Order::Priority(_) => libbpf_sys::BPF_F_BEFORE,
            Order::Last => libbpf_sys::BPF_F_AFTER,
        };
        link::pinned(link::create(program, ifindex, self.attach_type(), flags)?, pin)
    }

    /// A tcx program is never in the way, so nothing is put back.
    fn attach_without_link(&self, _: BorrowedFd<'_>, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn detach_without_link(&self, _: BorrowedFd<'_>, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn attach_error(&self, interface: &str, error: &io::Error) -> Error {
        let plane = self.name();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => Error::missing(format!(
                "{interface}: this kernel has neither tcx (Linux {SINCE}) nor filters of clsact (CONFIG_NET_CLS_BPF, CONFIG_NET_SCH_INGRESS),                  one of which {plane} needs; `--plane xdp-generic` works on every interface"
            )),
            Some(libc::EINVAL) => Error::other(format!(
                "{interface}: a filter of another kind has the place of {plane}; `tc filter show dev {}` shows it, `--order last` takes another place",
                quoted(interface)
            )),
            Some(libc::ERANGE) => Error::other(format!(
                "{interface}: {MOST_PROGRAMS} programs are attached as {plane}, and the kernel takes no more; `bpftool net` shows them"
            )),
            Some(libc::EPERM | libc::EACCES) => {
                Error::missing(format!("{interface}: attaching needs CAP_NET_ADMIN in its network namespace"))
            }
            _ => Error::other(format!("{interface}: cannot attach as {plane}: {error}")),
        }
    }
}

impl Tc {
    fn name(self) -> &'static str {
        match self {
            Self::Ingress => INGRESS.name(),
            Self::Egress => EGRESS.name(),
        }
    }

    fn point(self) -> libbpf_sys::bpf_tc_attach_point {
        match self {
            Self::Ingress => libbpf_sys::BPF_TC_INGRESS,
            Self::Egress => libbpf_sys::BPF_TC_EGRESS,
        }
    }

    fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

fn ask(ifindex: u32, place: Tc) -> io::Result<Vec<u32>> {
    let mut programs = [0; MOST_PROGRAMS];
    let mut opts = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        ..Default::default()
    };
    opts.__bindgen_anon_1.count = MOST_PROGRAMS as u32;
    // SAFETY: `opts` says its size and how many numbers `programs` has room for; both outlive the call.
    check(unsafe { libbpf_sys::bpf_prog_query_opts(ifindex as i32, place.attach_type(), &mut opts) })?;
    // SAFETY: the call wrote the number of programs there.
    let count = unsafe { opts.__bindgen_anon_1.count } as usize;
    Ok(programs[..count.min(MOST_PROGRAMS)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_tc_is_told_from_a_full_place() {
        let error = |code| Tc::Egress.attach_error("eth0", &io::Error::from_raw_os_error(code)).to_string();
        assert!(error(libc::ENOENT).contains("Linux 6.6"));
        assert!(error(libc::EINVAL).contains("tc filter show dev eth0"));
        assert!(error(libc::ERANGE).contains("64 programs are attached as tc-egress"));
        assert!(error(libc::EPERM).contains("CAP_NET_ADMIN"));
    }
}
