// SPDX-License-Identifier: Apache-2.0
//! Pools of servers, over which a class's flows are spread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::abi;
use crate::policy::file::{BackendFile, HealthFile, PoolFile};
use crate::policy::words::{Number, Target};
use crate::text::nearest::choose;
use crate::text::units::Nanoseconds;

/// Of one policy: the maps have room for those of two.
pub const MAX_POOLS: usize = abi::POOLS / 2;
pub const MAX_BACKENDS: usize = abi::BACKENDS / 2 - 1;
const MAX_WEIGHT: u32 = 100;
const MAX_IN_A_ROW: u32 = 100;
const MILLISECOND: u64 = 1_000_000;
/// Of the time between two checks, and of the time for one.
const INTERVALS: [u64; 2] = [100, 3_600_000];
const TIMEOUTS: [u64; 2] = [10, 60_000];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub method: abi::Method,
    /// Where its packets leave; `None`: by the interface they came by.
    pub interface: Option<Target>,
    /// Of the outer header; `None`: the interface's.
    pub source: Option<IpAddr>,
    pub seed: u32,
    pub health: Option<Health>,
    /// At least one; in the order of their addresses.
    pub backends: Vec<Backend>,
    /// Of the interface its packets leave by; zeros: nobody has looked.
    pub mac: Mac,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub address: IpAddr,
    pub weight: u16,
    pub drains: bool,
    /// As the policy gives it.
    pub mac: Option<Mac>,
    /// Where its frames go, and the outer source address: as found in the network namespace where the policy is to hold.
    pub way: Option<(Mac, IpAddr)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub check: abi::Check,
    pub port: u16,
    /// Of HTTP.
    pub path: String,
    pub interval_ms: u32,
    pub timeout_ms: u32,
    pub fall: u16,
    pub rise: u16,
}

/// An Ethernet address of one station.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("'{text}' is no Ethernet address of a host, such as 52:54:00:12:34:56");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or_else(refuse)?;
        }
        // The lowest bit of the first byte is that of groups.
        if parts.next().is_some() || bytes == [0; 6] || bytes[0] & 1 != 0 {
            Err(refuse())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.map(|byte| format!("{byte:02x}"));
        f.pad(&parts.join(":"))
    }
}

/// The pools of a policy file, in the order of their names.
pub fn pools(file: Option<BTreeMap<String, PoolFile>>) -> Result<Vec<Pool>, String> {
    let file = file.unwrap_or_default();
    if file.len() > MAX_POOLS {
        return Err(format!("pools: {} are too many; at most {MAX_POOLS}", file.len()));
    }
    let pools = file.into_iter().map(|(name, file)| {
        let pool = pool(&name, file);
        pool.map_err(|message| format!("pools: {name}: {message}"))
    });
    let pools = pools.collect::<Result<Vec<_>, _>>()?;
    let backends: usize = pools.iter().map(|pool| pool.backends.len()).sum();
    if backends > MAX_BACKENDS {
        return Err(format!("pools: {backends} backends are too many; at most {MAX_BACKENDS} in all pools"));
    }
    Ok(pools)
}

fn pool(name: &str, file: PoolFile) -> Result<Pool, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() >= abi::POOL_NAME || !name.bytes().all(plain) {
        return Err(format!(
            "a pool's name is 1 to {} letters, digits, hyphens, dots and underscores",
            abi::POOL_NAME - 1
        ));
    }
    let method = method(file.method.as_deref())?;
    let interface = match file.interface {
        Some(name) if name.is_empty() || name.contains(['/', '\0']) => {
            return Err("interface: write a name, such as eth1".to_string());
        }
        name => name.map(|interface| Target { interface, ifindex: 0 }),
    };
    if file.source.is_some() && method == abi::Method::Dsr {
        return Err("source is of an outer header, which the method dsr has not; leave it out".to_string());
    }
    let source = file.source.as_deref().map(|text| host(text).map_err(|error| format!("source: {error}")));
    let mut backends =
        file.backends.unwrap_or_default().into_iter().map(backend).collect::<Result<Vec<_>, _>>()?;
    if backends.is_empty() {
        return Err(
            "has no backends; write backends: [{address: 10.0.0.11}, {address: 10.0.0.12}]".to_string()
        );
    }
    backends.sort_by_key(|backend| backend.address);
    let mut seen = BTreeSet::new();
    if let Some(twice) = backends.iter().find(|backend| !seen.insert(backend.address)) {
        return Err(format!("backend {} stands twice; give it a weight instead", twice.address));
    }
    Ok(Pool {
        name: name.to_string(),
        method,
        interface,
        source: source.transpose()?,
        seed: file.seed.map_or(0, |Number(seed)| seed),
        health: file.health.map(health).transpose().map_err(|error| format!("health: {error}"))?,
        backends,
        mac: Mac::default(),
    })
}

