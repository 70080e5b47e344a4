// SPDX-License-Identifier: Apache-2.0
//! Where the pools of a policy and their backends lie in the maps. Who was there before keeps its place, by name and by address: flows that
//! are remembered go by these.

use std::net::IpAddr;

use bytemuck::Zeroable;

use crate::abi;
use crate::object::pools::held::Held;
use crate::policy::pools::{Backend, Pool};

/// What is to be written.
#[derive(Debug, Clone)]
pub struct Placement {
    /// How the maps are to be in the end.
    pub wanted: Held,
    /// By the policy's order, each pool's number in the maps.
    pub numbers: Vec<u16>,
    /// Backends that have no flows yet, by place.
    pub fresh: Vec<usize>,
    /// Pools and backends that go when nobody is sent there any more.
    pub stale_pools: Vec<usize>,
    pub stale_backends: Vec<usize>,
}

/// generation : of backends that are new, unlike that of any which had their place before.
pub fn place(pools: &[Pool], held: &Held, generation: u16) -> Placement {
    let mut wanted = held.clone();
    let (mut numbers, mut kept_backends, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
    // First those that are there, so that no other takes their number.
    let known =
        |pool: &Pool| held.named().find(|(_, there)| there.text() == pool.name).map(|(number, _)| number);
    let mut taken: Vec<usize> = held.named().map(|(number, _)| number).collect();
    for pool in pools {
        let number = known(pool).unwrap_or_else(|| first_free(&taken, 0));
        taken.push(number);
        numbers.push(number as u16);
        // The other of its two tables is written, and then holds.
        let table = 1 - (held.pools[number].table & 1);
        wanted.pools[number] = pool.to_abi(table);
    }
    let mut taken: Vec<usize> = (0..held.backends.len())
        .filter(|slot| held.backends[*slot].flags & abi::BACKEND_THERE != 0)
        .collect();
    for (pool, number) in pools.iter().zip(&numbers) {
        for backend in &pool.backends {
            let mut entry = backend.to_abi(*number);
            let before = held.members((*number).into()).find(|(_, there)| there.ip() == backend.address);
            let slot = match before {
                Some((slot, before)) => {
                    entry.generation = before.generation;
                    if pool.health.is_some() {
                        entry.flags |= before.flags & abi::BACKEND_DOWN;
                    }
                    slot
                }
                None => {
                    let slot = first_free(&taken, 1);
                    taken.push(slot);
                    fresh.push(slot);
                    entry.generation = generation;
                    slot
                }
            };
            wanted.backends[slot] = entry;
            kept_backends.push(slot);
        }
    }
    let stale_pools: Vec<_> = held
        .named()
        .map(|(number, _)| number)
        .filter(|number| !numbers.contains(&(*number as u16)))
        .collect();
    let there = (0..held.backends.len()).filter(|slot| held.backends[*slot].flags & abi::BACKEND_THERE != 0);
    let stale_backends: Vec<_> = there.filter(|slot| !kept_backends.contains(slot)).collect();
    stale_pools.iter().for_each(|number| wanted.pools[*number] = abi::Pool::zeroed());
    for slot in &stale_backends {
        // Its generation stays, so that the next one here gets another.
        wanted.backends[*slot].flags = 0;
    }
    Placement { wanted, numbers, fresh, stale_pools, stale_backends }
}

/// There is one: the maps have room for two policies.
fn first_free(taken: &[usize], from: usize) -> usize {
    (from..).find(|place| !taken.contains(place)).unwrap_or(from)
}

impl Pool {
    fn to_abi(&self, table: u32) -> abi::Pool {
        let mut pool = abi::Pool {
            seed: self.seed.into(),
            table,
            ifindex: self.interface.as_ref().map_or(0, |target| target.ifindex),
            method: self.method.code() as u16,
            mac: self.mac.0,
            ..abi::Pool::zeroed()
        };
        pool.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        if let Some(health) = &self.health {
            pool.check = health.check.code() as u16;
            pool.port = health.port;
            (pool.interval_ms, pool.timeout_ms) = (health.interval_ms, health.timeout_ms);
            (pool.fall, pool.rise) = (health.fall, health.rise);
            pool.path[..health.path.len()].copy_from_slice(health.path.as_bytes());
        }
        pool
    }
}

impl Backend {
    fn to_abi(&self, pool: u16) -> abi::Backend {
        let (mac, source) = self.way.unzip();
        let mac = self.mac.or(mac).unwrap_or_default();
        abi::Backend {
            address: in_16(self.address),
            source: source.map_or([0; 16], in_16),
            mac: mac.0,
            ip_version: if self.address.is_ipv4() { 4 } else { 6 },
            given: self.mac.is_some().into(),
            flags: abi::BACKEND_THERE | if self.drains { abi::BACKEND_DRAINS } else { 0 },
            pool,
            weight: self.weight,
            generation: 0,
        }
    }
}

/// IPv4 in the first 4 bytes.
pub fn in_16(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    fn pools(text: &str) -> Vec<Pool> {
        let classes: Vec<_> = ["a", "b", "c"].map(str::to_string).to_vec();
        let named: Vec<_> = text.split(';').map(|pool| pool.split_once(' ').unwrap()).collect();
        let uses =
            classes.iter().zip(&named).map(|(class, (name, _))| format!("{class}: {{backend: {name}}}"));
        let uses = uses.collect::<Vec<_>>().join(", ");
        let listed = named.iter().map(|(name, hosts)| {
            let hosts: Vec<_> = hosts.split(' ').map(|host| format!("{{address: 10.0.0.{host}}}")).collect();
            format!("{name}: {{health: {{tcp: 80}}, backends: [{}]}}", hosts.join(", "))
        });
        let listed = listed.collect::<Vec<_>>().join(", ");
        let text = format!("version: 1\nclasses: {{{uses}}}\npools: {{{listed}}}\n");
        Policy::parse(&text, &classes).unwrap().pools
    }

    fn slot(held: &Held, pool: &str, host: u8) -> Option<usize> {
        let (number, _) = held.named().find(|(_, there)| there.text() == pool)?;
        let mut members = held.members(number);
        Some(members.find(|(_, backend)| backend.address[..4] == [10, 0, 0, host])?.0)
    }

    #[test]
    fn who_stays_keeps_its_place_and_who_comes_has_another_generation() {
        let first = place(&pools("m 1 2;z 1"), &Held::default(), 7);
        assert_eq!((first.numbers.clone(), first.fresh.len()), (vec![0, 1], 3));
        let mut held = first.wanted.clone();
        let (m1, z1) = (slot(&held, "m", 1).unwrap(), slot(&held, "z", 1).unwrap());
        assert!(m1 != 0 && m1 != z1);
        held.backends[m1].flags |= abi::BACKEND_DOWN;
        // A pool with an earlier name, one backend less and one more.
        let second = place(&pools("a 9;m 1 3;z 1"), &held, 8);
        assert_eq!(second.numbers, [2, 0, 1]);
        assert_eq!((slot(&second.wanted, "m", 1), slot(&second.wanted, "z", 1)), (Some(m1), Some(z1)));
        assert_ne!(second.wanted.backends[m1].flags & abi::BACKEND_DOWN, 0);
        let gone = slot(&held, "m", 2).unwrap();
        assert_eq!((second.stale_backends.clone(), slot(&second.wanted, "m", 2)), (vec![gone], None));
        // Not even a new one has the place of one that goes while it may still be used.
        assert!(second.fresh.iter().all(|fresh| *fresh != gone));
        assert_eq!(second.wanted.pools[0].table, 1 - held.pools[0].table);
        let third = place(&pools("m 1 2"), &second.wanted, 9);
        assert_eq!(third.stale_pools, [1, 2]);
        let back = slot(&third.wanted, "m", 2).unwrap();
        assert_eq!((back, third.wanted.backends[back].generation), (gone, 9));
    }

    #[test]
    fn a_table_has_only_those_that_get_flows() {
        let mut held = place(&pools("m 1 2 3"), &Held::default(), 1).wanted;
        let [one, two, three] = [1, 2, 3].map(|host| slot(&held, "m", host).unwrap());
        held.backends[one].flags |= abi::BACKEND_DRAINS;
        held.backends[two].flags |= abi::BACKEND_DOWN;
        assert!(held.table(0).iter().all(|slot| usize::from(*slot) == three));
        held.backends[three].flags |= abi::BACKEND_DOWN;
        assert!(held.table(0).iter().all(|slot| *slot == 0));
    }
}
