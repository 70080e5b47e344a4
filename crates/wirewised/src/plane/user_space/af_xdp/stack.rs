// SPDX-License-Identifier: Apache-2.0
//! The way back into the host's network stack. Packets are sent to a tap device of our own, where a program at TC hands them to the
//! interface's receive path before anything else sees them. So the kernel receives them from that interface, and from no other: its groups,
//! VLANs, bridges, filters and sockets are the packets'. The device goes with the process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use libbpf_sys as bpf;
use wirewise_lane::BURST;

use super::interface::Interface;
use crate::interface::socket;
use crate::kernel::assembler::{
    self, ADD_REGISTER, CALL, EXIT, IF_DIFFERS, Line, SET, SET_LOW, SHIFT_LEFT, assemble,
};
use crate::plane::{Joining, Plane, Port};

const DEVICE: &str = "/dev/net/tun";
/// Of packets that the kernel has not received yet.
const SEND_BUFFER: libc::c_int = 8 << 20;

pub(super) struct Stack {
    socket: OwnedFd,
    name: String,
    _program: OwnedFd,
    _device: File,
}

impl Stack {
    /// longest : bytes of a packet at most.
    pub fn of(interface: &Interface, longest: u32) -> Result<Self, String> {
        Self::make(interface, longest).map_err(|error| {
            format!("interface {}: cannot make the way back to the host: {error}", interface.name)
        })
    }

    fn make(interface: &Interface, longest: u32) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let mut request = request("wwtap%d");
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        ioctl(&device, libc::TUNSETIFF as _, &mut request)?;
        // SAFETY: the kernel wrote a name that ends in a zero byte.
        let name = unsafe { std::ffi::CStr::from_ptr(request.ifr_name.as_ptr()) };
        let name = name.to_string_lossy().into_owned();
        let asks = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        ioctl(&asks, libc::SIOCGIFINDEX as _, &mut request)?;
        // SAFETY: the call before wrote this part of the union.
        let index = unsafe { request.ifr_ifru.ifru_ifindex } as u32;

        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        // Whoever may not exceed the limit on buffers has that limit.
        socket::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)
            .or_else(|_| socket::set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER))?;
        socket::bind(&socket, index, 0)?;
        let cookie = socket::get(&socket, libc::SOL_SOCKET, libc::SO_COOKIE)?;
        let program = assembler::load(
            bpf::BPF_PROG_TYPE_SCHED_CLS,
            c"wwtap_to_host",
            &assemble(&to_host(interface.index, cookie), &[], RawFd::default()),
        )?;
        let program = Plane::TC_EGRESS.attach(program.as_fd(), Port::Interface(index), Joining::default())?;
        // The kernel would say of itself that it is there. A kernel without IPv6 has nothing to say.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        request.ifr_ifru.ifru_mtu = longest as libc::c_int;
        ioctl(&asks, libc::SIOCSIFMTU as _, &mut request)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_NOARP) as libc::c_short;
        ioctl(&asks, libc::SIOCSIFFLAGS as _, &mut request)?;
        Ok(Self { socket, name, _program: program, _device: device })
    }

    /// Gives packets to the host, at most `BURST`. Returns how many the kernel took, and for how many it had no room.
    pub fn give<'a>(&self, packets: impl Iterator<Item = &'a [u8]>) -> Result<(u64, u64), String> {
        let mut parts: [libc::iovec; BURST] =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURST];
        let mut count = 0;
        for (part, packet) in parts.iter_mut().zip(packets) {
            *part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
            count += 1;
        }
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        for (message, part) in messages.iter_mut().zip(&mut parts[..count]) {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
        }
        // SAFETY: each message has one part, which is a packet that outlives the call.
        unsafe { socket::send_each(&self.socket, &mut messages[..count]) }
            .map_err(|error| format!("{}, the way back to the host: {error}", self.name))
    }
}

/// What our socket sends is received by the interface, and all else ends here: programs that send by every interface there is mean others.
fn to_host(interface: u32, cookie: u64) -> [Line; 12] {
    /// `TC_ACT_SHOT` (linux/pkt_cls.h).
    const SHOT: i32 = 2;
    const DROP: i16 = 4;
    [
        (CALL, 0, 0, 0, bpf::BPF_FUNC_get_socket_cookie as i32), // r0: whose the packet is
        (SET, 1, 0, 0, (cookie >> 32) as i32),
        (SHIFT_LEFT, 1, 0, 0, 32),
        (SET_LOW, 2, 0, 0, cookie as i32),
        (ADD_REGISTER, 1, 2, 0, 0), // r1: our socket
        (IF_DIFFERS, 0, 1, DROP, 0),
        (SET_LOW, 1, 0, 0, interface as i32),
        (SET, 2, 0, 0, bpf::BPF_F_INGRESS as i32),
        (CALL, 0, 0, 0, bpf::BPF_FUNC_redirect as i32),
        (EXIT, 0, 0, 0, 0),
        (SET, 0, 0, 0, SHOT),
        (EXIT, 0, 0, 0, 0),
    ]
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: zero is a value of every field of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

fn ioctl(of: &impl AsRawFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is an ifreq that outlives the call, which all these calls take.
    let code = unsafe { libc::ioctl(of.as_raw_fd(), what as _, request) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
