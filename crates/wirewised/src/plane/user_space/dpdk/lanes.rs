// SPDX-License-Identifier: Apache-2.0
//! The plane, over the lanes of the crate wirewise-dpdk.

use wirewise_dpdk::{footprint, open};
use wirewise_lane::Lane;

use super::{Given, NAME, devices};
use crate::error::{Error, Result};
use crate::interface::offloads::Direction;
use crate::plane::user_space::{Carried, Footprint, Lanes, STEERS, Wanted};
use crate::plane::{Abilities, Drops, Plane, Site};

pub const PLANE: Plane = Plane(&Abilities {
    name: NAME,
    about: "DPDK's drivers in user space: counts verdicts, or joins two interfaces; needs an agent built with DPDK",
    choose: "the machine runs DPDK already",
    needs: "DPDK, CAP_NET_RAW",
    native: false,
    shared: true,
    sees_merged: true,
    direction: Direction::Received,
    drops: Drops::Forwarding,
    steers: STEERS,
    place: Site::User(&Dpdk),
});

/// The driver that gets copies of what an interface receives, as a raw socket does.
const COPIES: &str = "net_af_packet";

/// Of addresses, beside packets.
const EAL_BYTES: u64 = 64 << 20;

struct Dpdk;

fn workers(wanted: &Wanted<'_>) -> Result<u32> {
    wanted.admit(wanted.workers.unwrap_or(1))
}

impl Carried for Dpdk {
    fn names_device(&self, name: &str) -> bool {
        devices::is_pci(name) || name.starts_with(devices::VIRTUAL)
    }

    fn check_device(&self, name: &str) -> Result<String> {
        devices::check(name)
    }

    fn footprint(&self, wanted: &Wanted<'_>) -> Result<Footprint> {
        let devices = if wanted.to.is_some() { 2 } else { 1 };
        let lanes = workers(wanted)?;
        let (used, mapped) = footprint(devices, lanes);
        // EAL's own threads, and what its libraries reserve.
        Ok(Footprint { lanes, used, mapped: mapped + EAL_BYTES })
    }

    fn open(&self, wanted: &Wanted<'_>) -> Result<Lanes> {
        let interfaces = [Some(wanted.interface), wanted.to].into_iter().flatten();
        let interfaces = interfaces.filter(|name| !self.names_device(name)).count();
        let Given { driver } = wanted.options.own()?;
        if let Some(driver) = &driver {
            check_driver(driver, interfaces)?;
        }
        let driver = driver.as_deref().unwrap_or(COPIES);
        if driver != COPIES && wanted.to.is_none() {
            return Err(Error::input(format!(
                "--driver {driver} takes packets away from the host: say with --to where those go that pass"
            )));
        }
        let device = |number: u32, name: &str, arguments: Option<&str>| match (arguments, driver) {
            (Some(arguments), _) => format!("{name},{arguments}"),
            _ if self.names_device(name) => name.to_string(),
            (_, COPIES) => name.to_string(),
            _ => format!("{driver}{number},iface={name}"),
        };
        let workers = workers(wanted)?;
        let to = wanted.to.map(|to| device(1, to, None));
        let first = device(0, wanted.interface, wanted.arguments);
        let lanes = open(&first, to.as_deref(), workers).map_err(Error::other)?;
        let lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect();
        let queues = if workers == 1 { "1 queue".to_string() } else { format!("{workers} queues") };
        let through = if interfaces > 0 { driver } else { "DPDK's own device" };
        Ok(Lanes { lanes, obtained: format!("{through}, {queues}") })
    }
}

/// interfaces : how many of what is to be opened are the kernel's.
fn check_driver(driver: &str, interfaces: usize) -> Result<()> {
    let is_name = driver.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    if !driver.starts_with(devices::VIRTUAL) || !is_name {
        return Err(Error::input(format!(
            "--driver {driver}: no name of a virtual device of DPDK, such as {COPIES} or net_af_xdp"
        )));
    }
    if interfaces == 0 {
        return Err(Error::input(format!(
            "--driver {driver}: it is for interfaces of the kernel's; leave it out, a device has its own driver"
        )));
    }
    Ok(())
}
