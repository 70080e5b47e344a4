// SPDX-License-Identifier: Apache-2.0
//! Addresses of the ends of a cable, for what goes through the stack.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use crate::interface::socket;

/// `SIOCSARP` and `ATF_*` of linux/if_arp.h, which libc does not have for every target.
const SET_NEIGHBOUR: libc::c_ulong = 0x8955;
const COMPLETE: i32 = 2;
const PERMANENT: i32 = 4;
const ETHERNET: u16 = 1;

/// `struct arpreq`.
#[repr(C)]
struct Neighbour {
    address: libc::sockaddr,
    hardware: libc::sockaddr,
    flags: i32,
    netmask: libc::sockaddr,
    device: [libc::c_char; 16],
}

/// Gives an interface of this thread's namespace an Ethernet address.
pub fn set_ethernet(interface: &str, address: [u8; 6]) -> io::Result<()> {
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_hwaddr = hardware(address);
    control(libc::SIOCSIFHWADDR, &raw mut request)
}

/// Gives an interface an IPv4 address with a prefix of 24 bits.
pub fn set_ipv4(interface: &str, address: Ipv4Addr) -> io::Result<()> {
    let mut request = named(interface)?;
    request.ifr_ifru.ifru_addr = internet(address);
    control(libc::SIOCSIFADDR, &raw mut request)?;
    request.ifr_ifru.ifru_netmask = internet(Ipv4Addr::new(255, 255, 255, 0));
    control(libc::SIOCSIFNETMASK, &raw mut request)
}

/// Who has an IPv4 address, for good: nobody is asked.
pub fn set_neighbour(interface: &str, address: Ipv4Addr, ethernet: [u8; 6]) -> io::Result<()> {
    let device = name(interface)?;
    let mut request = Neighbour {
        address: internet(address),
        hardware: hardware(ethernet),
        flags: COMPLETE | PERMANENT,
        netmask: internet(Ipv4Addr::UNSPECIFIED),
        device,
    };
    control(SET_NEIGHBOUR, &raw mut request)
}

fn named(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zero is a value of every field of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name(interface)?;
    Ok(request)
}

fn name(interface: &str) -> io::Result<[libc::c_char; 16]> {
    let mut name = [0; 16];
    if interface.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name.iter_mut().zip(interface.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    Ok(name)
}

fn internet(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    data[2..6].iter_mut().zip(address.octets()).for_each(|(to, byte)| *to = byte as libc::c_char);
    libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: data }
}

fn hardware(address: [u8; 6]) -> libc::sockaddr {
    let mut data = [0; 14];
    data.iter_mut().zip(address).for_each(|(to, byte)| *to = byte as libc::c_char);
    libc::sockaddr { sa_family: ETHERNET, sa_data: data }
}

/// request : what the call reads, as long as it is.
fn control<T>(call: libc::c_ulong, request: *mut T) -> io::Result<()> {
    let socket = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: each caller gives the structure of its call, which outlives it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), call as _, request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
