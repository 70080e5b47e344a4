// SPDX-License-Identifier: Apache-2.0
//! Tunnels of GTP-U: the table of those that are known. Reference: policy/act/tunnels.py.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use bytemuck::Zeroable;
use serde::Deserialize;

use serde_saphyr::Spanned;

use crate::abi;
use crate::error::{Error, Result};
use crate::files;
use crate::files::yaml;
use crate::policy::file::{OneOrMoreTexts, TunnelFile, TunnelsFile};
use crate::policy::words::Number;
use crate::text::nearest::choose;

/// A line for each tunnel.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// YAML's, of a tunnel: itself, six keys and values, two addresses in one; and some room.
const NODES: usize = 20;
const KINDS: [&str; 1] = ["gtp-u"];
const MAX_QFI: u32 = 63;
const EXAMPLE: &str =
    "{ue: 10.45.0.2, local: 192.0.2.1, teid: 0x100, peer: 192.0.2.10, peer-teid: 0x200, qfi: 9}";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    tunnels: Vec<Spanned<TunnelFile>>,
}

/// Who is behind a tunnel: an address of IPv4, a network of 64 bits of IPv6, or both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ue {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tunnel {
    /// This host's address at the tunnel.
    pub local: IpAddr,
    /// Of packets that come; `None`: none are taken out.
    pub teid: Option<u32>,
    pub ue: Ue,
    /// Where packets to who is behind it go, and with which TEID; `None`: none are put in.
    pub peer: Option<(IpAddr, u32)>,
    /// `None`: without a PDU session container.
    pub qfi: Option<u8>,
}

/// Fails if this kind of tunnel is unknown. key : of the class, for the message.
pub fn check_kind(key: &str, kind: &str) -> std::result::Result<(), String> {
    if KINDS.contains(&kind) {
        return Ok(());
    }
    Err(format!("{key}: unknown tunnel '{kind}'; {}", choose(kind, &KINDS)))
}

/// Reads a file of tunnels.
pub fn load(path: &Path) -> Result<Vec<Tunnel>> {
    let name = path.display();
    let bytes = files::read(path, MAX_FILE_BYTES)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        Error::input(format_args!("{name}: not UTF-8 text (byte {})", error.valid_up_to()))
    })?;
    parse(text).map_err(|message| Error::input(format_args!("{name}: {message}; see docs/tunnels.md")))
}

/// Reads the text of a file of tunnels. The error names the line, without the file's name.
pub fn parse(text: &str) -> std::result::Result<Vec<Tunnel>, String> {
    let document: Document = yaml::from_long_yaml(text, NODES * abi::TUNNELS)?;
    if document.version != 1 {
        return Err(format!("version {} is not supported; this wirewised reads version 1", document.version));
    }
    checked(document.tunnels)
}

/// One tunnel as on a command line: `ue=10.45.0.2,local=192.0.2.1`.
pub fn one(text: &str) -> std::result::Result<Tunnel, String> {
    const KEYS: [&str; 6] = ["ue", "local", "teid", "peer", "peer-teid", "qfi"];
    let (mut file, mut ue) = (TunnelFile::default(), Vec::new());
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("'{part}' is not key=value; such a key is {}", KEYS.join(", ")))?;
        let number = || value.parse().map_err(|error| format!("{key}: {error}"));
        let twice = match key {
            "ue" => {
                ue.push(value.to_string());
                false
            }
            "local" => file.local.replace(value.to_string()).is_some(),
            "peer" => file.peer.replace(value.to_string()).is_some(),
            "teid" => file.teid.replace(number()?).is_some(),
            "peer-teid" => file.peer_teid.replace(number()?).is_some(),
            "qfi" => file.qfi.replace(number()?).is_some(),
            _ => return Err(format!("unknown key '{key}'; {}", choose(key, &KEYS))),
        };
        if twice {
            return Err(format!("{key} stands twice"));
        }
    }
    file.ue = (!ue.is_empty()).then_some(OneOrMoreTexts::More(ue));
    tunnel(file)
}

