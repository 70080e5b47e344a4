// SPDX-License-Identifier: Apache-2.0
//! An AF_XDP socket: every call to the kernel that concerns one.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::rings::{Area, Consumer, Producer, Ring};

/// An AF_XDP socket. Rings are made before it is bound.
pub(super) struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Socket {
    pub fn new() -> Result<Self> {
        // SAFETY: no memory is involved.
        let result = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        done(result)?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(result) }))
    }

    /// Makes `area` the memory of this socket. It must be kept as long as the socket and those that share it.
    pub fn register(&self, area: &Area, frame_size: u32) -> Result<()> {
        let (addr, len) = area.place();
        let memory = libc::xdp_umem_reg {
            addr,
            len,
            chunk_size: frame_size,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)
    }

    pub fn fill(&self, size: u32) -> Result<Producer<u64>> {
        self.ring(libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING, size, true).map(Producer)
    }

    pub fn completion(&self, size: u32) -> Result<Consumer<u64>> {
        let page = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        self.ring(libc::XDP_UMEM_COMPLETION_RING, page, size, false).map(Consumer)
    }

    pub fn rx(&self, size: u32) -> Result<Consumer<libc::xdp_desc>> {
        self.ring(libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING as u64, size, false).map(Consumer)
    }

    pub fn tx(&self, size: u32) -> Result<Producer<libc::xdp_desc>> {
        self.ring(libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING as u64, size, true).map(Producer)
    }

    fn ring<T: Copy>(&self, option: i32, page: u64, size: u32, produces: bool) -> Result<Ring<T>> {
        self.set(libc::SOL_XDP, option, &size)?;
        let all: libc::xdp_mmap_offsets = self.get(libc::XDP_MMAP_OFFSETS)?;
        let at = match option {
            libc::XDP_RX_RING => all.rx,
            libc::XDP_TX_RING => all.tx,
            libc::XDP_UMEM_FILL_RING => all.fr,
            _ => all.cr,
        };
        Ring::map(self.as_raw_fd(), page, &at, size, produces)
    }

    /// with : a bound socket whose memory this one uses too, and whose fill and completion ring if it is of
    /// the same queue. The kernel then takes the other flags from that one and refuses any here.
    pub fn bind(&self, interface: u32, queue: u32, flags: u16, with: Option<RawFd>) -> Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: if with.is_some() { libc::XDP_SHARED_UMEM } else { flags },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: with.unwrap_or(0) as u32,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: an address of `length` bytes that outlives the call.
        done(unsafe { libc::bind(self.as_raw_fd(), (&raw const address).cast(), length) })
    }

    pub fn statistics(&self) -> Result<libc::xdp_statistics> {
        self.get(libc::XDP_STATISTICS)
    }

    /// Whether the kernel puts packets into the memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.get(libc::XDP_OPTIONS)
            .is_ok_and(|options: libc::xdp_options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Makes the kernel look at the TX ring.
    pub fn send(&self) -> Result<()> {
        let none = std::ptr::null();
        // SAFETY: no bytes and no address: the call only wakes the kernel.
        let sent = unsafe { libc::sendto(self.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), 0) };
        done(sent as i32)
    }

    /// Makes the kernel look at the fill ring, and fails if the interface is down or gone.
    pub fn receive(&self) -> Result<()> {
        // SAFETY: as in `send`; a null buffer of no bytes.
        done(unsafe { libc::recv(self.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) } as i32)
    }

    pub fn set<T>(&self, level: i32, option: i32, value: &T) -> Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value has `length` bytes and outlives the call.
        done(unsafe {
            libc::setsockopt(self.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
        })
    }

    /// T : one of the structures of integers of linux/if_xdp.h, where any bytes are a value.
    fn get<T: Copy>(&self, option: i32) -> Result<T> {
        // SAFETY: zeros are a value of a structure of integers.
        let mut value: T = unsafe { std::mem::zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        let to = (&raw mut value).cast();
        // SAFETY: the kernel writes at most `length` bytes there.
        done(unsafe { libc::getsockopt(self.as_raw_fd(), libc::SOL_XDP, option, to, &mut length) })?;
        if length as usize != size_of::<T>() {
            return Err(Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        }
        Ok(value)
    }
}

fn done(result: i32) -> Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
