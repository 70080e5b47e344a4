// SPDX-License-Identifier: Apache-2.0
//! Limits of each address at `listen`: concurrent connections, requests per second, wrong tokens per minute. The control socket has none of
//! them, because the kernel names its peers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde::Deserialize;

/// Concurrent ones of one address.
const CONNECTIONS: u32 = 32;
/// Addresses that are told apart; those beyond them share their limits.
const ADDRESSES: usize = 4096;
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// How long an address is remembered after its last request: until all of its limits are as at the start.
const REMEMBERED: Duration = Duration::from_secs(120);

/// The `limits` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    requests_per_second: NonZeroU32,
    failures_per_minute: NonZeroU32,
}

impl Default for Rates {
    fn default() -> Self {
        let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self { requests_per_second: number(100), failures_per_minute: number(10) }
    }
}

#[derive(Debug)]
pub struct Limits {
    rates: Rates,
    callers: Mutex<HashMap<IpAddr, Caller>>,
}

#[derive(Debug)]
struct Caller {
    requests: DefaultDirectRateLimiter,
    failures: DefaultDirectRateLimiter,
    /// After too many failures nothing is looked at until then, so that no token can be found by trying.
    shut: Instant,
    seen: Instant,
    connections: u32,
}

impl Caller {
    fn new(rates: Rates) -> Self {
        Self {
            requests: RateLimiter::direct(Quota::per_second(rates.requests_per_second)),
            failures: RateLimiter::direct(Quota::per_minute(rates.failures_per_minute)),
            shut: Instant::now(),
            seen: Instant::now(),
            connections: 0,
        }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        self.connections == 0 && now.saturating_duration_since(self.seen) > REMEMBERED
    }
}

/// How long a limiter wants its caller to wait; `None`: not at all.
fn wait(limiter: &DefaultDirectRateLimiter) -> Option<Duration> {
    limiter.check().err().map(|until| until.wait_time_from(DefaultClock::default().now()))
}

impl Limits {
    pub fn new(rates: Rates) -> Self {
        Self { rates, callers: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Caller>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, address: IpAddr, then: impl FnOnce(IpAddr, &mut Caller) -> T) -> T {
        let (mut callers, now, mut key) = (self.lock(), Instant::now(), network(address));
        if callers.len() >= ADDRESSES && !callers.contains_key(&key) {
            callers.retain(|_, caller| !caller.is_forgotten(now));
            if callers.len() >= ADDRESSES {
                key = OTHERS;
            }
        }
        let caller = callers.entry(key).or_insert_with(|| Caller::new(self.rates));
        caller.seen = now;
        then(key, caller)
    }

    /// A place for one more connection; `None`: the address has enough of them.
    pub fn connects(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        self.with(address, |key, caller| {
            let admitted = caller.connections < CONNECTIONS;
            caller.connections += u32::from(admitted);
            admitted.then(|| Connection { limits: Arc::clone(self), key })
        })
    }

    /// How long a request has to wait; `None`: not at all.
    pub fn asks(&self, address: IpAddr) -> Option<Duration> {
        self.with(address, |_, caller| {
            let shut = caller.shut.saturating_duration_since(Instant::now());
            if shut.is_zero() { wait(&caller.requests) } else { Some(shut) }
        })
    }

    /// Counts a request without a token that is known.
    pub fn failed(&self, address: IpAddr) {
        self.with(address, |_, caller| {
            if let Some(wait) = wait(&caller.failures) {
                caller.shut = Instant::now() + wait;
            }
        });
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Connection {
    limits: Arc<Limits>,
    key: IpAddr,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(caller) = self.limits.lock().get_mut(&self.key) {
            caller.connections = caller.connections.saturating_sub(1);
        }
    }
}

/// Whose limits an address has: of IPv6 the first 64 bits, as a host has all of the others.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests: u32, failures: u32) -> Arc<Limits> {
        let number = |number| NonZeroU32::new(number).unwrap();
        Arc::new(Limits::new(Rates {
            requests_per_second: number(requests),
            failures_per_minute: number(failures),
        }))
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
    }

    #[test]
    fn each_address_has_its_own() {
        // So few that no machine is too slow for them.
        let limits = limits(1, 2);
        let (one, other) = (address(1), address(2));
        assert_eq!(limits.asks(one), None);
        let wait = limits.asks(one).unwrap();
        assert!(wait <= Duration::from_secs(1));
        assert_eq!(limits.asks(other), None);
        for _ in 0..2 {
            limits.failed(other);
        }
        assert!(limits.asks(other).unwrap() <= Duration::from_secs(1), "two are within the limit");
        limits.failed(other);
        let shut = limits.asks(other).unwrap();
        assert!(shut > Duration::from_secs(1) && shut <= Duration::from_secs(30), "{shut:?}");
    }

    #[test]
    fn a_host_is_one_address() {
        for (address, key) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), key.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn memory_has_an_end_and_places_are_given_back() {
        let limits = limits(100, 10);
        let held: Vec<_> = (0..ADDRESSES as u32).map(|number| limits.connects(address(number))).collect();
        assert!(held.iter().all(Option::is_some));
        let others: Vec<_> =
            (0..100).map(|number| limits.connects(address(ADDRESSES as u32 + number))).collect();
        assert_eq!(others.iter().flatten().count(), CONNECTIONS as usize, "they share theirs");
        assert_eq!(limits.lock().len(), ADDRESSES + 1);
        drop((held, others));
        assert!(limits.lock().values().all(|caller| caller.connections == 0));
    }
}
