// SPDX-License-Identifier: Apache-2.0
//! From pins to engines: the object that lies with them is loaded once more on the same maps, so that the kernel has verified what the
//! engines run, and each engine has the memory of the pinned arrays.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapHandle, MapType};
use wirewise_engine::{Engine, Linked, MapKind, Options, PacketSpan, ProgramId};
use wirewise_lane::{Fate, Judge, Span};

use super::outlet::{Mtus, Outlet};
use crate::abi;
use crate::abi::maps::{
    AGREEMENT, CONFIG, MEMORY, Scope, TAIL_CALLS, is_shared_by_loads, of_scopes, variable,
};
use crate::error::{Error, Result, shortage};
use crate::kernel::{note, pinned};
use crate::object::{self, Loaded, Opened, read_all, read_element};

/// What takes packets, or copies, elsewhere than the lane does.
const OF_OUTLET: u32 = abi::STEER_REDIRECT | abi::STEER_MIRROR | abi::STEER_BACKEND;

/// Takes the number of the program to run and returns where it is pinned; for a shadow, followed by where the first program is. Both then
/// see each packet, in this order.
pub type Pins = Box<dyn Fn(u32) -> Result<Vec<PathBuf>> + Send>;

/// A pinned program, with the byte code that the kernel verified: one, or a shadow and the first it runs beside.
pub struct Pinned {
    programs: Vec<Verified>,
}

struct Verified {
    directory: PathBuf,
    config: abi::Config,
    runnable: Runnable,
}

/// What engines are made of.
struct Runnable {
    input: String,
    linked: Linked,
    shards: u32,
    /// Whose memory the engines have.
    maps: Vec<(String, MapHandle)>,
}

/// Prefixes and what is said of them, by the name of their map.
pub type AllowList = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

impl Pinned {
    /// directories : as returned by `Pins`.
    pub fn open(directories: &[PathBuf]) -> Result<Self> {
        let mut programs: Vec<Verified> = Vec::new();
        for directory in directories {
            programs.push(Verified::new(directory, programs.last())?);
        }
        Ok(Self { programs })
    }

    /// What a worker judges packets by. number : of the worker, whose counters are those of this CPU.
    pub fn judge(&self, number: u32) -> Result<Chain> {
        let links = self.programs.iter().map(|program| program.runnable.engine(number));
        let mut chain = Chain {
            links: links.collect::<Result<_>>()?,
            spans: Vec::new(),
            codes: Vec::new(),
            outlet: None,
        };
        if let Some(program) = self.programs.last() {
            chain.allow(&allow_list(&program.directory)?)?;
            if program.config.acts & OF_OUTLET != 0
                && let Some(last) = chain.links.last_mut()
            {
                let mut mtus = Mtus::default();
                last.engine.set_interfaces(move |interface| mtus.of(interface));
                chain.outlet = Some(Outlet::open()?);
            }
        }
        Ok(chain)
    }
}

/// The allow list of a pinned program as it is in the kernel now. A shadow shares that of the first.
pub fn allow_list(directory: &Path) -> Result<AllowList> {
    let mut list = AllowList::new();
    for name in of_scopes(|scope| scope == Scope::AllowList) {
        let path = directory.join(name);
        if !path.exists() {
            continue;
        }
        let map = MapHandle::from_pinned_path(&path).map_err(|error| unreadable(&path, &error))?;
        // Ports are in an array, which the engines have in their memory.
        if map.map_type() == MapType::LpmTrie {
            list.push((name.to_string(), read_all(&map)?.collect()));
        }
    }
    Ok(list)
}

fn unreadable(path: &Path, error: &impl std::fmt::Display) -> Error {
    Error::other(format!("{}: {error}", path.display()))
}

