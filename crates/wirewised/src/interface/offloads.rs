// SPDX-License-Identifier: Apache-2.0
//! Whether packets are merged when a program sees them. Behind the driver (generic XDP, TC) it meets what generic receive offload (GRO)
//! has put together, or what the other end of a veth pair never took apart (TSO, GSO); on the way out, what the card or the kernel's last step
//! is still to take apart: packets of up to 64 KiB instead of the dozens on the wire, and every count and length is wrong.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::interface::netns;
use crate::interface::rtnetlink;
use crate::kernel;
use crate::kernel::change;
use crate::kernel::note;
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::text::shell::quoted;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
/// A feature's name, in words.
const STRING: usize = 32 / 4;

const MERGING: [&str; 5] = ["rx-gro", "rx-gro-hw", "rx-lro", "rx-gro-list", "rx-udp-gro-forwarding"];
const TAGS: &str = "rx-vlan-hw-parse";
/// `ethtool -K` has short names for what people know.
const SHORT: [(&str, &str); 2] = [("rx-gro", "gro"), ("rx-lro", "lro")];
/// It switches all of these as `tso`.
const TSO: &str = "tx-tcp";

/// An interface that merges packets, or leaves them merged, on their way to the one that was asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merging {
    pub interface: String,
    pub index: u32,
    /// What `--netns` takes for its network namespace; null: the same as that of the interface asked about.
    pub netns: Option<String>,
    pub namespace_cookie: u64,
    /// Those that are on, as the kernel calls them. None, and no segments: it cannot be looked at.
    pub features: Vec<String>,
    /// Of what the host sends: how many segments one packet may be.
    #[serde(default)]
    pub segments: Option<u32>,
}

/// Whether VLAN tags come beside frames, where XDP does not see them: the card takes them off, or a veth pair's other end never put them in.
pub fn takes_tags_off(device: &Device) -> bool {
    Features::of(device).is_some_and(|features| features.active().any(|name| name == TAGS))
}

/// Receive side: what puts packets together.
fn merges(feature: &str) -> bool {
    MERGING.contains(&feature)
}

/// Sending side: what leaves them together, for an interface that hands its packets to another as they are. The stack takes apart what
/// an interface does not say it can send; tunnels need one of these besides their own.
fn leaves_merged(feature: &str) -> bool {
    [TSO, "tx-udp-seg", "tx-sctp-"].iter().any(|kind| feature.starts_with(kind))
        && feature.ends_with("segmentation")
}

/// What becomes of a packet at the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Received,
    Sent,
}

/// All that merge packets before a program at an interface of this network namespace sees them. Of received ones: itself, what is below it,
/// the ports of a bridge or bond, the other end of a veth pair.
pub fn find(index: u32, direction: Direction) -> Result<Vec<Merging>> {
    let mut found = Vec::new();
    let asked = match direction {
        Direction::Received => visit(index, &mut found, &mut Vec::new()),
        Direction::Sent => sent(index).map(|merging| found.extend(merging)),
    };
    asked.map_err(|error| Error::other(format!("cannot ask what merges packets: {error}")))?;
    Ok(found)
}

/// What the host sends is taken apart behind TC, by the kernel if not by the card: TCP hands over many segments in one packet whatever
/// the features of the interface are, unless one is all that it takes.
fn sent(index: u32) -> io::Result<Option<Merging>> {
    let link = rtnetlink::link_by_index(index)?;
    Ok((link.gso_max_segs > 1).then(|| Merging {
        interface: link.name,
        index,
        netns: None,
        namespace_cookie: netns::cookie(),
        features: Vec::new(),
        segments: Some(link.gso_max_segs),
    }))
}