/// Those of a policy. folder : in which a file is looked for.
pub fn of_policy(
    file: Option<TunnelsFile>,
    folder: Option<&Path>,
) -> std::result::Result<Option<Vec<Tunnel>>, String> {
    let of = |message: String| format!("tunnels: {message}");
    match file {
        None => Ok(None),
        Some(TunnelsFile::Listed(list)) => checked(list).map(Some).map_err(of),
        Some(TunnelsFile::Named(name)) => {
            let path = folder.map_or_else(|| Path::new(&name).to_path_buf(), |folder| folder.join(&name));
            load(&path).map(Some).map_err(|error| of(error.to_string()))
        }
    }
}

fn checked(list: Vec<Spanned<TunnelFile>>) -> std::result::Result<Vec<Tunnel>, String> {
    if list.len() > abi::TUNNELS {
        return Err(format!("{} tunnels are too many; at most {}", list.len(), abi::TUNNELS));
    }
    let (mut lines, mut tunnels) = (BTreeMap::new(), Vec::with_capacity(list.len()));
    for file in list {
        let line = file.referenced.line();
        let tunnel = tunnel(file.value).map_err(|message| format!("line {line}: {message}"))?;
        for (end, _) in tunnel.ends() {
            if let Some(first) = lines.insert(end, line) {
                return Err(format!("line {line}: {} stands in line {first} already", end_name(&end)));
            }
        }
        tunnels.push(tunnel);
    }
    Ok(tunnels)
}

fn tunnel(file: TunnelFile) -> std::result::Result<Tunnel, String> {
    let local =
        file.local.as_deref().ok_or_else(|| format!("a tunnel needs this host's address: {EXAMPLE}"))?;
    let local = host("local", local)?;
    let teid = |key: &str, number: Option<Number>| match number {
        Some(Number(0)) => Err(format!("{key} 0 is of no tunnel that carries packets; 1 to {}", u32::MAX)),
        number => Ok(number.map(|Number(teid)| teid)),
    };
    let (own, others) = (teid("teid", file.teid)?, teid("peer-teid", file.peer_teid)?);
    let ue = file.ue.map_or(Ok(Ue::default()), OneOrMoreTexts::ue)?;
    let peer = match (file.peer.as_deref(), others) {
        (Some(peer), Some(others)) => Some((host("peer", peer)?, others)),
        (None, None) => None,
        _ => {
            return Err("peer and peer-teid go together: where packets are put in, and how they are marked"
                .to_string());
        }
    };
    if own.is_none() && peer.is_none() {
        return Err("a tunnel needs a teid, for packets that come, or peer and peer-teid, for those that go"
            .to_string());
    }
    if peer.is_some_and(|(peer, _)| peer.is_ipv4() != local.is_ipv4()) {
        return Err(
            "local and peer are the two ends of one tunnel: both of IPv4, or both of IPv6".to_string()
        );
    }
    if peer.is_some() && ue == Ue::default() {
        return Err("which packets go to peer? give ue, the address behind the tunnel".to_string());
    }
    if file.qfi.is_some() && peer.is_none() {
        return Err("qfi is of packets that go, which need peer and peer-teid".to_string());
    }
    Ok(Tunnel { local, teid: own, ue, peer, qfi: file.qfi.map(qfi).transpose()? })
}

pub fn qfi(Number(qfi): Number) -> std::result::Result<u8, String> {
    if qfi > MAX_QFI { Err(format!("qfi {qfi} is out of range; 0 to {MAX_QFI}")) } else { Ok(qfi as u8) }
}

/// An address that one host can have.
fn host(key: &str, text: &str) -> std::result::Result<IpAddr, String> {
    let refuse = || format!("{key}: '{text}' is no address of a host, such as 192.0.2.1 or 2001:db8::1");
    let address: IpAddr = text.parse().map_err(|_| refuse())?;
    let group = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if group || address.is_unspecified() || address.is_loopback() { Err(refuse()) } else { Ok(address) }
}

impl OneOrMoreTexts {
    fn ue(self) -> std::result::Result<Ue, String> {
        let texts = match self {
            Self::One(text) => vec![text],
            Self::More(texts) => texts,
        };
        let mut ue = Ue::default();
        for text in &texts {
            let (address, length) = text.split_once('/').unwrap_or((text, ""));
            let twice = match (host("ue", address)?, length) {
                (IpAddr::V4(v4), "" | "32") => ue.v4.replace(v4).is_some(),
                (IpAddr::V6(v6), "64") if v6.to_bits() as u64 == 0 => ue.v6.replace(v6).is_some(),
                _ => {
                    return Err(format!(
                        "ue: '{text}' is neither an address of IPv4 nor a network of 64 bits of IPv6, such as 10.45.0.2 and 2001:db8:45:2::/64"
                    ));
                }
            };
            if twice {
                return Err("ue: one address of IPv4 and one network of IPv6 at most".to_string());
            }
        }
        Ok(ue)
    }
}

