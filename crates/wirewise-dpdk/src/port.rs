// SPDX-License-Identifier: Apache-2.0
//! A device of DPDK's: plugged in, given its queues, started, and closed again.

use super::device::{argument, is_pci, name_of};
use super::eal::check;
use super::kernel::{self, Socket, Space};
use super::memory::Pool;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dpdk_info(port: u16, out: *mut Info) -> c_int;
    fn dpdk_begin(port: u16, queues: u16, pools: *const *mut c_void, step: *mut *const c_char) -> c_int;
    fn dpdk_stats(port: u16, queue: u16, lost: *mut u64, sent: *mut u64) -> c_int;
    fn rte_dev_probe(device: *const c_char) -> c_int;
    fn rte_dev_remove(device: *mut c_void) -> c_int;
    fn rte_eth_dev_get_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    fn rte_eth_dev_is_removed(port: u16) -> c_int;
    fn rte_eth_dev_stop(port: u16) -> c_int;
    fn rte_eth_dev_close(port: u16) -> c_int;
    fn rte_eth_promiscuous_enable(port: u16) -> c_int;
    fn rte_eth_promiscuous_disable(port: u16) -> c_int;
}

#[repr(C)]
struct Info {
    device: *mut c_void,
    interface: u32,
    queues: u16,
    driver: [u8; 32],
}

pub struct Port {
    pub id: u16,
    /// As it was asked for; it stands in messages.
    text: String,
    info: Info,
    /// Made so by this.
    promiscuous: bool,
    started: bool,
    /// What its driver opened and does not look after.
    sockets: Vec<Socket>,
}

/// The number of a port, by its device's name.
fn port(name: &str) -> Result<u16, c_int> {
    let name = CString::new(name).map_err(|_| -libc::EINVAL)?;
    let mut id = 0;
    // SAFETY: a string and the answer's place, both living here.
    match unsafe { rte_eth_dev_get_port_by_name(name.as_ptr(), &mut id) } {
        0 => Ok(id),
        result => Err(result),
    }
}

/// Writes out what a kernel interface's name alone stands for: the driver that works with all of them.
pub fn written_out(devices: &[&str], lanes: u16) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for &device in devices {
        if device.contains(',') || device.starts_with("net_") || kernel::number(device).is_none() {
            all.push(device.to_string());
            continue;
        }
        let free = |name: &String| {
            let mut named = devices.iter().copied().chain(all.iter().map(String::as_str)).map(name_of);
            port(name).is_err() && !named.any(|other| other == name)
        };
        let mut names = (0_u16..).map(|number| format!("net_af_packet{number}"));
        let name = names.find(free).unwrap_or_default();
        let queues = if lanes > 1 { format!(",qpairs={lanes}") } else { String::new() };
        all.push(format!("{name},iface={device}{queues}"));
    }
    all
}

impl Port {
    /// Plugs a device in. Dropping it does not take it out: `close` does.
    pub fn plug(device: &str) -> Result<Port, String> {
        let name = name_of(device);
        let pci = is_pci(name);
        if !pci && port(name).is_ok() {
            return Err(format!(
                "{device}: this process uses a device of that name already; give this one another number"
            ));
        }
        if let Some(interface) = argument(device, "iface").filter(|_| name.starts_with("net_af_xdp")) {
            let value = |name| argument(device, name).and_then(|text| text.parse::<u32>().ok());
            let first = value("start_queue").unwrap_or(0);
            let end = first.saturating_add(value("queue_count").unwrap_or(1));
            kernel::refuse_taken(device, interface, first..end)?;
        }
        let c_device = CString::new(device)
            .map_err(|_| format!("{device:?}: a device has no zero byte; leave it out"))?;
        let before = kernel::sockets(libc::AF_PACKET);
        // SAFETY: a string that lives here; DPDK copies it. EAL runs and its lock is held.
        let result = unsafe { rte_dev_probe(c_device.as_ptr()) };
        if result != -libc::EEXIST {
            let way_out = if pci {
                "see that the device is there (lspci) and bound to vfio-pci (dpdk-devbind.py)"
            } else {
                "see that the driver's package is installed (librte-net-…), that its arguments are right, \
                 that the interface exists and the process is root"
            };
            check(result, |why| format!("{device}: plugging it in: {why}; {way_out}"))?;
        }
        let not_a_port = |why| format!("{device}: looking for its port: {why}; name an Ethernet device");
        let id = port(name).or_else(|result| check(result, not_a_port).map(|()| 0))?;
        let mut sockets = kernel::sockets(libc::AF_PACKET);
        sockets.retain(|socket| !before.contains(socket));
        let mut info = Info { device: std::ptr::null_mut(), interface: 0, queues: 0, driver: [0; 32] };
        // SAFETY: the port exists, and the answer's place lives here.
        check(unsafe { dpdk_info(id, &mut info) }, |why| {
            format!("{device}: asking what it can do: {why}; try it with dpdk-testpmd")
        })?;
        Ok(Port { id, text: device.to_string(), info, promiscuous: false, started: false, sockets })
    }