fn method(name: Option<&str>) -> Result<abi::Method, String> {
    let name = name.unwrap_or(abi::Method::Dsr.name());
    let known = abi::Method::ALL.iter().find(|method| method.name() == name);
    known.copied().ok_or_else(|| {
        let names: Vec<_> = abi::Method::ALL.iter().map(|method| method.name()).collect();
        format!("unknown method '{name}'; {}", choose(name, &names))
    })
}

/// An address that one host can have.
fn host(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        text.parse().map_err(|_| format!("'{text}' is no address; write 10.0.0.11 or 2001:db8::11"))?;
    let group = match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    };
    if group || address.is_unspecified() || address.is_loopback() {
        return Err(format!("'{text}' is no address of another host"));
    }
    Ok(address)
}

fn backend(file: BackendFile) -> Result<Backend, String> {
    let address = file.address.as_deref().ok_or("a backend needs an address: {address: 10.0.0.11}")?;
    let of = |message: String| format!("backend {address}: {message}");
    let weight = file.weight.map_or(1, |Number(weight)| weight);
    if !(1..=MAX_WEIGHT).contains(&weight) {
        return Err(of(format!(
            "weight {weight} is out of range; 1 to {MAX_WEIGHT}, and `drain: true` for one that is to get no new flows"
        )));
    }
    Ok(Backend {
        address: host(address).map_err(|message| format!("backend: {message}"))?,
        weight: weight as u16,
        drains: file.drain.unwrap_or_default().0,
        mac: file.mac.map(|text| text.parse().map_err(of)).transpose()?,
        way: None,
    })
}

fn health(file: HealthFile) -> Result<Health, String> {
    const FORMS: &str = "{tcp: 80} or {http: /health, port: 80}";
    let port = |Number(port): Number| match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("port {port} is out of range; 1 to 65535")),
    };
    let (check, port, path) = match (file.tcp, file.http, file.port) {
        (Some(number), None, None) => (abi::Check::Tcp, port(number)?, String::new()),
        (None, Some(path), number) => {
            let shown = path.bytes().all(|byte| byte.is_ascii_graphic());
            if !path.starts_with('/') || !shown || path.len() >= abi::CHECK_PATH {
                return Err(format!(
                    "http: '{path}' is no path such as /health, of at most {} printable characters",
                    abi::CHECK_PATH - 1
                ));
            }
            (abi::Check::Http, port(number.unwrap_or(Number(80)))?, path)
        }
        _ => return Err(format!("write one of {FORMS}")),
    };
    let in_a_row = |key: &str, given: Option<Number>, usual: u32| {
        let number = given.map_or(usual, |Number(number)| number);
        if (1..=MAX_IN_A_ROW).contains(&number) {
            Ok(number as u16)
        } else {
            Err(format!("{key} {number} is out of range; 1 to {MAX_IN_A_ROW} in a row"))
        }
    };
    Ok(Health {
        check,
        port,
        path,
        interval_ms: milliseconds("interval", file.interval, 1000, INTERVALS)?,
        timeout_ms: milliseconds("timeout", file.timeout, 500, TIMEOUTS)?,
        fall: in_a_row("fall", file.fall, 3)?,
        rise: in_a_row("rise", file.rise, 2)?,
    })
}

fn milliseconds(
    key: &str,
    given: Option<Nanoseconds>,
    usual: u64,
    [low, high]: [u64; 2],
) -> Result<u32, String> {
    let time = given.unwrap_or(Nanoseconds(usual * MILLISECOND));
    if time.0.is_multiple_of(MILLISECOND) && (low..=high).contains(&(time.0 / MILLISECOND)) {
        return Ok((time.0 / MILLISECOND) as u32);
    }
    let [low, high] = [low, high].map(|ms| Nanoseconds(ms * MILLISECOND));
    Err(format!("{key} {time} is out of range; {low} to {high}, in whole milliseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_that_of_one_station() {
        let mac: Mac = "52:54:00:aB:34:56".parse().unwrap();
        assert_eq!(mac.to_string(), "52:54:00:ab:34:56");
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:00:12:34:+6",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
