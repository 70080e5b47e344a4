// SPDX-License-Identifier: Apache-2.0
//! A bundle's program in user space: from an object and its settings to engines that run packets with their captured times.
//!
//! Where this process may load programs, the kernel verifies the object first and the engine runs exactly what it accepted, at full
//! speed. Elsewhere, or if told, the program runs caged: every access is confined to the engine's own memory, and its run time is bounded.

use std::time::Instant;

use hashbrown::HashSet;
use serde::Serialize;
use wirewise_engine::{ClockSource, Engine, Linked, MapId, Options, ProgramId};

use crate::abi;
use crate::abi::maps::{self, Counted, flow_tables};
use crate::error::{Error, Result, shortage};
use crate::kernel;
use crate::object::deny_filter::Filter;
use crate::object::flow_table::Elements;
use crate::object::pools::{self, Held};
use crate::object::{self, Opened, Settings};
use crate::object::{allow, deny};
use crate::offline::tracker::Key;
use crate::policy::Policy;
use crate::policy::deny::Deny;

/// How the engine runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// As the kernel's verifier accepted it.
    Verified,
    /// Confined, because nobody verified it or because it was asked for.
    Caged,
}

impl Trust {
    pub fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified by the kernel",
            Self::Caged => "caged",
        }
    }
}

/// An object that is set up, from which any number of workers can be made.
pub struct Prepared {
    input: String,
    linked: Linked,
    config: abi::Config,
    pub trust: Trust,
    /// Of linking, and of the kernel's verification if there was one.
    pub load_ms: f64,
}

impl Prepared {
    /// input : what errors call the object. caged : do not ask the kernel.
    pub fn new(input: &str, bytes: &[u8], settings: &Settings, caged: bool) -> Result<Self> {
        let start = Instant::now();
        let trust = if caged || kernel::require().is_err() { Trust::Caged } else { Trust::Verified };
        let mut opened = Opened::open(input, bytes)?;
        let (mut linked, config) = match trust {
            Trust::Verified => {
                let config = opened.prepare_to_verify(settings)?;
                (Linked::from_loaded(&opened.load()?.object).map_err(|error| refused(input, &error))?, config)
            }
            Trust::Caged => {
                let config = opened.configure(settings)?;
                (
                    Linked::from_elf(&opened.object_for(&config)?).map_err(|error| refused(input, &error))?,
                    config,
                )
            }
        };
        let maps: Vec<String> = linked.maps().iter().map(|map| map.name().to_owned()).collect();
        for map in &maps {
            let set = match object::max_entries(map, &config)? {
                _ if let Some(bytes) = object::constants(map, &config) => linked.set_initial(map, bytes),
                Some(entries) => linked.set_max_entries(map, entries),
                None => Ok(()),
            };
            set.map_err(|error| refused(input, &error))?;
        }
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(Self { input: input.to_owned(), linked, config, trust, load_ms })
    }

    /// The constants the program runs with.
    pub fn config(&self) -> &abi::Config {
        &self.config
    }

    /// A worker: an engine with tables of its own.
    pub fn worker(&self) -> Result<Worker> {
        let options = Options {
            caged: (self.trust == Trust::Caged).then_some(true),
            clock: ClockSource::Manual,
            ..Options::default()
        };
        let mut engine = Engine::new(&self.linked, options).map_err(|error| refused(&self.input, &error))?;
        let entry = engine
            .program(object::ENTRY)
            .ok_or_else(|| Error::input(format!("{}: holds no program {}", self.input, object::ENTRY)))?;
        let tail_calls = self.linked.programs().iter().filter_map(|program| {
            Some((object::tail_call_index(&program.name)?, engine.program(&program.name)?))
        });
        for (index, program) in tail_calls.collect::<Vec<_>>() {
            let Some(mut map) = engine.map_mut(maps::TAIL_CALLS) else { continue };
            map.set(index, Some(program)).map_err(|error| {
                Error::other(format!("{}: cannot fill {}: {error}", self.input, maps::TAIL_CALLS))
            })?;
        }
        let own = engine
            .map_id(&maps::in_object(maps::PER_CPU))
            .ok_or_else(|| object::other_layout(maps::PER_CPU))?;
        let has_teid = self.config.key_teid != 0;
        Ok(Worker { engine, entry, own, has_teid, input: self.input.clone() })
    }
}