const IN: u8 = abi::TunnelSide::In as u8;
const OUT: u8 = abi::TunnelSide::Out as u8;

fn bytes(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes
}

fn end(address: IpAddr, side: u8, teid: u32) -> abi::TunnelEnd {
    let ip_version = if address.is_ipv4() { 4 } else { 6 };
    abi::TunnelEnd { address: bytes(address), teid, ip_version, side, reserved: 0 }
}

/// As said of an end that stands twice, or is not there.
pub fn end_name(end: &abi::TunnelEnd) -> String {
    let address = address_of(end.address, end.ip_version);
    match end.side {
        IN => format!("TEID {:#x} at {address}", end.teid),
        _ => format!("ue {address}"),
    }
}

fn address_of(bytes: [u8; 16], ip_version: u8) -> IpAddr {
    match ip_version {
        4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
        _ => IpAddr::from(bytes),
    }
}

impl Tunnel {
    /// The elements of `ww_tunnels`, with counters at 0.
    pub fn ends(&self) -> Vec<(abi::TunnelEnd, abi::Tunnel)> {
        let has = [
            (abi::TUNNEL_HAS_IN, self.teid.is_some()),
            (abi::TUNNEL_HAS_OUT, self.peer.is_some()),
            (abi::TUNNEL_HAS_UE4, self.ue.v4.is_some()),
            (abi::TUNNEL_HAS_UE6, self.ue.v6.is_some()),
            (abi::TUNNEL_HAS_QFI, self.qfi.is_some()),
        ];
        let mut value = abi::Tunnel {
            local: bytes(self.local),
            peer: self.peer.map_or([0; 16], |(peer, _)| bytes(peer)),
            ue4: self.ue.v4.map_or([0; 4], |v4| v4.octets()),
            teid: self.teid.unwrap_or(0),
            peer_teid: self.peer.map_or(0, |(_, teid)| teid),
            ip_version: if self.local.is_ipv4() { 4 } else { 6 },
            flags: has.iter().filter(|(_, has)| *has).fold(0, |flags, (flag, _)| flags | flag),
            qfi: self.qfi.unwrap_or(0),
            ..abi::Tunnel::zeroed()
        };
        if let Some(v6) = self.ue.v6 {
            value.ue6.copy_from_slice(&v6.octets()[..8]);
        }
        let mut ends: Vec<_> = self.teid.iter().map(|teid| end(self.local, IN, *teid)).collect();
        if self.peer.is_some() {
            ends.extend(self.ue.addresses().map(|address| end(address, OUT, 0)));
        }
        ends.into_iter().map(|end| (end, value)).collect()
    }

    /// Of an element's value.
    pub fn of(value: &abi::Tunnel) -> Self {
        let has = |flag| value.flags & flag != 0;
        let mut v6 = [0; 16];
        v6[..8].copy_from_slice(&value.ue6);
        Self {
            local: address_of(value.local, value.ip_version),
            teid: has(abi::TUNNEL_HAS_IN).then_some(value.teid),
            ue: Ue {
                v4: has(abi::TUNNEL_HAS_UE4).then(|| value.ue4.into()),
                v6: has(abi::TUNNEL_HAS_UE6).then(|| v6.into()),
            },
            peer: has(abi::TUNNEL_HAS_OUT)
                .then(|| (address_of(value.peer, value.ip_version), value.peer_teid)),
            qfi: has(abi::TUNNEL_HAS_QFI).then_some(value.qfi),
        }
    }
}

impl Ue {
    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    /// As a file has them.
    pub fn texts(self) -> Vec<String> {
        let v6 = self.v6.map(|v6| format!("{v6}/64"));
        self.v4.map(|v4| v4.to_string()).into_iter().chain(v6).collect()
    }
}

/// A tunnel by one of its ends: `LOCAL/TEID`, or the address of who is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndName(pub abi::TunnelEnd);

