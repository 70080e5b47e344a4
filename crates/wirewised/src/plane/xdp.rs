// SPDX-License-Identifier: Apache-2.0
//! XDP: in the driver, or behind it on socket buffers. An interface has one program at each.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::abi;
use crate::error::Error;
use crate::interface::offloads::Direction;
use crate::kernel::change;
use crate::kernel::objects::check;
use crate::plane::{Abilities, Component, Drops, Hook, Joining, Plane, Site, link};
use crate::text::shell::quoted;

const AT_XDP: u32 = abi::STEER_REDIRECT
    | abi::STEER_BOUNCE
    | abi::STEER_DSCP
    | abi::STEER_CHALLENGE
    | abi::STEER_CPU
    | abi::STEER_SOCKET
    | abi::STEER_FORWARD
    | abi::STEER_BACKEND
    | abi::STEER_DECAPSULATE
    | abi::STEER_ENCAPSULATE
    | abi::STEER_QFI
    | abi::STEER_INNER_DSCP
    | abi::STEER_BRIDGE
    | abi::STEER_BY_COMPANION
    | abi::STEER_DESCRIBES;

/// The largest MTU whose frames most drivers put into one buffer: a page less the headroom and the kernel's own bookkeeping.
pub const MTU_OF_ONE_BUFFER: u32 = 3_498;

pub const NATIVE: Plane = Plane(&Abilities {
    name: "xdp-native",
    about: "In the driver, before the kernel makes a socket buffer: fast, needs a driver that supports it",
    choose: "the driver can: the cheapest place to drop a packet",
    needs: "a driver with XDP",
    native: true,
    shared: false,
    sees_merged: false,
    direction: Direction::Received,
    drops: Drops::Always,
    steers: AT_XDP,
    place: Site::Kernel(&Xdp::Native),
});

pub const GENERIC: Plane = Plane(&Abilities {
    name: "xdp-generic",
    about: "After the driver, on socket buffers: slower, works on every interface",
    choose: "the driver has no XDP",
    needs: "nothing",
    native: false,
    shared: false,
    sees_merged: true,
    direction: Direction::Received,
    drops: Drops::Always,
    steers: AT_XDP,
    place: Site::Kernel(&Xdp::Generic),
});

/// At which of the two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Xdp {
    Native,
    Generic,
}

/// What the kernel says of XDP in a driver.
#[derive(Debug, Clone, Copy, Default)]
pub struct Driver {
    /// A program runs on the network card itself.
    pub offloaded: bool,
    /// `NETDEV_XDP_ACT_*` bits; 0 before Linux 6.3, which does not tell, and for drivers without XDP.
    pub features: u64,
}

pub fn driver(ifindex: u32) -> io::Result<Driver> {
    let said = ask(ifindex)?;
    Ok(Driver {
        offloaded: program(&said, said.hw_prog_id, libbpf_sys::XDP_ATTACHED_HW) != 0,
        features: said.feature_flags,
    })
}

impl Hook for Xdp {
    fn kind(&self) -> abi::Hook {
        abi::Hook::Xdp
    }

    fn query(&self, ifindex: u32) -> io::Result<Vec<u32>> {
        let said = ask(ifindex)?;
        let program = match self {
            Self::Native => program(&said, said.drv_prog_id, libbpf_sys::XDP_ATTACHED_DRV),
            Self::Generic => program(&said, said.skb_prog_id, libbpf_sys::XDP_ATTACHED_SKB),
        };
        Ok(Some(program).filter(|id| *id != 0).into_iter().collect())
    }

    /// There is one program at a place, which may be a dispatcher.
    fn attach(
        &self,
        program: BorrowedFd<'_>,
        ifindex: u32,
        joining: Joining,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        if let Some(priority) = joining.priority {
            return Component::begin(self.plane(), program, ifindex, priority, pin);
        }
        link::pinned(link::create(program, ifindex, libbpf_sys::BPF_XDP, self.flags())?, pin)
    }

    fn ifindex(&self, link: &libbpf_sys::bpf_link_info) -> Option<u32> {
        let is_xdp = link.type_ == libbpf_sys::BPF_LINK_TYPE_XDP;
        // SAFETY: `xdp` is the part of the union that the type names; read of another it is a number, and not used.
        is_xdp.then_some(unsafe { link.__bindgen_anon_1.xdp.ifindex })
    }

    fn attach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        let flags = self.flags() | libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
        // SAFETY: no options are given; the descriptor is a plain number to the call.
        check(unsafe {
            libbpf_sys::bpf_xdp_attach(ifindex as i32, program.as_raw_fd(), flags, std::ptr::null())
        })
        .map(|_| change::made("attach"))
    }

    fn detach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        let opts = libbpf_sys::bpf_xdp_attach_opts {
            sz: size_of::<libbpf_sys::bpf_xdp_attach_opts>() as _,
            old_prog_fd: program.as_raw_fd(),
            ..Default::default()
        };
        let flags = self.flags() | libbpf_sys::XDP_FLAGS_REPLACE;
        // SAFETY: `opts` says its size and outlives the call.
        check(unsafe { libbpf_sys::bpf_xdp_detach(ifindex as i32, flags, &opts) })
            .map(|_| change::made("detach"))
    }

    fn attach_error(&self, interface: &str, error: &io::Error) -> Error {
        let generic = "`--plane xdp-generic` works on every interface";
        match (error.raw_os_error(), self) {
            (Some(libc::EOPNOTSUPP), Self::Native) => {
                Error::missing(format!("{interface}: the driver has no native XDP; {generic}"))
            }
            (Some(libc::EBUSY | libc::EEXIST), _) => Error::other(format!(
                "{interface}: another XDP program was attached meanwhile; `wirewised doctor --interface {}`",
                quoted(interface)
            )),
            (Some(libc::EPERM | libc::EACCES), _) => {
                Error::missing(format!("{interface}: attaching needs CAP_NET_ADMIN in its network namespace"))
            }
            (Some(libc::ERANGE | libc::EINVAL), Self::Native) => Error::missing(format!(
                "{interface}: the driver refuses native XDP in its present settings ({error}): MTU or LRO, see \
             `wirewised doctor --interface {}`; {generic}",
                quoted(interface)
            )),
            _ => Error::other(format!("{interface}: cannot attach XDP: {error}")),
        }
    }
}

impl Xdp {
    fn plane(self) -> Plane {
        match self {
            Self::Native => NATIVE,
            Self::Generic => GENERIC,
        }
    }

    fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

fn ask(ifindex: u32) -> io::Result<libbpf_sys::bpf_xdp_query_opts> {
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` is a bpf_xdp_query_opts that says its size, and the call fills it.
    check(unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut opts) })?;
    Ok(opts)
}

/// The program in one place. With one program only `prog_id` need be set; its place is then in `attach_mode`.
fn program(said: &libbpf_sys::bpf_xdp_query_opts, there: u32, alone: u32) -> u32 {
    if there == 0 && u32::from(said.attach_mode) == alone { said.prog_id } else { there }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_native_xdp_is_told_from_a_missing_privilege() {
        let error = |code, place: Xdp| place.attach_error("eth0", &io::Error::from_raw_os_error(code));
        let native = error(libc::EOPNOTSUPP, Xdp::Native);
        assert_eq!(native.kind().exit_code(), 3);
        assert!(native.to_string().contains("--plane xdp-generic"), "{native}");
        assert!(error(libc::EPERM, Xdp::Generic).to_string().contains("CAP_NET_ADMIN"));
    }
}