/// One engine with its own flow tables, counters and rate limits. It runs as CPU 0 of one.
pub struct Worker {
    engine: Engine,
    entry: ProgramId,
    /// Of `own`.
    own: MapId,
    /// The flow key has the tunnel.
    has_teid: bool,
    input: String,
}

impl Worker {
    /// A frame at its captured time. Returns the XDP code.
    #[inline]
    pub fn run(&mut self, frame: &mut [u8], time_ns: u64) -> Result<u32> {
        self.run_behind(frame, 0, time_ns)
    }

    /// One with so many bytes of metadata in front.
    #[inline]
    pub fn run_behind(&mut self, packet: &mut [u8], metadata: usize, time_ns: u64) -> Result<u32> {
        self.engine.set_time(time_ns);
        let code = self.engine.run_xdp(self.entry, packet, metadata);
        code.map_err(|trap| Error::other(format!("{}: {trap}", self.input)))
    }

    /// Counters and scratch space, as the program left them.
    #[inline]
    pub fn own(&self) -> Result<&abi::Cpu> {
        let bytes = self.engine.map_at(self.own).and_then(|map| map.bytes());
        let bytes = bytes.and_then(|bytes| bytes.get(..size_of::<abi::Cpu>()));
        bytes
            .and_then(|bytes| bytemuck::try_from_bytes(bytes).ok())
            .ok_or_else(|| object::other_layout(maps::PER_CPU))
    }

    /// Writes policy and allow list. No packet passes meanwhile.
    pub fn write_policy(&mut self, policy: &Policy, element: &abi::Element) -> Result<()> {
        for (name, v4) in [(maps::ALLOW4, true), (maps::ALLOW6, false)] {
            let prefixes = policy.prefixes.iter().filter(|prefix| prefix.address.is_ipv4() == v4).count();
            if let Some(map) = self.engine.map(name) {
                allow::check_room(name, prefixes, map.spec().max_entries())?;
            }
        }
        for prefix in &policy.prefixes {
            let name = if prefix.address.is_ipv4() { maps::ALLOW4 } else { maps::ALLOW6 };
            self.update(name, &prefix.map_key(), bytemuck::bytes_of(&allow::of_policy(prefix)))?;
        }
        if !(policy.ports.is_empty() && policy.source_ports.is_empty()) {
            for (index, word) in (0u32..).zip(policy.port_words()) {
                self.update(maps::ALLOW_PORTS, &index.to_ne_bytes(), &word.to_ne_bytes())?;
            }
        }
        if let Some(Deny { prefixes, ports }) = &policy.deny {
            for (index, word) in Filter::of(prefixes).words() {
                self.update(maps::DENY_FILTER, &index.to_ne_bytes(), &word.to_ne_bytes())?;
            }
            for prefix in prefixes {
                let name = if prefix.address.is_ipv4() { maps::DENY4 } else { maps::DENY6 };
                self.update(name, &prefix.map_key(), bytemuck::bytes_of(&deny::of_policy(prefix)))?;
            }
            if !ports.is_empty() {
                for (index, word) in (0u32..).zip(policy.denied_port_words()) {
                    self.update(maps::DENY_PORTS, &index.to_ne_bytes(), &word.to_ne_bytes())?;
                }
            }
        }
        if !policy.pools.is_empty() {
            self.write_pools(policy)?;
        }
        // Pools lie in their order, as nobody was there before them.
        if self.map_name(maps::ACT_POLICY).is_some() {
            self.update(maps::ACT_POLICY, &0u32.to_ne_bytes(), bytemuck::bytes_of(&element.act))?;
        }
        self.update(maps::POLICY, &0u32.to_ne_bytes(), bytemuck::bytes_of(&element.policy))
    }

