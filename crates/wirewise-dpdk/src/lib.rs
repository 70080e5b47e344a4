// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]

mod device;
mod eal;
mod kernel;
mod lane;
mod memory;
mod port;

pub use eal::drivers;
pub use lane::DpdkLane;
pub use memory::{Account, account, closed};

use kernel::Space;
use memory::Pool;
use port::Port;
use std::sync::Arc;

/// Queues of a device, for DPDK.
const MOST: u32 = 1024;
/// Packet buffers of a lane with one port and with two: a power of two, less one. AF_XDP keeps 2048 of a port
/// to receive into and up to 2048 that it is sending; cards keep their descriptors.
const MBUFS_ONE: u32 = 8191;
const MBUFS_TWO: u32 = 16383;
/// One of them, rounded up, with its headers.
const MBUF_BYTES: u64 = 2560;

/// Opens devices with as many lanes. What comes in on the first and passes goes out on the second, and the
/// other way; without a second the lanes only watch. A device is a virtual device of DPDK's with its
/// arguments (`net_af_packet0,iface=eth1`), a PCI address, or a kernel interface's name (`eth1`), which means
/// `net_af_packet` over it. Interfaces are those of the calling thread's network namespace.
///
/// Any threads may use the lanes; when the last of them is dropped the devices are given back.
pub fn open(first: &str, second: Option<&str>, lanes: u32) -> Result<Vec<DpdkLane>, String> {
    let devices: Vec<&str> = std::iter::once(first).chain(second).collect();
    if let Some(device) = devices.iter().find(|device| device::name_of(device).is_empty()) {
        return Err(format!("{device:?}: names no device; write it like eth1 or net_af_packet0,iface=eth1"));
    }
    if !(1..=MOST).contains(&lanes) {
        return Err(format!("{first}: {lanes} lanes; there must be 1 at least and {MOST} at most"));
    }
    let ports = Arc::new(Ports::open(&devices, lanes as u16)?);
    let lane = |queue| DpdkLane::new(Arc::clone(&ports), queue);
    Ok((0..lanes as u16).map(lane).collect())
}

fn mbufs(devices: usize) -> u32 {
    if devices > 1 { MBUFS_TWO } else { MBUFS_ONE }
}

/// The bytes of so many lanes' packet buffers, and those that EAL is started with. What is not used of them is not taken, so there is
/// room for a plane with more lanes later.
pub fn footprint(devices: usize, lanes: u32) -> (u64, u64) {
    let packets = u64::from(lanes) * u64::from(mbufs(devices)) * MBUF_BYTES;
    (packets, (packets + (64 << 20)).max(256 << 20))
}

/// What the lanes of a plane share, closed when the last of them goes.
struct Ports {
    ports: Vec<Port>,
    /// One for each lane.
    pools: Vec<Pool>,
    space: Space,
}

// SAFETY: the pointers are DPDK's, whose memory any thread may use; control functions are called under EAL's
// lock.
unsafe impl Send for Ports {}
// SAFETY: as above; through a shared reference lanes use their own queue and pool, and statistics, which are
// only read.
unsafe impl Sync for Ports {}

impl Ports {
    fn open(devices: &[&str], lanes: u16) -> Result<Ports, String> {
        let mut ports = Ports { ports: Vec::new(), pools: Vec::new(), space: Space::here()? };
        // A failure closes what is open already, for which the lock must be free again.
        ports.build(devices, lanes)?;
        Ok(ports)
    }

    fn build(&mut self, devices: &[&str], lanes: u16) -> Result<(), String> {
        let mut eal = eal::lock();
        let mbufs = mbufs(devices.len());
        eal::start(&mut eal, devices, footprint(devices.len(), u32::from(lanes)).1 >> 20)?;
        // What was said before has nothing to do with this.
        eal::said();
        for device in port::written_out(devices, lanes) {
            self.ports.push(Port::plug(&device)?);
        }
        let numbers: Vec<u32> = self.ports.iter().filter_map(Port::interface).collect();
        if matches!(numbers[..], [one, other] if one == other) {
            let devices = devices.join(" ");
            return Err(format!("{devices}: both are the same interface; name two, or packets go round"));
        }
        for port in &self.ports {
            port.fits(lanes)?;
        }
        for _ in 0..lanes {
            self.pools.push(Pool::new(mbufs)?);
        }
        for port in &mut self.ports {
            port.begin(&self.pools, &self.space)?;
        }
        Ok(())
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        let _eal = eal::lock();
        let Ports { ports, pools, space } = self;
        space.inside(|| ports.iter_mut().for_each(|port| port.close(space)));
        memory::free(pools);
    }
}
