// SPDX-License-Identifier: Apache-2.0
//! A second cable, for what is forwarded: from the receiver's namespace on to a third one.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_sys as bpf;

use super::{addresses, cannot, plug_in, without_ipv6};
use crate::error::{Error, Result};
use crate::interface::{netns, rtnetlink};
use crate::kernel::assembler::{self, EXIT, SET, assemble};
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
        let far = || plug_in(FAR).and_then(|index| Ok((index, take(index, false)?)));
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

/// Attaches a program that drops what arrives, or passes it to the stack: a veth end takes frames of XDP only where it has a program.
/// Counted they are all the same.
pub(super) fn take(index: u32, passes: bool) -> Result<OwnedFd> {
    let verdict = if passes { bpf::XDP_PASS } else { bpf::XDP_DROP };
    let code = assemble(&[(SET, 0, 0, 0, verdict as i32), (EXIT, 0, 0, 0, 0)], &[], -1);
    assembler::load(bpf::BPF_PROG_TYPE_XDP, c"ww_exit", &code)
        .and_then(|program| {
            Plane::XDP_NATIVE.attach(program.as_fd(), Port::Interface(index), Joining::default())
        })
        .map_err(|error| cannot("attach a program that takes frames", &error))
}