    fn write_pools(&mut self, policy: &Policy) -> Result<()> {
        let placed = pools::place(&policy.pools, &Held::default(), 0).wanted;
        for (number, pool) in placed.named() {
            let table = 2 * number as u32 + pool.table;
            self.update(maps::POOLS, &(number as u32).to_ne_bytes(), bytemuck::bytes_of(pool))?;
            let places = placed.table(number);
            self.update(maps::TABLES_OF_POOLS, &table.to_ne_bytes(), bytemuck::cast_slice(&places))?;
            for (slot, backend) in placed.members(number) {
                self.update(maps::BACKENDS, &(slot as u32).to_ne_bytes(), bytemuck::bytes_of(backend))?;
            }
        }
        Ok(())
    }

    fn update(&mut self, name: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let map = self.map_name(name).and_then(|full| self.engine.map_mut(&full));
        let mut map = map.ok_or_else(|| object::no_map(name))?;
        map.update(key, value, 0).map_err(|error| Error::other(format!("cannot write {name}: {error}")))
    }

    /// A variable's own section is a map too.
    fn map_name(&self, name: &str) -> Option<String> {
        [name.to_owned(), format!(".data.{name}")].into_iter().find(|name| self.engine.map(name).is_some())
    }

    /// Forgets every flow.
    pub fn clear_flows(&mut self) {
        for name in flow_tables() {
            if let Some(bytes) = self.engine.map_mut(name).and_then(|map| map.into_bytes_mut()) {
                bytes.fill(0);
            }
        }
    }

    /// A copy of an array map.
    pub fn elements(&self, name: &str) -> Option<Elements> {
        let (bytes, stride) = self.array(name)?;
        let value_size = self.engine.map(name)?.spec().value_size() as usize;
        Some(Elements::Copied { bytes: bytes.to_vec(), stride, value_size })
    }

    /// Elements of an array map, and the bytes from one to the next.
    fn array(&self, name: &str) -> Option<(&[u8], usize)> {
        let map = self.engine.map(name)?;
        Some((map.bytes()?, map.stride()))
    }

    /// The keys that are in the flow tables.
    pub fn live_keys(&self) -> HashSet<Key> {
        let mut keys = HashSet::new();
        for (ip_version, name) in maps::tables(Counted::Flow) {
            let Some((bytes, bucket)) = self.array(name) else { continue };
            for entry in bytes.chunks_exact(bucket / abi::WAYS as usize) {
                keys.extend(live_key(ip_version, self.has_teid, entry));
            }
        }
        keys
    }
}

/// In the form of traces.
fn live_key(ip_version: u8, has_teid: bool, entry: &[u8]) -> Option<Key> {
    let (slot, key) = entry.split_at_checked(size_of::<abi::Slot>())?;
    let slot: abi::Slot = bytemuck::pod_read_unaligned(slot);
    let (key, rest): (abi::Key6, _) = if ip_version == 4 {
        let (key, rest) = key.split_at_checked(size_of::<abi::Key4>())?;
        (bytemuck::pod_read_unaligned::<abi::Key4>(key).into(), rest)
    } else {
        let (key, rest) = key.split_at_checked(size_of::<abi::Key6>())?;
        (bytemuck::pod_read_unaligned(key), rest)
    };
    let teid = if has_teid { bytemuck::pod_read_unaligned(rest.get(..size_of::<u64>())?) } else { 0 };
    let key = abi::TunnelKey6 { key, teid };
    (slot.packets != 0).then(|| (ip_version, bytemuck::cast(key)))
}

fn refused(input: &str, error: &wirewise_engine::Error) -> Error {
    match shortage(&error.to_string()) {
        Some(shortage) => Error::other(format!("{input}: the engine cannot run it: {shortage}")),
        None => Error::input(format!("{input}: the engine cannot run it: {error}")),
    }
}
