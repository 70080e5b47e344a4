// SPDX-License-Identifier: Apache-2.0
//! The way back into the host's network stack: a tap device beside the interface, with its address, that the kernel receives from as from
//! the wire. It goes with the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use super::interface::Interface;
use crate::interface::socket;

const DEVICE: &str = "/dev/net/tun";
/// Strict reverse-path filter: packets must come in where answers go out.
const STRICT: &str = "1";

pub(super) struct Stack {
    device: File,
    name: String,
}

impl Stack {
    pub fn beside(interface: &Interface) -> Result<Self, String> {
        let filter = setting("ipv4", "all", "rp_filter");
        if fs::read_to_string(&filter).is_ok_and(|value| value.trim() == STRICT) {
            return Err(format!(
                "interface {}: what passes goes back to the host by a device of its own, whose packets the kernel would drop \
                 (net.ipv4.conf.all.rp_filter is 1): `sysctl -w net.ipv4.conf.all.rp_filter=2`, or send it on with --to",
                interface.name
            ));
        }
        Self::make(interface).map_err(|error| {
            format!(
                "interface {}: cannot make a tap device for the way back to the host: {error}",
                interface.name
            )
        })
    }

    fn make(interface: &Interface) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let mut request = request("wwtap%d");
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        ioctl(&device, libc::TUNSETIFF as _, &mut request)?;
        // SAFETY: the kernel wrote a name that ends in a zero byte.
        let name = unsafe { std::ffi::CStr::from_ptr(request.ifr_name.as_ptr()) };
        let made = Self { device, name: name.to_string_lossy().into_owned() };
        made.set_up(interface)?;
        Ok(made)
    }

    /// The interface's address and MTU; no addresses of its own, so nothing is ever sent there.
    fn set_up(&self, interface: &Interface) -> io::Result<()> {
        let asks = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let mut theirs = request(&interface.name);
        ioctl(&asks, libc::SIOCGIFHWADDR as _, &mut theirs)?;
        let mut ours = request(&self.name);
        ours.ifr_ifru = theirs.ifr_ifru;
        ioctl(&asks, libc::SIOCSIFHWADDR as _, &mut ours)?;
        ours.ifr_ifru.ifru_mtu = interface.mtu as libc::c_int;
        ioctl(&asks, libc::SIOCSIFMTU as _, &mut ours)?;
        // What a kernel does not have need not be set.
        for (version, name, value) in
            [("ipv4", "rp_filter", "0"), ("ipv6", "addr_gen_mode", "1"), ("ipv6", "accept_ra", "0")]
        {
            let _ = fs::write(setting(version, &self.name, name), value);
        }
        ours.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_NOARP) as libc::c_short;
        ioctl(&asks, libc::SIOCSIFFLAGS as _, &mut ours)
    }

    /// False: the kernel had no room for the packet.
    pub fn give(&self, packet: &[u8]) -> Result<bool, String> {
        match (&self.device).write(packet) {
            // A packet is taken whole or not at all.
            Ok(length) => Ok(length == packet.len()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN | libc::EINVAL | libc::EINTR) => Ok(false),
                _ => Err(format!("{}, the way back to the host: {error}", self.name)),
            },
        }
    }
}

fn setting(version: &str, interface: &str, name: &str) -> String {
    format!("/proc/sys/net/{version}/conf/{interface}/{name}")
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
