// SPDX-License-Identifier: Apache-2.0
//! Devices that the kernel has given away, or never had: cards by their PCI address, and virtual ones by DPDK's name.

use std::fs;
use std::path::Path;

use wirewise_dpdk::drivers;

use crate::error::{Error, Result};

/// Names of virtual devices begin so.
pub const VIRTUAL: &str = "net_";
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
/// The kernel's, which leave a card to a process. Mellanox cards stay with their own.
const LEAVES: [&str; 5] = ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core"];

/// `01:00.0` or `0000:01:00.0`.
pub fn is_pci(name: &str) -> bool {
    let address = name.split(',').next().unwrap_or(name);
    address.contains(':') && address.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}

/// What the device is.
pub fn check(name: &str) -> Result<String> {
    let name = name.split(',').next().unwrap_or(name);
    if is_pci(name) { check_pci(name, Path::new(PCI_DEVICES)) } else { check_virtual(name, &drivers()) }
}

/// devices : where the kernel lists them.
fn check_pci(address: &str, devices: &Path) -> Result<String> {
    let folder = devices.join(address);
    if !folder.is_dir() {
        let whole = format!("0000:{address}");
        if devices.join(&whole).is_dir() {
            return Err(Error::input(format!("{address}: give the whole address; it is {whole}")));
        }
        return Err(Error::input(format!(
            "{address}: there is no such PCI device; `lspci -D` lists them, with their addresses in front"
        )));
    }
    let driver = fs::read_link(folder.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let remedy =
        format!("`dpdk-devbind.py --bind=vfio-pci {address}` gives it to DPDK, and takes it from the host");
    match driver {
        Some(driver) if LEAVES.contains(&driver.as_str()) => Ok(format!("a PCI device, bound to {driver}")),
        Some(driver) => {
            Err(Error::missing(format!("{address}: the kernel's driver {driver} has it; {remedy}")))
        }
        None => Err(Error::missing(format!("{address}: no driver has it; {remedy}"))),
    }
}

/// drivers : those of virtual devices that DPDK has here.
fn check_virtual(name: &str, drivers: &[String]) -> Result<String> {
    let known = drivers.iter().filter(|driver| driver.starts_with(VIRTUAL));
    // As DPDK finds it: what follows tells devices of one driver apart.
    match known.clone().filter(|driver| name.starts_with(driver.as_str())).max_by_key(|driver| driver.len()) {
        Some(driver) => Ok(format!("a virtual device of DPDK's ({driver})")),
        None => {
            let known: Vec<_> = known.map(String::as_str).collect();
            Err(Error::input(format!(
                "{name}: DPDK has no driver here for a device of this name; it has {} (Debian's packages librte-net-NAME23 bring more)",
                if known.is_empty() { "none".to_string() } else { known.join(", ") }
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn addresses_are_told_from_names() {
        for name in ["0000:01:00.0", "01:00.0", "0000:01:00.0,queues=4", "AB:00.1"] {
            assert!(is_pci(name), "{name}");
        }
        for name in ["eth0", "net_null0", "a.b", "", "0000:zz"] {
            assert!(!is_pci(name), "{name}");
        }
    }

    #[test]
    fn a_card_has_to_be_there_and_given_away() {
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("0000:01:00.0");
        fs::create_dir(&card).unwrap();
        let check = |address| check_pci(address, folder.path());
        let kind = |address| check(address).unwrap_err().kind();
        assert_eq!((kind("0000:02:00.0"), kind("01:00.0")), (Kind::Input, Kind::Input));
        assert!(check("01:00.0").unwrap_err().to_string().contains("it is 0000:01:00.0"));
        assert_eq!(kind("0000:01:00.0"), Kind::Missing);
        std::os::unix::fs::symlink("../drivers/e1000e", card.join("driver")).unwrap();
        let error = check("0000:01:00.0").unwrap_err().to_string();
        assert!(error.contains("e1000e has it") && error.contains("dpdk-devbind.py"), "{error}");
        fs::remove_file(card.join("driver")).unwrap();
        std::os::unix::fs::symlink("../drivers/vfio-pci", card.join("driver")).unwrap();
        assert_eq!(check("0000:01:00.0").unwrap(), "a PCI device, bound to vfio-pci");
    }

    #[test]
    fn a_virtual_device_has_a_driver() {
        let drivers = ["net_null", "net_af_packet"].map(String::from);
        assert_eq!(check_virtual("net_null0", &drivers).unwrap(), "a virtual device of DPDK's (net_null)");
        let error = check_virtual("net_nil0", &drivers).unwrap_err().to_string();
        assert!(error.contains("it has net_null, net_af_packet"), "{error}");
        assert!(check_virtual("net_null0", &[]).unwrap_err().to_string().contains("it has none"));
    }
}
