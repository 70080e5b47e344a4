// SPDX-License-Identifier: Apache-2.0
//! What the kernel says of interfaces and of the links between them, over a routing socket. Of an answer only the few attributes are
//! read that are needed here, so that a newer kernel's answers are understood too.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use crate::interface::socket;

const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
const NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
const HEADER: usize = 16;
/// `struct ifinfomsg` and `struct rtgenmsg` with its padding.
const LINK_BODY: usize = 16;
const NSID_BODY: usize = 4;
/// `struct rtmsg` and `struct ndmsg`.
const ROUTE_BODY: usize = 12;
const NEIGHBOUR_BODY: usize = 12;
/// `struct ifaddrmsg`.
const ADDRESS_BODY: usize = 8;
/// linux/neighbour.h.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;
/// `struct tcmsg`.
const FILTER_BODY: usize = 20;
/// Its two places: TC_H_CLSACT with TC_H_MIN_INGRESS, TC_H_MIN_EGRESS.
const CLSACT: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// NETNSA_NSID and NETNSA_FD of linux/net_namespace.h, which libc does not have.
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
/// VETH_INFO_PEER of linux/veth.h, likewise.
const VETH_INFO_PEER: u16 = 1;
/// The first word of `struct rtnl_link_stats64`.
const RECEIVED_PACKETS: usize = 0;
/// Longer than any answer about one interface.
const BUFFER: usize = 1 << 18;

/// An interface of this network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// The interface its packets come from: the one below, or the other end of a veth pair.
    pub lower: Option<u32>,
    /// The number that this namespace gives to the one of `lower`; `None` if it is this one.
    pub lower_namespace: Option<i32>,
    /// The bridge or bond it is a port of.
    pub master: Option<u32>,
    /// `veth`, `vlan` ...; empty for hardware.
    pub kind: String,
    /// How many segments the stack may hand over to it in one packet.
    pub gso_max_segs: u32,
    /// Its Ethernet address; `None`: it has none, as a tunnel.
    pub mac: Option<[u8; 6]>,
}

/// One of these names: as `ip link` shows it, or another that the interface has (altname), which may be longer.
pub fn link_by_name(name: &str) -> io::Result<Link> {
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    let attribute = if name.len() < libc::IFNAMSIZ { libc::IFLA_IFNAME } else { libc::IFLA_ALT_IFNAME };
    one_link(0, &[(attribute, &value)])
}

pub fn link_by_index(index: u32) -> io::Result<Link> {
    one_link(index, &[])
}