impl std::str::FromStr for EndName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let refuse = || {
            format!(
                "'{text}' names no tunnel; write the ue (10.45.0.2 or 2001:db8:45:2::/64), or local/teid (192.0.2.1/0x100)"
            )
        };
        let (address, rest) =
            text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        match (address, rest) {
            (IpAddr::V4(_), None) | (IpAddr::V6(_), Some("64")) => Ok(Self(end(address, OUT, 0))),
            (_, Some(teid)) => {
                let Number(teid) = teid.parse().map_err(|_| refuse())?;
                Ok(Self(end(address, IN, teid)))
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for EndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&end_name(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "version: 1\ntunnels:\n- {ue: [10.45.0.2, '2001:db8:45:2::/64'], local: 192.0.2.1, teid: 0x100, \
                        peer: 192.0.2.10, peer-teid: 7, qfi: 9}\n- {local: '2001:db8::1', teid: 5}\n";

    #[test]
    fn a_tunnel_is_known_again_by_each_of_its_ends() {
        let tunnels = parse(BOTH).unwrap();
        assert_eq!(tunnels.iter().map(|tunnel| tunnel.ends().len()).collect::<Vec<_>>(), [3, 1]);
        for tunnel in &tunnels {
            for (end, value) in tunnel.ends() {
                assert_eq!(Tunnel::of(&value), *tunnel);
                let name = match end.side {
                    IN => format!("{}/{:#x}", tunnel.local, end.teid),
                    _ if end.ip_version == 4 => "10.45.0.2".to_string(),
                    _ => "2001:db8:45:2::/64".to_string(),
                };
                assert_eq!(name.parse(), Ok(EndName(end)), "{name}");
            }
        }
        let said = one(
            "ue=10.45.0.2,ue=2001:db8:45:2::/64,local=192.0.2.1,teid=256,peer=192.0.2.10,peer-teid=7,qfi=9",
        );
        assert_eq!(said.unwrap(), tunnels[0]);
    }

    #[test]
    fn what_is_no_tunnel_is_said() {
        for (text, rule) in [
            ("teid=1", "needs this host's address"),
            ("local=192.0.2.1", "needs a teid"),
            ("local=192.0.2.1,teid=0", "teid 0 is of no tunnel"),
            ("local=192.0.2.1,teid=1,teid=2", "teid stands twice"),
            ("local=192.0.2.1,teid=x", "teid: 'x' is no whole number"),
            ("local=192.0.2.1,tied=1", "did you mean 'teid'?"),
            ("local=192.0.2.1,teid", "'teid' is not key=value"),
            ("local=127.0.0.1,teid=1", "no address of a host"),
            ("local=192.0.2.1,teid=1,qfi=1", "qfi is of packets that go"),
            ("local=192.0.2.1,peer=192.0.2.2", "go together"),
            ("local=192.0.2.1,peer=192.0.2.2,peer-teid=1", "which packets go to peer?"),
            ("local=192.0.2.1,peer=2001:db8::1,peer-teid=1,ue=10.0.0.1", "both of IPv4, or both of IPv6"),
            ("local=192.0.2.1,peer=192.0.2.2,peer-teid=1,ue=10.0.0.1,qfi=64", "0 to 63"),
            ("local=192.0.2.1,teid=1,ue=10.0.0.1,ue=10.0.0.2", "at most"),
            ("local=192.0.2.1,teid=1,ue=2001:db8::/48", "a network of 64 bits"),
            ("local=192.0.2.1,teid=1,ue=2001:db8::1/64", "a network of 64 bits"),
        ] {
            let said = one(text).unwrap_err();
            assert!(said.contains(rule), "{text}: {said}");
        }
        for name in ["", "10.45.0.0/x", "2001:db8::1", "ue"] {
            assert!(name.parse::<EndName>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_table_has_an_end() {
        let lines: Vec<_> =
            (1..=abi::TUNNELS + 1).map(|teid| format!("- {{local: 192.0.2.1, teid: {teid}}}")).collect();
        let all = |count: usize| parse(&format!("version: 1\ntunnels:\n{}\n", lines[..count].join("\n")));
        assert_eq!(all(abi::TUNNELS).unwrap().len(), abi::TUNNELS);
        assert!(all(abi::TUNNELS + 1).unwrap_err().contains("at most 65536"));
    }
}