fn visit(index: u32, found: &mut Vec<Merging>, visited: &mut Vec<u32>) -> io::Result<()> {
    if visited.contains(&index) {
        return Ok(());
    }
    visited.push(index);
    let link = rtnetlink::link_by_index(index)?;
    found.extend(active(index, merges));
    match (link.lower.filter(|lower| *lower != 0), link.lower_namespace) {
        (Some(peer), None) if link.kind == "veth" => found.extend(active(peer, leaves_merged)),
        (Some(lower), None) => visit(lower, found, visited)?,
        (Some(peer), Some(id)) if link.kind == "veth" => found.extend(peer_in(id, peer)),
        _ if link.name == "lo" => found.extend(active(index, leaves_merged)),
        _ => {}
    }
    for port in rtnetlink::links()?.into_iter().filter(|port| port.master == Some(index)) {
        visit(port.index, found, visited)?;
    }
    Ok(())
}

/// An interface of this namespace, if it has such features on.
fn active(index: u32, counts: fn(&str) -> bool) -> Option<Merging> {
    let interface = netdev::name(index)?;
    let features = Device::open(&interface).ok().and_then(|device| Features::of(&device))?;
    let features: Vec<_> = features.active().filter(|name| counts(name)).map(str::to_string).collect();
    let namespace_cookie = netns::cookie();
    let found = Merging { interface, index, netns: None, namespace_cookie, features, segments: None };
    (!found.features.is_empty()).then_some(found)
}

/// The other end of a veth pair, in the namespace to which this one gives a number.
fn peer_in(id: i32, index: u32) -> Option<Merging> {
    let namespace = netns::others()
        .find(|other| rtnetlink::namespace_id(other.file()).is_ok_and(|found| found == Some(id)));
    let seen = namespace.and_then(|other| {
        let found = other.within(|| active(index, leaves_merged))?;
        Some(found.map(|found| Merging { netns: Some(other.name), ..found }))
    });
    seen.unwrap_or_else(|| {
        let interface = "the other end of the veth pair".to_string();
        Some(Merging {
            interface,
            index,
            netns: None,
            namespace_cookie: 0,
            features: Vec::new(),
            segments: None,
        })
    })
}

impl Merging {
    pub fn is_seen(&self) -> bool {
        !self.features.is_empty() || self.segments.is_some()
    }

    /// `eth0 (gro)`.
    pub fn describe(&self) -> String {
        if !self.is_seen() {
            return format!(
                "perhaps {}, in a network namespace that cannot be entered from here",
                self.interface
            );
        }
        if let Some(segments) = self.segments {
            return format!("{} (gso, up to {segments} segments)", self.interface);
        }
        let place = self.netns.as_ref().map_or(String::new(), |netns| format!(" in {netns}"));
        format!("{}{place} ({})", self.interface, self.short_names().join(", "))
    }

    /// The command that switches it off, or on again.
    pub fn remedy(&self, state: &str) -> String {
        if let Some(segments) = self.segments {
            let segments = if state == "off" { 1 } else { segments };
            return format!("`ip link set dev {} gso_max_segs {segments}`", quoted(&self.interface));
        }
        let features: Vec<_> = self.short_names().into_iter().map(|name| format!("{name} {state}")).collect();
        let within = match &self.netns {
            Some(path) if path.contains('/') => format!("nsenter --net={} ", quoted(path)),
            Some(name) => format!("ip netns exec {} ", quoted(name)),
            None => String::new(),
        };
        format!("`{within}ethtool -K {} {}`", quoted(&self.interface), features.join(" "))
    }

