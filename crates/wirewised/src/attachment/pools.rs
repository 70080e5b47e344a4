// SPDX-License-Identifier: Apache-2.0
//! How packets get to the backends of a policy: the interface they leave by, its addresses, and the Ethernet address that each backend's
//! frames go to, which is its own or that of the router on the way.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::abi::Method;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::way_out::{Judged, check_target};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::rtnetlink::{self, Route};
use crate::policy::Policy;
use crate::policy::pools::{Backend, Mac, Pool};

/// How long neighbours may take to say who they are.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(20);
/// discard (RFC 863): nobody is to do anything with what is sent there.
const DISCARD: u16 = 9;

/// Looks up, in this network namespace, what the data path has to know of the pools.
pub fn admit(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for pool in &mut policy.pools {
        resolve(pool, judged.own)?;
        if let Some(target) = pool.interface.as_ref().filter(|target| target.ifindex != judged.own) {
            findings.extend(check_target(&target.interface, target.ifindex, judged.planes));
        }
    }
    Ok(findings)
}

/// own : the interface whose packets are judged.
fn resolve(pool: &mut Pool, own: u32) -> Result<()> {
    let refuse = |message: String| Error::input(format!("policy: pools: {}: {message}", pool.name));
    let index = match &mut pool.interface {
        Some(target) => {
            target.ifindex = netdev::index(&target.interface).map_err(|error| refuse(error.to_string()))?;
            target.ifindex
        }
        None if own == 0 => {
            return Err(refuse(
                "the kernel has no interface behind the device whose packets are judged; give the pool's `interface`".into(),
            ));
        }
        None => own,
    };
    let name = netdev::name(index).unwrap_or_else(|| index.to_string());
    let link = rtnetlink::link_by_index(index).map_err(|error| refuse(format!("{name}: {error}")))?;
    let mac = link.mac.filter(|mac| *mac != [0; 6]);
    let mac = mac.ok_or_else(|| refuse(format!("{name} is no Ethernet, and frames leave by it")))?;
    let ways = pool.backends.iter().map(|backend| way(pool, backend, index, &name));
    let ways: Vec<_> = ways.collect::<std::result::Result<_, _>>().map_err(refuse)?;
    let asked: Vec<_> =
        pool.backends.iter().zip(&ways).filter(|(backend, _)| backend.mac.is_none()).collect();
    ask_neighbours(asked.iter().map(|(_, way)| way.next), index, &name);
    let mut found = Vec::new();
    for (backend, way) in pool.backends.iter().zip(&ways) {
        let known = match backend.mac {
            Some(given) => Some(given),
            None => rtnetlink::neighbour(way.next, index).ok().flatten().map(Mac),
        };
        found.push(known.ok_or_else(|| {
            refuse(format!(
                "backend {}: {} does not say its Ethernet address on {name}: is it up? Or give the backend's `mac`",
                backend.address,
                if way.next == backend.address { "it".to_string() } else { format!("the router {}", way.next) }
            ))
        })?);
    }
    pool.mac = Mac(mac);
    for ((backend, way), mac) in pool.backends.iter_mut().zip(ways).zip(found) {
        backend.way = Some((mac, way.source));
    }
    Ok(())
}

struct Way {
    /// Whose Ethernet address it is.
    next: IpAddr,
    /// Of the outer header, if there is to be one.
    source: IpAddr,
}

fn way(pool: &Pool, backend: &Backend, index: u32, name: &str) -> std::result::Result<Way, String> {
    let Backend { address, .. } = *backend;
    let route = rtnetlink::route(address, index).map_err(|error| format!("backend {address}: {error}"))?;
    // Who is given by its Ethernet address need not be reached by IP.
    let unknown = || {
        format!(
            "backend {address}: there is no route to it by {name}; give `interface`, or the backend's `mac`"
        )
    };
    let route = route.or(backend.mac.map(|_| Route::default())).ok_or_else(unknown)?;
    if let (Method::Dsr, Some(router), None) = (pool.method, route.gateway, backend.mac) {
        return Err(format!(
            "backend {address} is behind the router {router}, and the method dsr goes to neighbours only; take ip-in-ip or gue"
        ));
    }
    let given = pool.source.filter(|source| source.is_ipv4() == address.is_ipv4());
    let source = match given.or(route.source) {
        Some(source) => source,
        None if pool.method == Method::Dsr => address,
        None => {
            return Err(format!(
                "backend {address}: {name} has no address to send from; give the pool's `source`"
            ));
        }
    };
    Ok(Way { next: route.gateway.unwrap_or(address), source })
}

/// Has the kernel look for neighbours that it does not know, all at once, and waits for them.
fn ask_neighbours(neighbours: impl Iterator<Item = IpAddr>, index: u32, name: &str) {
    let is_unknown = |of: &IpAddr| !matches!(rtnetlink::neighbour(*of, index), Ok(Some(_)));
    let mut unknown: Vec<_> = neighbours.filter(is_unknown).collect();
    let end = Instant::now() + PATIENCE;
    unknown.iter().for_each(|neighbour| drop(send_to(*neighbour, index, name)));
    while !unknown.is_empty() && Instant::now() < end {
        std::thread::sleep(BETWEEN);
        unknown.retain(is_unknown);
    }
}

/// A packet without content: before it is sent, the kernel asks who the neighbour is.
fn send_to(neighbour: IpAddr, index: u32, name: &str) -> std::io::Result<()> {
    let any: IpAddr = if neighbour.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    // SAFETY: the option is the name's bytes, which outlive the call.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if code != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut to = SocketAddr::from((neighbour, DISCARD));
    if let SocketAddr::V6(v6) = &mut to {
        v6.set_scope_id(index);
    }
    socket.send_to(&[], to).map(drop)
}
