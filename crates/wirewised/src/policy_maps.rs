// SPDX-License-Identifier: Apache-2.0
//! Puts a policy into the maps the data path reads, while packets may be passing through it.

use std::net::IpAddr;

use bytemuck::{Pod, bytes_of};
use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::error::{Error, Result};
use crate::policy::Policy;

/// Writes the allow list, then `element` (made by `policy.to_abi`), so that what its bits switch on is there.
///
/// find : an open map by its name; `None` if the object has no such map.
pub fn write<M: MapCore>(
    policy: &Policy,
    element: &abi::Policy,
    find: impl Fn(&str) -> Option<M>,
) -> Result<()> {
    let addresses = policy.prefixes.iter().map(|prefix| (prefix.address, u32::from(prefix.length)));
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (address, length) in addresses {
        match address {
            IpAddr::V4(address) => v4.push(abi::Prefix4 { length, address: address.octets() }),
            IpAddr::V6(address) => v6.push(abi::Prefix6 { length, address: address.octets() }),
        }
    }
    replace_prefixes("ww_allow4", find("ww_allow4"), &v4)?;
    replace_prefixes("ww_allow6", find("ww_allow6"), &v6)?;
    match find("ww_allow_ports") {
        Some(map) => {
            for (index, word) in (0u32..).zip(policy.port_words()) {
                update(&map, &index, &word)?;
            }
        }
        None if policy.ports.is_empty() => {}
        None => return Err(no_map("ww_allow_ports")),
    }
    let map = find("ww_policy").ok_or_else(|| no_map("ww_policy"))?;
    update(&map, &0u32, element)
}

/// Makes `wanted` the content of an LPM trie: adds first, so that no address loses its exemption meanwhile.
fn replace_prefixes<K: Pod>(name: &str, map: Option<impl MapCore>, wanted: &[K]) -> Result<()> {
    let Some(map) = map else {
        return if wanted.is_empty() { Ok(()) } else { Err(no_map(name)) };
    };
    for prefix in wanted {
        update(&map, prefix, &0u32)?;
    }
    let stale: Vec<_> =
        map.keys().filter(|key| !wanted.iter().any(|prefix| bytes_of(prefix) == key.as_slice())).collect();
    for key in stale {
        map.delete(&key).map_err(|error| Error::other(format!("{name}: cannot remove a prefix: {error}")))?;
    }
    Ok(())
}

fn update<K: Pod, V: Pod>(map: &impl MapCore, key: &K, value: &V) -> Result<()> {
    map.update(bytes_of(key), bytes_of(value), MapFlags::ANY).map_err(|error| {
        let name = map.name().to_string_lossy();
        if name.starts_with("ww_allow") && error.kind() == libbpf_rs::ErrorKind::Other {
            return Error::input(format!(
                "the allow list has more prefixes than the {} that {name} holds",
                map.max_entries()
            ));
        }
        Error::other(format!("cannot write {name}: {error}"))
    })
}

fn no_map(name: &str) -> Error {
    Error::input(format!("the program has no map {name}, so this policy cannot be applied to it"))
}
