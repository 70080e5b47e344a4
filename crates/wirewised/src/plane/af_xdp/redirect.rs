// SPDX-License-Identifier: Apache-2.0
//! The XDP program that hands packets to the sockets, attached for as long as this process holds it: all of them on a wire between two
//! interfaces; where they go back to the host, those of IP, as all else (ARP, LLDP, ...) is better left to the kernel.

use std::ffi::c_void;
use std::io::Error;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use libbpf_sys as bpf;

use super::interface::Interface;
use crate::kernel::assembler::{
    self, ADD, CALL, EXIT, IF_ABOVE, IF_BELOW, IF_BEYOND, IF_EQUAL, IF_NOT, LOAD_MAP, LOAD_U8, LOAD_U16,
    LOAD_U32, Line, MOVE, SECOND_HALF, SET, THE_MAP, assemble,
};
use crate::kernel::objects::{check, owned};
use crate::plane::link;

const XDP_PASS: i32 = bpf::XDP_PASS as i32;
const REDIRECT_MAP: i32 = bpf::BPF_FUNC_redirect_map as i32;

/// The attached program. The link is not pinned, so the kernel detaches it when the last descriptor is
/// closed, whatever ends the process.
pub(super) struct Redirect {
    _link: OwnedFd,
    _map: OwnedFd,
}

impl Redirect {
    /// sockets : the AF_XDP socket of each queue; packets of other queues stay in the kernel. for_host : what passes goes back
    /// to the host.
    pub fn attach(interface: &Interface, sockets: &[(u32, RawFd)], for_host: bool) -> Result<Self, String> {
        let name = &interface.name;
        let failed = |what: &str, error: &Error| {
            let way_out = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "; it takes CAP_BPF and CAP_NET_ADMIN (or root)",
                _ => "",
            };
            format!("interface {name}: cannot {what}: {error}{way_out}")
        };
        // SAFETY: the name ends in NUL and outlives the call; no options.
        let map = owned(unsafe {
            bpf::bpf_map_create(
                bpf::BPF_MAP_TYPE_XSKMAP,
                c"xsk_lanes".as_ptr(),
                size_of::<u32>() as u32,
                size_of::<RawFd>() as u32,
                interface.rx_queues,
                std::ptr::null(),
            )
        })
        .map_err(|error| failed("create the map of AF_XDP sockets", &error))?;
        for (queue, socket) in sockets {
            // SAFETY: key and value are four bytes each, as the map was created with, and outlive the call.
            check(unsafe {
                bpf::bpf_map_update_elem(
                    map.as_raw_fd(),
                    std::ptr::from_ref(queue).cast::<c_void>(),
                    std::ptr::from_ref(socket).cast::<c_void>(),
                    0,
                )
            })
            .map_err(|error| failed(&format!("enter the socket of queue {queue} into the map"), &error))?;
        }
        let code = program(map.as_raw_fd(), for_host);
        let loaded = assembler::load(bpf::BPF_PROG_TYPE_XDP, c"xsk_lanes", &code)
            .map_err(|error| failed("load the XDP program", &error))?;
        let link = link::create(loaded.as_fd(), interface.index, bpf::BPF_XDP, bpf::XDP_FLAGS_DRV_MODE);
        let link = link.map_err(|error| {
            let way_out = match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => {
                    "; its driver has no native XDP, `--plane af-packet` works with any driver"
                }
                Some(libc::EBUSY | libc::EEXIST) => {
                    "; another XDP program is attached, see `ip link show` or `bpftool net`, and detach it"
                }
                Some(libc::ENOSPC) => {
                    "; a veth needs at least as many RX queues as its peer has TX queues (ethtool -L)"
                }
                Some(libc::ERANGE | libc::EINVAL) => {
                    "; often an MTU too large for native XDP, or LRO: lower the MTU, `ethtool -K IF lro off`"
                }
                _ => "",
            };
            format!("{}{way_out}", failed("attach the XDP program", &error))
        })?;
        Ok(Self { _link: link, _map: map })
    }
}

/// Where lines jump to.
const PASS: i16 = i16::MAX;
const REDIRECT: i16 = i16::MAX - 1;

/// Ethertypes as they lie in the packet.
const IPV4: i32 = 0x0800_u16.to_be() as i32;
const IPV6: i32 = 0x86dd_u16.to_be() as i32;
const VLAN: i32 = 0x8100_u16.to_be() as i32;
const OUTER_VLAN: i32 = 0x88a8_u16.to_be() as i32;

const WHICH: &[Line] = &[
    (LOAD_U32, 2, 1, 0, 0), // r2: where the packet starts
    (LOAD_U32, 3, 1, 4, 0), // r3: where it ends
    (MOVE, 4, 2, 0, 0),
    (ADD, 4, 0, 0, 14),         // r4: where the Ethernet header ends
    (IF_BEYOND, 4, 3, PASS, 0), // not even that
    (LOAD_U16, 5, 2, 12, 0),    // r5: its ethertype
    (IF_EQUAL, 5, 0, REDIRECT, IPV4),
    (IF_EQUAL, 5, 0, REDIRECT, VLAN),
    (IF_EQUAL, 5, 0, REDIRECT, OUTER_VLAN),
];
/// Without neighbour discovery, which is to IPv6 what ARP is to IPv4: ICMPv6 types 133 to 137.
const IPV6_WITHOUT_DISCOVERY: &[Line] = &[
    (IF_NOT, 5, 0, PASS, IPV6),
    (ADD, 4, 0, 0, 40 + 1),         // r4: where an ICMPv6 type ends
    (IF_BEYOND, 4, 3, REDIRECT, 0), // too short for one
    (LOAD_U8, 5, 2, 14 + 6, 0),     // r5: what follows the IPv6 header
    (IF_NOT, 5, 0, REDIRECT, libc::IPPROTO_ICMPV6),
    (LOAD_U8, 5, 2, 14 + 40, 0), // r5: the ICMPv6 type
    (IF_BELOW, 5, 0, REDIRECT, 133),
    (IF_ABOVE, 5, 0, REDIRECT, 137),
];
/// What got as far as this stays in the kernel.
const END: &[Line] = &[
    (SET, 0, 0, 0, XDP_PASS), // r0: the outcome
    (EXIT, 0, 0, 0, 0),
];
/// bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS): packets of a queue without a socket stay in the kernel.
const TO_SOCKET: &[Line] = &[
    (LOAD_U32, 2, 1, 16, 0),      // r2: the queue; before r1 gets lost
    (LOAD_MAP, 1, THE_MAP, 0, 0), // r1: the sockets
    SECOND_HALF,
    (SET, 3, 0, 0, XDP_PASS), // r3: the outcome where there is no socket
    (CALL, 0, 0, 0, REDIRECT_MAP),
    (EXIT, 0, 0, 0, 0),
];

fn program(map: RawFd, for_host: bool) -> Vec<bpf::bpf_insn> {
    if !for_host {
        return assemble(TO_SOCKET, &[], map);
    }
    let pass = WHICH.len() + IPV6_WITHOUT_DISCOVERY.len();
    let lines = [WHICH, IPV6_WITHOUT_DISCOVERY, END, TO_SOCKET].concat();
    assemble(&lines, &[(PASS, pass), (REDIRECT, pass + END.len())], map)
}