impl Verified {
    /// directory : of its pins. second : it is the first, which runs beside this one.
    fn new(directory: &Path, second: Option<&Self>) -> Result<Self> {
        let input = directory.display().to_string();
        let object = note::read_bytes(&directory.join(pinned::OBJECT))
            .ok_or_else(|| Error::other(format!("{input}: the object is not with the pins")))?;
        let mut maps = pinned_maps(directory)?;
        let config = maps.iter().find(|(name, _)| name == CONFIG);
        let (_, config) = config.ok_or_else(|| object::no_data_path(&input))?;
        let mut config: abi::Config = read_element(config, 0)?;
        if let Some(second) = second {
            // As `swap --shadow` loads it for the kernel.
            let theirs = second.config;
            (config.shadow, config.trace) = (abi::Shadow::First.code(), theirs.trace);
            (config.clock, config.jiffy_ns, config.jiffy_zero_ns) =
                (theirs.clock, theirs.jiffy_ns, theirs.jiffy_zero_ns);
            let path = second.directory.join(AGREEMENT);
            let map = MapHandle::from_pinned_path(&path).map_err(|error| unreadable(&path, &error))?;
            maps.push((AGREEMENT.to_string(), map));
        }
        maps.retain(|(name, _)| is_shared_by_loads(name));
        let mut opened = Opened::open(&input, &object)?;
        opened.prepare_as(config)?;
        for (name, map) in &maps {
            opened.share(name, map)?;
        }
        let runnable = Runnable::new(&input, &opened.load()?, maps)?;
        Ok(Self { directory: directory.to_path_buf(), config, runnable })
    }
}

impl Runnable {
    /// loaded : on these maps, so that the kernel has verified what the engines run.
    fn new(input: &str, loaded: &Loaded, maps: Vec<(String, MapHandle)>) -> Result<Self> {
        let linked = Linked::from_loaded(&loaded.object)
            .map_err(|error| Error::input(format!("{input}: the engine cannot run it: {error}")))?;
        let config = loaded.config.ok_or_else(|| object::no_data_path(input))?;
        Ok(Self { input: input.to_owned(), linked, shards: config.shards, maps })
    }

