// SPDX-License-Identifier: Apache-2.0
//! A second cable, for what is forwarded: from the receiver's namespace on to a third one.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_sys as bpf;

use super::{addresses, cannot, plug_in, without_ipv6};
use crate::error::{Error, Result};
use crate::interface::{netns, rtnetlink};
use crate::kernel::assembler::{self, ADD, EXIT, IF_BEYOND, IF_NOT, LOAD_U32, MOVE, SET, assemble};
use crate::plane::{Joining, Plane, Port};

/// The near end of the cable, in the receiver's namespace.
pub const NEAR: &str = "exit";
const FAR: &str = "far";
const FAR_ETHERNET: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Of the near end; who is beyond has the address that the sender's frames go to.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

pub struct Exit {
    namespace: netns::Other,
    index: u32,
    _takes: OwnedFd,
}

impl Exit {
    /// From this thread's namespace.
    pub fn lay() -> Result<Self> {
        let made = |error: io::Error| cannot("make a network namespace", &error);
        let namespace = netns::make_beside().map_err(made)?;
        inside(&namespace, without_ipv6)??;
        rtnetlink::make_veth(NEAR, FAR, namespace.file())
            .map_err(|error| cannot("make a veth pair", &error))?;
        let far = || plug_in(FAR).and_then(|index| Ok((index, take(index, None)?)));
        let (index, takes) = inside(&namespace, far)??;
        plug_in(NEAR)?;
        Ok(Self { namespace, index, _takes: takes })
    }

    /// Has the stack send what is for `to` by this cable.
    pub fn route(&self, to: Ipv4Addr) -> Result<()> {
        addresses::set_ipv4(NEAR, ADDRESS)
            .and_then(|()| addresses::set_neighbour(NEAR, to, FAR_ETHERNET))
            .and_then(|()| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .map_err(|error| cannot("have the kernel route packets", &error))?;
        let set = || addresses::set_ethernet(FAR, FAR_ETHERNET);
        inside(&self.namespace, set)?.map_err(|error| cannot("give an interface an address", &error))
    }

    /// Packets that came out at the far end.
    pub fn arrived(&self) -> Result<u64> {
        let count = inside(&self.namespace, || rtnetlink::received_packets(self.index))?;
        count.map_err(|error| Error::other(format!("the exit's counters cannot be read: {error}")))
    }
}

/// What `work` says in a namespace.
pub(super) fn inside<T: Send>(namespace: &netns::Other, work: impl FnOnce() -> T + Send) -> Result<T> {
    namespace.within(work).ok_or_else(|| Error::other("a namespace is gone"))
}

/// Where in a frame the receiver's address of IPv4 stands, and ends.
const RECEIVER: i16 = 30;
const RECEIVER_END: i32 = 34;
/// Where lines jump to.
const DROP: i16 = i16::MAX;

/// Attaches a program that drops what arrives, but what is for `passes`: that goes to the stack. A veth end takes frames of XDP only where
/// it has a program. Counted they are all the same. A cable would carry the others away, and the stack here would spend time on them.
pub(super) fn take(index: u32, passes: Option<Ipv4Addr>) -> Result<OwnedFd> {
    let wanted = passes.map_or(0, |address| i32::from_ne_bytes(address.octets()));
    let lines = [
        (LOAD_U32, 2, 1, 0, 0), // r2: where the packet starts
        (LOAD_U32, 3, 1, 4, 0), // r3: where it ends
        (MOVE, 4, 2, 0, 0),
        (ADD, 4, 0, 0, RECEIVER_END),
        (IF_BEYOND, 4, 3, DROP, 0),
        (LOAD_U32, 5, 2, RECEIVER, 0),
        (IF_NOT, 5, 0, DROP, wanted),
        (SET, 0, 0, 0, bpf::XDP_PASS as i32),
        (EXIT, 0, 0, 0, 0),
        (SET, 0, 0, 0, bpf::XDP_DROP as i32),
        (EXIT, 0, 0, 0, 0),
    ];
    let code = assemble(&lines, &[(DROP, lines.len() - 2)], -1);
    assembler::load(bpf::BPF_PROG_TYPE_XDP, c"ww_exit", &code)
        .and_then(|program| {
            Plane::XDP_NATIVE.attach(program.as_fd(), Port::Interface(index), Joining::default())
        })
        .map_err(|error| cannot("attach a program that takes frames", &error))
}