    pub fn driver(&self) -> &str {
        CStr::from_bytes_until_nul(&self.info.driver).map_or("", |name| name.to_str().unwrap_or_default())
    }

    /// The kernel's interface behind it, if there is one.
    pub fn interface(&self) -> Option<u32> {
        Some(self.info.interface).filter(|number| *number != 0)
    }

    /// Whether there are queues for so many lanes.
    pub fn fits(&self, lanes: u16) -> Result<(), String> {
        if lanes <= self.info.queues {
            return Ok(());
        }
        let way_out = match self.driver() {
            "net_af_packet" => format!("add qpairs={lanes} to it"),
            "net_af_xdp" => {
                format!("add queue_count={lanes} to it if the interface has as many (ethtool -l)")
            }
            _ => "open fewer".to_string(),
        };
        Err(format!(
            "{}: {lanes} lanes need as many queues and it has {} at most; {way_out}",
            self.text, self.info.queues
        ))
    }

    /// Starts it with a queue of each direction for each pool. The pools must live until it is closed.
    pub fn begin(&mut self, pools: &[Pool], space: &Space) -> Result<(), String> {
        let pools: Vec<*mut c_void> = pools.iter().map(|pool| pool.pool).collect();
        let was_promiscuous = self.interface().is_some_and(|number| space.promiscuous(number));
        let before = kernel::sockets(libc::AF_XDP);
        let mut step = c"".as_ptr();
        // SAFETY: the port exists and is stopped, there are as many pools as said, and the answer's place
        // lives here.
        let result = unsafe { dpdk_begin(self.id, pools.len() as u16, pools.as_ptr(), &mut step) };
        if self.driver() == "net_af_xdp" {
            let after = kernel::sockets(libc::AF_XDP);
            self.sockets = after.into_iter().filter(|socket| !before.contains(socket)).collect();
        }
        check(result, |why| {
            // SAFETY: the shim's own text.
            let step = unsafe { CStr::from_ptr(step) }.to_string_lossy();
            format!(
                "{}: {step}: {why}; see that the interface is up and that no other program has its queues, \
                 or open fewer lanes",
                self.text
            )
        })?;
        self.started = true;
        // Frames for others must come too. A device that cannot do this gets them anyway.
        // SAFETY: the port exists.
        self.promiscuous = unsafe { rte_eth_promiscuous_enable(self.id) } == 0 && !was_promiscuous;
        Ok(())
    }

    /// Why this port can carry no more packets, if so.
    pub fn gone(&self, space: &Space) -> Option<String> {
        let gone = match self.interface() {
            Some(number) => space.gone(number),
            // SAFETY: the port exists until it is closed.
            None => unsafe { rte_eth_dev_is_removed(self.id) != 0 },
        };
        gone.then(|| format!("{}: it is gone; create or plug it in again and open the plane anew", self.text))
    }

    /// Packets that the device or its driver had no room for, on all queues, and those it sent from one queue
    /// (u64::MAX if it does not say).
    pub fn stats(&self, queue: u16) -> (u64, u64) {
        let (mut lost, mut sent) = (0, u64::MAX);
        // SAFETY: the port exists until it is closed; the answers' places live here.
        unsafe { dpdk_stats(self.id, queue, &mut lost, &mut sent) };
        (lost, sent)
    }

    /// Packets that the kernel dropped for this device since the last call.
    pub fn dropped(&self) -> u64 {
        let sockets = self.sockets.iter().filter(|_| self.driver() == "net_af_packet");
        sockets.map(Socket::dropped).sum()
    }

    /// Gives the device back. No lane may use it any more. To be called in its network namespace: drivers
    /// give interfaces back by number, which means another interface elsewhere.
    pub fn close(&mut self, space: &Space) {
        let alive = self.gone(space).is_none();
        // SAFETY: the port exists until rte_eth_dev_close, and its number is not used after that.
        unsafe {
            if self.promiscuous && alive {
                rte_eth_promiscuous_disable(self.id);
            }
            if self.started {
                rte_eth_dev_stop(self.id);
            }
            rte_eth_dev_close(self.id);
            rte_dev_remove(self.info.device);
        }
        if self.driver() == "net_af_xdp" {
            // The driver of 22.11 keeps its sockets: the kernel would go on writing to memory given back.
            for socket in &self.sockets {
                socket.forget();
            }
            // The kernel frees the queue later; until then nobody can open it again.
            std::thread::sleep(kernel::AFTERMATH);
        }
    }
}