    fn engine(&self, number: u32) -> Result<Link> {
        let input = &self.input;
        let failed = |error: &dyn std::fmt::Display| {
            let error = error.to_string();
            Error::other(format!("{input}: the engine: {}", shortage(&error).unwrap_or(&error)))
        };
        let options = Options { cpu: number, cpus: self.shards, ..Options::default() };
        let shared: Vec<(&str, BorrowedFd<'_>)> = self
            .linked
            .maps()
            .iter()
            .filter(|map| map.kind() == MapKind::Array && !map.is_read_only())
            .filter_map(|map| {
                let (_, pinned) = self.maps.iter().find(|(name, _)| name == variable(map.name()))?;
                Some((map.name(), pinned.as_fd()))
            })
            .collect();
        let mut engine = Engine::sharing(&self.linked, options, &shared).map_err(|error| failed(&error))?;
        let entry = engine.program(object::ENTRY).ok_or_else(|| failed(&"no entry program"))?;
        let parts: Vec<_> = engine
            .programs()
            .filter_map(|(name, program)| Some((object::tail_call_index(name)?, program)))
            .collect();
        for (index, program) in parts {
            let Some(mut map) = engine.map_mut(TAIL_CALLS) else { continue };
            map.set(index, Some(program)).map_err(|error| failed(&error))?;
        }
        Ok(Link { engine, entry })
    }
}

/// Of a program that is loaded and pinned nowhere: what each of so many workers judges by.
pub fn of_loaded(input: &str, loaded: &Loaded, workers: usize) -> Result<Vec<Chain>> {
    let unreadable = |error| Error::other(format!("{input}: its maps cannot be had: {error}"));
    let maps = loaded.maps().map(|map| {
        let name = map.name().to_string_lossy().into_owned();
        Ok((variable(&name).to_owned(), MapHandle::try_from(&map).map_err(unreadable)?))
    });
    let runnable = Runnable::new(input, loaded, maps.collect::<Result<_>>()?)?;
    let chain = |link| Chain { links: vec![link], spans: Vec::new(), codes: Vec::new(), outlet: None };
    (0..workers as u32).map(|number| runnable.engine(number).map(chain)).collect()
}

/// Every map that is pinned in a directory, by its name there.
fn pinned_maps(directory: &Path) -> Result<Vec<(String, MapHandle)>> {
    let mut maps = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let path = entry.map_err(|error| unreadable(directory, &error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("ww_") {
            maps.push((name, MapHandle::from_pinned_path(&path).map_err(|error| unreadable(&path, &error))?));
        }
    }
    Ok(maps)
}

/// Engines that see each packet one after the other; the last one's verdict counts.
pub struct Chain {
    links: Vec<Link>,
    spans: Vec<PacketSpan>,
    codes: Vec<u32>,
    outlet: Option<Outlet>,
}

struct Link {
    engine: Engine,
    entry: ProgramId,
}

impl Chain {
    /// Makes the allow lists what this one is.
    pub fn allow(&mut self, list: &AllowList) -> Result<()> {
        for link in &mut self.links {
            for (name, entries) in list {
                let failed = |error| Error::other(format!("{name}: {error}"));
                let Some(mut map) = link.engine.map_mut(name) else { continue };
                let gone = map.as_map().entries().map(|(key, _)| key.to_vec());
                let gone: Vec<_> =
                    gone.filter(|key| entries.iter().all(|(wanted, _)| wanted != key)).collect();
                for key in gone {
                    map.delete(&key).map_err(failed)?;
                }
                for (key, value) in entries {
                    map.update(key, value, 0).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

impl Chain {
    /// Goes on with what the one before remembered of flows.
    pub fn inherit(&mut self, before: &Self) {
        let (Some(ours), Some(theirs)) = (self.links.last_mut(), before.links.last()) else { return };
        let (Some(mut to), Some(from)) = (ours.engine.map_mut(MEMORY), theirs.engine.map(MEMORY)) else {
            return;
        };
        for (flow, what) in from.entries() {
            // What there is no room for begins anew.
            let _ = to.update(flow, what, 0);
        }
    }

    /// Runs the programs. One hands the packet to the next by what it leaves in a map, so several see it one by one.
    fn run(&mut self, area: &mut [u8], from: u32, packets: &mut [Span]) -> std::result::Result<(), String> {
        let Self { links, spans, codes, outlet } = self;
        spans.clear();
        codes.clear();
        let span = |it: &Span| PacketSpan {
            start: it.start,
            length: it.length,
            headroom: it.headroom,
            ..PacketSpan::default()
        };
        spans.extend(packets.iter().map(span));
        let trapped = |trap| format!("the program was stopped: {trap}");
        let Some((last, others)) = links.split_last_mut() else { return Ok(()) };
        if outlet.is_some() {
            last.engine.set_ingress(from, 0);
        }
        let at_once = if others.is_empty() { spans.len().max(1) } else { 1 };
        for (spans, packets) in spans.chunks(at_once).zip(packets.chunks_mut(at_once)) {
            for link in &mut *others {
                link.engine.run_xdp_batch(link.entry, area, spans, codes).map_err(trapped)?;
                codes.truncate(codes.len() - spans.len());
            }
            last.engine.run_xdp_batch(last.entry, area, spans, codes).map_err(trapped)?;
            if let Some(outlet) = outlet {
                outlet.take(&last.engine, area, packets, &codes[codes.len() - spans.len()..]);
            }
        }
        Ok(())
    }
}

impl Judge for Chain {
    fn judge(
        &mut self,
        area: &mut [u8],
        from: u32,
        packets: &mut [Span],
        fates: &mut Vec<Fate>,
    ) -> std::result::Result<(), String> {
        self.run(area, from, packets)?;
        fates.extend(self.codes.iter().map(|code| match *code {
            libbpf_sys::XDP_PASS => Fate::Passes,
            libbpf_sys::XDP_TX => Fate::Bounces,
            _ => Fate::Ends,
        }));
        Ok(())
    }
}