fn one_link(index: u32, attributes: &[(u16, &[u8])]) -> io::Result<Link> {
    let answers = ask(libc::RTM_GETLINK, NLM_F_REQUEST, &link_body(index), attributes)?;
    answers.iter().find_map(|answer| parse_link(answer)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// All interfaces of this namespace.
pub fn links() -> io::Result<Vec<Link>> {
    let answers = ask(libc::RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, &link_body(0), &[])?;
    Ok(answers.iter().filter_map(|answer| parse_link(answer)).collect())
}

/// Sets how many segments the stack may hand over to an interface in one packet.
pub fn set_gso_max_segs(index: u32, segments: u32) -> io::Result<()> {
    let value = segments.to_ne_bytes();
    let attributes: [(u16, &[u8]); 1] = [(libc::IFLA_GSO_MAX_SEGS, &value)];
    ask(libc::RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, &link_body(index), &attributes).map(drop)
}

/// Whether an interface's qdisc clsact has filters, in either direction.
pub fn has_filters(index: u32) -> io::Result<bool> {
    for parent in CLSACT {
        let mut body = [0; FILTER_BODY];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        if !ask(libc::RTM_GETTFILTER, NLM_F_REQUEST | NLM_F_DUMP, &body, &[])?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an interface has the qdisc clsact.
pub fn has_clsact(index: u32) -> io::Result<bool> {
    let answers = ask(libc::RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, &[0; FILTER_BODY], &[])?;
    let is_it = |answer: &Vec<u8>| {
        let kind = attributes(answer.get(FILTER_BODY..).unwrap_or_default());
        answer.get(4..8) == Some(&index.to_ne_bytes())
            && kind.into_iter().any(|(kind, value)| kind == libc::TCA_KIND && value.starts_with(b"clsact\0"))
    };
    Ok(answers.iter().any(is_it))
}

/// Makes a pair of interfaces, one here and one in another namespace.
pub fn make_veth(here: &str, there: &str, namespace: &File) -> io::Result<()> {
    let name = |name: &str| [name.as_bytes(), &[0]].concat();
    let namespace = namespace.as_raw_fd().to_ne_bytes();
    let of_peer = encode(&[(libc::IFLA_IFNAME, &name(there)), (libc::IFLA_NET_NS_FD, &namespace)]);
    let data = encode(&[(VETH_INFO_PEER, &[&link_body(0)[..], &of_peer].concat())]);
    let info = encode(&[(libc::IFLA_INFO_KIND, b"veth"), (libc::IFLA_INFO_DATA, &data)]);
    let attributes: [(u16, &[u8]); 2] = [(libc::IFLA_IFNAME, &name(here)), (libc::IFLA_LINKINFO, &info)];
    let flags = NLM_F_REQUEST | NLM_F_ACK | libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16;
    ask(libc::RTM_NEWLINK, flags, &link_body(0), &attributes).map(drop)
}

/// Brings an interface up, on which nobody asks for addresses.
pub fn bring_up(index: u32) -> io::Result<()> {
    let flags = (libc::IFF_UP | libc::IFF_NOARP).to_ne_bytes();
    let mut body = link_body(index);
    body[8..12].copy_from_slice(&flags);
    body[12..16].copy_from_slice(&flags); // which of the flags are meant
    ask(libc::RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK, &body, &[]).map(drop)
}

/// Packets that an interface's driver has taken.
pub fn received_packets(index: u32) -> io::Result<u64> {
    let answers = ask(libc::RTM_GETLINK, NLM_F_REQUEST, &link_body(index), &[])?;
    let all = answers.iter().flat_map(|answer| attributes(answer.get(LINK_BODY..).unwrap_or_default()));
    let counts = all.filter(|(kind, _)| *kind == libc::IFLA_STATS64);
    let packets = counts.filter_map(|(_, counts)| number::<u64>(counts.get(RECEIVED_PACKETS..)?)).next();
    packets.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number that this namespace gives to another; `None` if it never needed one.
pub fn namespace_id(other: &File) -> io::Result<Option<i32>> {
    let fd = other.as_raw_fd().to_ne_bytes();
    let answers = ask(libc::RTM_GETNSID, NLM_F_REQUEST, &[0; NSID_BODY], &[(NETNSA_FD, &fd)])?;
    let id = answers.iter().flat_map(|answer| attributes(answer.get(NSID_BODY..).unwrap_or_default()));
    Ok(id.filter(|(kind, _)| *kind == NETNSA_NSID).find_map(|(_, value)| number(value)).filter(|id| *id >= 0))
}

/// How packets get to an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Route {
    /// The router on the way; `None`: the host is a neighbour itself.
    pub gateway: Option<IpAddr>,
    /// The address that this host would send from.
    pub source: Option<IpAddr>,
}

/// The way to an address by an interface, as the kernel's routes say it; `None`: there is none.
pub fn route(to: IpAddr, index: u32) -> io::Result<Option<Route>> {
    let address = octets(to);
    let mut body = [0; ROUTE_BODY];
    body[0] = family(to);
    body[1] = 8 * address.len() as u8;
    let oif = index.to_ne_bytes();
    let attributes: [(u16, &[u8]); 2] = [(libc::RTA_DST, &address), (libc::RTA_OIF, &oif)];
    match ask(libc::RTM_GETROUTE, NLM_F_REQUEST, &body, &attributes) {
        Ok(answers) => Ok(answers.iter().find_map(|answer| parse_route(answer))),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn parse_route(answer: &[u8]) -> Option<Route> {
    let mut route = Route::default();
    for (kind, value) in attributes(answer.get(ROUTE_BODY..)?) {
        match kind {
            libc::RTA_GATEWAY => route.gateway = address(value),
            // Its family comes first.
            libc::RTA_VIA => route.gateway = address(value.get(2..)?),
            libc::RTA_PREFSRC => route.source = address(value),
            _ => {}
        }
    }
    Some(route)
}

/// The Ethernet address of a neighbour, if the kernel knows it.
pub fn neighbour(of: IpAddr, index: u32) -> io::Result<Option<[u8; 6]>> {
    let address = octets(of);
    let mut body = [0; NEIGHBOUR_BODY];
    body[0] = family(of);
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    match ask(libc::RTM_GETNEIGH, NLM_F_REQUEST, &body, &[(NDA_DST, &address)]) {
        Ok(answers) => Ok(answers.iter().find_map(|answer| parse_neighbour(answer))),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_neighbour(answer: &[u8]) -> Option<[u8; 6]> {
    let state = number::<u16>(answer.get(8..)?)?;
    let mut all = attributes(answer.get(NEIGHBOUR_BODY..)?);
    let mac = all.find(|(kind, _)| *kind == NDA_LLADDR)?.1.try_into().ok()?;
    (state & (NUD_INCOMPLETE | NUD_FAILED) == 0).then_some(mac)
}

/// The broadcast addresses of this namespace's IPv4 networks but those of loopback: as the kernel's table has them.
pub fn broadcasts() -> io::Result<BTreeSet<Ipv4Addr>> {
    let mut body = [0; ADDRESS_BODY];
    body[0] = libc::AF_INET as u8;
    let answers = ask(libc::RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, &body, &[])?;
    Ok(answers.iter().flat_map(|answer| parse_broadcasts(answer)).filter(|it| !it.is_loopback()).collect())
}

/// The one that was given with an address, and the last of its network.
fn parse_broadcasts(answer: &[u8]) -> Vec<Ipv4Addr> {
    let (Some(length), Some(rest)) = (answer.get(1).copied(), answer.get(ADDRESS_BODY..)) else {
        return Vec::new();
    };
    attributes(rest)
        .filter_map(|(kind, value)| {
            let address = Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?);
            match kind {
                libc::IFA_BROADCAST => Some(address),
                libc::IFA_ADDRESS if length < 31 => Some(address | Ipv4Addr::from(u32::MAX >> length)),
                _ => None,
            }
        })
        .collect()
}

fn family(of: IpAddr) -> u8 {
    if of.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

fn octets(of: IpAddr) -> Vec<u8> {
    match of {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

fn link_body(index: u32) -> [u8; LINK_BODY] {
    let mut body = [0; LINK_BODY];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

fn parse_link(answer: &[u8]) -> Option<Link> {
    let mut link = Link { index: number::<i32>(answer.get(4..8)?)? as u32, ..Link::default() };
    for (kind, value) in attributes(answer.get(LINK_BODY..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_LINK => link.lower = number::<i32>(value).map(|index| index as u32),
            libc::IFLA_LINK_NETNSID => link.lower_namespace = number(value),
            libc::IFLA_GSO_MAX_SEGS => link.gso_max_segs = number(value).unwrap_or_default(),
            libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
            libc::IFLA_MASTER => link.master = number::<i32>(value).map(|index| index as u32),
            libc::IFLA_LINKINFO => {
                let info = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                link.kind = info.map_or_else(String::new, |(_, value)| text(value));
            }
            _ => {}
        }
    }
    Some(link)
}

fn number<T: bytemuck::AnyBitPattern>(value: &[u8]) -> Option<T> {
    bytemuck::try_pod_read_unaligned(value.get(..size_of::<T>())?).ok()
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// The attributes one after the other, each with its type; ends at what is none.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(number::<u16>(bytes)?);
        let kind = number::<u16>(bytes.get(2..)?)? & libc::NLA_TYPE_MASK as u16;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn encode(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in attributes {
        bytes.extend((4 + value.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Sends a request; returns the bodies of the answers.
fn ask(kind: u16, flags: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> io::Result<Vec<Vec<u8>>> {
    let mut message = [&[0; HEADER], body, &encode(attributes)].concat();
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    let socket = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    // SAFETY: the message outlives the call, and is as long as said. A socket that is not connected sends to the kernel.
    if unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answers = Vec::new();
    let mut buffer = vec![0u8; BUFFER];
    loop {
        // SAFETY: the buffer outlives the call, and is as long as said.
        let read = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        if read == 0 || take(&buffer[..read], &mut answers)? || flags & NLM_F_DUMP == 0 {
            return Ok(answers);
        }
    }
}

/// Adds the bodies of the messages in `bytes`; true after the last of a dump.
fn take(mut bytes: &[u8], answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (number::<u32>(bytes), bytes.get(4..).and_then(number::<u16>)) {
        let length = length as usize;
        let Some(body) = bytes.get(HEADER..length) else { return Ok(true) };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => match number::<i32>(body) {
                Some(code) if code < 0 => return Err(io::Error::from_raw_os_error(-code)),
                _ => return Ok(true),
            },
            _ => answers.push(body.to_vec()),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_found_each_way() {
        let lo = link_by_name("lo").unwrap();
        assert_eq!((lo.name.as_str(), lo.lower, lo.master), ("lo", None, None));
        assert_eq!(link_by_index(lo.index).unwrap(), lo);
        assert!(links().unwrap().contains(&lo));
        let none = link_by_name("an-altname-that-nobody-gave").unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_link(&bytes);
            let _ = (parse_route(&bytes), parse_neighbour(&bytes), parse_broadcasts(&bytes));
            let _ = take(&bytes, &mut Vec::new());
        }
    }
}