    fn short_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for feature in &self.features {
            let short = SHORT.iter().find(|(long, _)| feature == long).map(|(_, short)| *short);
            let name = if feature.starts_with(TSO) { "tso" } else { short.unwrap_or(feature) };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Does it in its namespace; an interface or a namespace that is gone needs nothing.
    fn set(&self, on: bool) -> io::Result<()> {
        let set = || {
            if netdev::name(self.index).as_deref() != Some(&self.interface) {
                return Ok(());
            }
            if let Some(segments) = self.segments {
                return rtnetlink::set_gso_max_segs(self.index, if on { segments } else { 1 })
                    .inspect(|()| change::made("offloads"));
            }
            let device =
                Device::open(&self.interface).map_err(|error| io::Error::other(error.to_string()))?;
            let features = Features::of(&device).ok_or(io::ErrorKind::Unsupported)?;
            features.set(&device, &self.features, on)?;
            change::made("offloads");
            let now = Features::of(&device).ok_or(io::ErrorKind::Unsupported)?;
            let done = self.features.iter().all(|feature| now.active().any(|active| active == feature) == on);
            if done { Ok(()) } else { Err(io::Error::other("the interface does not take it")) }
        };
        if self.namespace_cookie == netns::cookie() {
            return set();
        }
        let namespace = netns::find(None, || (netns::cookie() == self.namespace_cookie).then_some(()));
        match namespace.and_then(|(namespace, ())| namespace.within(set)) {
            Some(done) => done,
            None if kernel::may_mount() => Ok(()),
            // Not found may mean not allowed to enter: CAP_SYS_ADMIN.
            None => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

/// The features of an interface, by their bits.
struct Features {
    names: Vec<String>,
    active: Vec<u32>,
}

impl Features {
    fn of(device: &Device) -> Option<Self> {
        let mut info = [0, 0, 1 << ETH_SS_FEATURES, 0, 0];
        device.ethtool(ETHTOOL_GSSET_INFO, &mut info)?;
        let count = info[4] as usize;
        let mut strings = vec![0; 3 + count * STRING];
        (strings[1], strings[2]) = (ETH_SS_FEATURES, count as u32);
        device.ethtool(ETHTOOL_GSTRINGS, &mut strings)?;
        let name = |words: &[u32]| {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        };
        let names = strings[3..].chunks_exact(STRING).map(name).collect();
        let blocks = count.div_ceil(32);
        let mut words = vec![0; 2 + blocks * 4];
        words[1] = blocks as u32;
        device.ethtool(ETHTOOL_GFEATURES, &mut words)?;
        // Of each block: available, requested, active, never changed.
        Some(Self { names, active: words[2..].chunks_exact(4).map(|block| block[2]).collect() })
    }

    fn is_active(&self, bit: usize) -> bool {
        self.active.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    fn active(&self) -> impl Iterator<Item = &str> {
        self.names.iter().enumerate().filter(|(bit, _)| self.is_active(*bit)).map(|(_, name)| name.as_str())
    }

    fn set(&self, device: &Device, features: &[String], on: bool) -> io::Result<()> {
        let mut words = vec![0; 2 + self.active.len() * 2];
        words[1] = self.active.len() as u32;
        for (bit, name) in self.names.iter().enumerate() {
            if features.contains(name) {
                let mask = 1 << (bit % 32);
                // Of each block: which to change, and to what.
                words[2 + bit / 32 * 2] |= mask;
                words[3 + bit / 32 * 2] |= if on { mask } else { 0 };
            }
        }
        device.ethtool(ETHTOOL_SFEATURES, &mut words).ok_or_else(io::Error::last_os_error)
    }
}

/// What is switched off, and goes on again if this is dropped before `keep`.
#[derive(Debug)]
pub struct SwitchedOff<'a> {
    record: &'a Path,
    kept: bool,
}

impl SwitchedOff<'_> {
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for SwitchedOff<'_> {
    fn drop(&mut self) {
        if !self.kept {
            put_back(self.record);
        }
    }
}

/// Switches off all that merges packets before an interface. What was on is remembered first, in a directory of pins of its own, so
/// that it is put back however this ends.
pub fn switch_off<'a>(index: u32, directions: &[Direction], record: &'a Path) -> Result<SwitchedOff<'a>> {
    let look = || -> Result<Vec<Merging>> {
        let found = directions.iter().map(|direction| find(index, *direction)).collect::<Result<Vec<_>>>()?;
        Ok(found.into_iter().flatten().filter(Merging::is_seen).collect())
    };
    let found = look()?;
    let mut remembered = read(record);
    remembered.extend(found.clone());
    if !remembered.is_empty() {
        remember(record, &remembered)?;
    }
    let switched = SwitchedOff { record, kept: false };
    for merging in &found {
        merging.set(false).map_err(|error| {
            Error::missing(format!(
                "cannot switch off offloads of {}: {error}; {}",
                merging.describe(),
                merging.remedy("off")
            ))
        })?;
    }
    if let Some(still) = look()?.first() {
        return Err(Error::missing(format!(
            "{}: cannot be switched off; `--plane xdp-native` sees packets as they come",
            still.describe()
        )));
    }
    Ok(switched)
}

/// Switches on again what is remembered, and forgets it. What cannot be put back is said.
pub fn put_back(record: &Path) {
    for merging in read(record) {
        if let Err(error) = merging.set(true) {
            tracing::warn!("offloads of {} stay off: {error}; {}", merging.interface, merging.remedy("on"));
        }
    }
    if record.is_dir()
        && let Err(error) = pinned::remove(record)
    {
        tracing::warn!("{} is left behind: {error}", record.display());
    }
}

/// What is switched off for an attachment.
pub fn read(record: &Path) -> Vec<Merging> {
    note::read(&record.join(pinned::META)).unwrap_or_default()
}

fn remember(record: &Path, switched: &[Merging]) -> Result<()> {
    let failed = |error: io::Error| Error::other(format!("{}: {error}", record.display()));
    let map = note::new(&switched)?;
    let provisional = if record.is_dir() { None } else { Some(Provisional::create(record)?) };
    let new = record.join("meta-new");
    let _ = change::remove_file(&new);
    objects::pin(map.as_fd(), &new)
        .and_then(|()| change::rename(&new, &record.join(pinned::META)))
        .map_err(failed)?;
    if let Some(provisional) = provisional {
        provisional.keep();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merging(features: &[&str], netns: Option<&str>) -> Merging {
        let features = features.iter().map(ToString::to_string).collect();
        Merging {
            interface: "eth0".to_string(),
            index: 2,
            netns: netns.map(str::to_string),
            namespace_cookie: 1,
            features,
            segments: None,
        }
    }

    #[test]
    fn what_merges_is_known_by_name() {
        for feature in ["rx-gro", "rx-gro-hw", "rx-lro", "rx-gro-list"] {
            assert!(merges(feature) && !leaves_merged(feature));
        }
        for feature in ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"] {
            assert!(leaves_merged(feature) && !merges(feature));
        }
        for feature in ["rx-checksum", "tx-nocache-copy", "tx-checksum-ip-generic", "tx-scatter-gather"] {
            assert!(!leaves_merged(feature) && !merges(feature));
        }
    }

    #[test]
    fn the_remedy_is_a_command_in_the_right_namespace() {
        assert_eq!(merging(&["rx-gro", "rx-lro"], None).remedy("off"), "`ethtool -K eth0 gro off lro off`");
        let features = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"];
        assert_eq!(
            merging(&features, Some("blue")).remedy("off"),
            "`ip netns exec blue ethtool -K eth0 tso off tx-udp-segmentation off`"
        );
        assert_eq!(
            merging(&["rx-gro"], Some("/proc/7/ns/net")).remedy("on"),
            "`nsenter --net=/proc/7/ns/net ethtool -K eth0 gro on`"
        );
        assert!(merging(&[], None).describe().contains("cannot be entered"));
    }

    #[test]
    fn the_loopback_interface_hands_over_merged_packets() {
        let lo = rtnetlink::link_by_name("lo").unwrap();
        let found = find(lo.index, Direction::Received).unwrap();
        assert!(found.iter().all(|merging| merging.interface == "lo" && merging.is_seen()), "{found:?}");
    }
}
