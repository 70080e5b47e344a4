// SPDX-License-Identifier: Apache-2.0
//! The XDP program that hands packets to the sockets, attached for as long as this process holds it. A VLAN tag that the driver took off goes
//! back to its place first, where the kernel can say which it was (Linux 6.8): the bytes alone would be another network's packet.

use std::ffi::{CStr, c_void};
use std::io::Error;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use libbpf_sys as bpf;

use super::interface::Interface;
use crate::kernel::assembler::{
    self, ADD, CALL, EXIT, IF_BEYOND, IF_NOT, KERNEL_FUNCTION, LOAD_MAP, LOAD_U16, LOAD_U32, Line, MOVE,
    SECOND_HALF, SET, STORE_NUMBER, STORE_U16, STORE_U32, THE_MAP, TO_BIG_ENDIAN, assemble,
};
use crate::kernel::objects::{check, owned};
use crate::plane::link;

const XDP_PASS: i32 = bpf::XDP_PASS as i32;
const XDP_DROP: i32 = bpf::XDP_DROP as i32;
const REDIRECT_MAP: i32 = bpf::BPF_FUNC_redirect_map as i32;
const ADJUST_HEAD: i32 = bpf::BPF_FUNC_xdp_adjust_head as i32;

/// The attached program. The link is not pinned, so the kernel detaches it when the last descriptor is
/// closed, whatever ends the process.
pub(super) struct Redirect {
    _link: OwnedFd,
    _map: OwnedFd,
    pub restores_tags: bool,
}

impl Redirect {
    /// sockets : the AF_XDP socket of each queue; packets of other queues stay in the kernel.
    pub fn attach(interface: &Interface, sockets: &[(u32, RawFd)]) -> Result<Self, String> {
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
        let with_tags = assembler::kernel_function(c"bpf_xdp_metadata_rx_vlan_tag")
            .and_then(|tag_of| load_with_tags(interface, &map, tag_of).ok());
        let restores_tags = with_tags.is_some();
        let loaded = match with_tags {
            Some(loaded) => loaded,
            None => {
                let code = assemble(&[BEGIN, TO_SOCKET].concat(), &[], map.as_raw_fd());
                assembler::load(bpf::BPF_PROG_TYPE_XDP, NAME, &code)
                    .map_err(|error| failed("load the XDP program", &error))?
            }
        };
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
        Ok(Self { _link: link, _map: map, restores_tags })
    }
}

const NAME: &CStr = c"xsk_lanes";

/// Where lines jump to.
const UNTAGGED: i16 = i16::MAX;
const DROP: i16 = i16::MAX - 1;

const BEGIN: &[Line] = &[(MOVE, 6, 1, 0, 0)]; // r6: the packet, which calls leave alone
/// A place on the stack for each half of a tag: its ethertype as it lies in a packet, and the rest as a number.
const KIND: i16 = -4;
const REST: i16 = -8;
const STACK: u8 = 10;

/// Asks for the tag that the driver took off; tag_of : the kernel's number of the function that knows.
fn ask_for_tag(tag_of: i32) -> [Line; 8] {
    [
        (STORE_NUMBER, STACK, 0, KIND, 0),
        (STORE_NUMBER, STACK, 0, REST, 0),
        (MOVE, 2, STACK, 0, 0),
        (ADD, 2, 0, 0, KIND.into()),
        (MOVE, 3, STACK, 0, 0),
        (ADD, 3, 0, 0, REST.into()),
        (CALL, 0, KERNEL_FUNCTION, 0, tag_of),
        (IF_NOT, 0, 0, UNTAGGED, 0), // there is none
    ]
}

/// Puts it between the addresses and the ethertype.
const PUT_TAG: &[Line] = &[
    (MOVE, 1, 6, 0, 0),
    (SET, 2, 0, 0, -4),
    (CALL, 0, 0, 0, ADJUST_HEAD),
    (IF_NOT, 0, 0, DROP, 0), // no room in front of the packet
    (LOAD_U32, 2, 6, 0, 0),  // r2: where the packet starts now
    (LOAD_U32, 3, 6, 4, 0),  // r3: where it ends
    (MOVE, 4, 2, 0, 0),
    (ADD, 4, 0, 0, 18),
    (IF_BEYOND, 4, 3, DROP, 0),
    (LOAD_U32, 5, 2, 4, 0),
    (STORE_U32, 2, 5, 0, 0),
    (LOAD_U32, 5, 2, 8, 0),
    (STORE_U32, 2, 5, 4, 0),
    (LOAD_U32, 5, 2, 12, 0),
    (STORE_U32, 2, 5, 8, 0),
    (LOAD_U16, 5, STACK, KIND, 0),
    (STORE_U16, 2, 5, 12, 0),
    (LOAD_U16, 5, STACK, REST, 0),
    (TO_BIG_ENDIAN, 5, 0, 0, 16),
    (STORE_U16, 2, 5, 14, 0),
];
/// bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS): packets of a queue without a socket stay in the kernel.
const TO_SOCKET: &[Line] = &[
    (LOAD_U32, 2, 6, 16, 0),      // r2: the queue
    (LOAD_MAP, 1, THE_MAP, 0, 0), // r1: the sockets
    SECOND_HALF,
    (SET, 3, 0, 0, XDP_PASS), // r3: the outcome where there is no socket
    (CALL, 0, 0, 0, REDIRECT_MAP),
    (EXIT, 0, 0, 0, 0),
];
const END: &[Line] = &[(SET, 0, 0, 0, XDP_DROP), (EXIT, 0, 0, 0, 0)];

fn load_with_tags(interface: &Interface, map: &OwnedFd, tag_of: i32) -> Result<OwnedFd, Error> {
    let before = [BEGIN, &ask_for_tag(tag_of), PUT_TAG].concat();
    let places = [(UNTAGGED, before.len()), (DROP, before.len() + TO_SOCKET.len())];
    let code = assemble(&[&before, TO_SOCKET, END].concat(), &places, map.as_raw_fd());
    assembler::load_for_driver(NAME, &code, interface.index)
}
