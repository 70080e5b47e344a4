// SPDX-License-Identifier: Apache-2.0
//! A dispatcher of libxdp: one XDP program that calls up to ten others, its components, by run priority. Each component is an extension
//! (freplace) of one of its slots. This is the protocol by which libxdp's tools share an interface (versions 2 and 3, lib/libxdp/protocol.org of
//! xdp-tools): a dispatcher is never changed; whoever wants other components builds a second one, which replaces the first.

mod component;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use libbpf_rs::ObjectBuilder;

use crate::kernel::objects::{self, check, owned};
use crate::kernel::{self, bpffs, change, libbpf_log, lock};
use crate::plane::Plane;
pub use component::{CALLS, Component, probe};

/// `scripts/actor.sh` writes it, of `bpf/dispatch/`.
const OBJECT_2: &[u8] = include_bytes!("../../../../../bpf/dispatch/dispatcher-2.bpf.o");
const OBJECT_3: &[u8] = include_bytes!("../../../../../bpf/dispatch/dispatcher-3.bpf.o");
const SLOTS: usize = 10;
const MAGIC: u8 = 236;
/// Before libxdp 1.6, and since. Each library refuses to change dispatchers of another version than its own.
const OLD_VERSION: u8 = 2;
const VERSION: u8 = 3;
/// Bytes of an old one's configuration.
const OLD_CONFIG: usize = std::mem::offset_of!(Config, devbound);
/// Since this kernel libxdp before 1.5.5 could not join in any case: it calls nothing that has tail calls.
const NEW_SINCE: (u32, u32) = (6, 12);
/// What an empty slot gives, which always hands over to the next one.
const EMPTY: u32 = 31;
/// Where `LIBXDP_BPFFS` names no other BPF file system.
const FOLDER: &str = "xdp";
/// How often somebody else may change the dispatcher while we build one.
const TRIES: u32 = 5;

/// `struct ww_dispatcher_config` of `bpf/dispatch/`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Config {
    magic: u8,
    version: u8,
    enabled: u8,
    frags: u8,
    actions: [u32; SLOTS],
    priorities: [u32; SLOTS],
    flags: [u32; SLOTS],
    devbound: u8,
    unused: [u8; 3],
}

/// An interface, and where XDP is on it.
#[derive(Debug, Clone, Copy)]
struct Place {
    ifindex: u32,
    plane: Plane,
}

/// The one on an interface.
struct Dispatcher {
    program: OwnedFd,
    id: u32,
    config: Config,
}

/// A component, and how the dispatcher calls it.
struct Part {
    program: OwnedFd,
    id: u32,
    name: String,
    /// Bits of the verdicts with which the next one has its turn.
    actions: u32,
    priority: u32,
    /// `BPF_F_XDP_HAS_FRAGS` or 0.
    flags: u32,
}

/// Whether the program on an interface is one.
pub fn is_there(plane: Plane, ifindex: u32) -> io::Result<bool> {
    Ok(Place { ifindex, plane }.find()?.is_some())
}

impl Place {
    fn flags(self) -> u32 {
        if self.plane.is_in_driver() {
            libbpf_sys::XDP_FLAGS_DRV_MODE
        } else {
            libbpf_sys::XDP_FLAGS_SKB_MODE
        }
    }

    fn program(self) -> io::Result<Option<u32>> {
        let hook = self.plane.hook().ok_or(io::ErrorKind::Unsupported)?;
        match hook.query(self.ifindex) {
            // The interface is gone.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            programs => Ok(programs?.first().copied()),
        }
    }

    fn find(self) -> io::Result<Option<Dispatcher>> {
        let Some(id) = self.program()? else { return Ok(None) };
        match objects::program_by_id(id) {
            // It went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            program => Dispatcher::open(program?, id),
        }
    }

    /// Where the parts of a dispatcher are pinned.
    fn pins(self, folder: &Path, id: u32) -> PathBuf {
        folder.join(format!("dispatch-{}-{id}", self.ifindex))
    }

    /// Replaces the dispatcher by one with other parts, in one step: no packet meets the interface without one.
    fn change(self, mut edit: impl FnMut(Vec<Part>) -> io::Result<Vec<Part>>) -> io::Result<()> {
        let folder = folder();
        fs::create_dir_all(&folder)?;
        let directory = File::open(&folder)?;
        lock::take(&directory, &folder).map_err(|error| io::Error::other(error.to_string()))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let old = self.find()?;
            let parts = old.as_ref().map_or(Ok(Vec::new()), |old| old.parts(&self.pins(&folder, old.id)))?;
            let mut parts = edit(parts)?;
            parts.sort_by(|one, other| (one.priority, &one.name).cmp(&(other.priority, &other.name)));
            match self.replace(&folder, old.as_ref(), &parts) {
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EBUSY)) && tries < TRIES => {}
                other => return other,
            }
        }
    }

    fn replace(self, folder: &Path, old: Option<&Dispatcher>, parts: &[Part]) -> io::Result<()> {
        let version = old.map_or_else(version_of_new, |old| old.config.version);
        let new = if parts.is_empty() { None } else { Some(Dispatcher::build(parts, version)?) };
        let pins = new.as_ref().map(|new| self.pins(folder, new.id));
        if let (Some(new), Some(pins)) = (&new, &pins) {
            new.pin_parts(parts, pins).inspect_err(|_| unpin(pins))?;
        }
        self.exchange(old, new.as_ref()).inspect_err(|_| pins.as_deref().map_or((), unpin))?;
        if let Some(old) = old {
            unpin(&self.pins(folder, old.id));
        }
        Ok(())
    }

    /// Fails with EEXIST or EBUSY if another program is there now.
    fn exchange(self, old: Option<&Dispatcher>, new: Option<&Dispatcher>) -> io::Result<()> {
        let opts = libbpf_sys::bpf_xdp_attach_opts {
            sz: size_of::<libbpf_sys::bpf_xdp_attach_opts>() as _,
            old_prog_fd: old.map_or(-1, |old| old.program.as_raw_fd()),
            ..Default::default()
        };
        let (condition, opts) = match old {
            Some(_) => (libbpf_sys::XDP_FLAGS_REPLACE, &raw const opts),
            None if new.is_none() => return Ok(()),
            None => (libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST, std::ptr::null()),
        };
        let program = new.map_or(-1, |new| new.program.as_raw_fd());
        // SAFETY: the options, if there are any, say their size and outlive the call; descriptors are plain numbers to it.
        check(unsafe {
            libbpf_sys::bpf_xdp_attach(self.ifindex as i32, program, self.flags() | condition, opts)
        })
        .map(|_| change::made("exchange dispatcher"))
    }
}

impl Dispatcher {
    /// `None`: another program.
    fn open(program: OwnedFd, id: u32) -> io::Result<Option<Self>> {
        let maps = objects::maps_of_program(program.as_fd())?;
        let [map] = &maps[..] else { return Ok(None) };
        let Some(info) = objects::map_info(map.as_fd())? else { return Ok(None) };
        let version = match info.value_size as usize {
            OLD_CONFIG => OLD_VERSION,
            size if size == size_of::<Config>() => VERSION,
            _ => return Ok(None),
        };
        let config: Config = objects::first_element(map.as_fd())?;
        let is_ours =
            (config.magic, config.version) == (MAGIC, version) && usize::from(config.enabled) <= SLOTS;
        // One that is bound to a device only calls programs that are.
        if !is_ours || config.devbound != 0 {
            return Ok(None);
        }
        Ok(Some(Self { program, id, config }))
    }

    /// Its components, in the order of its slots. pins : where they are pinned.
    fn parts(&self, pins: &Path) -> io::Result<Vec<Part>> {
        (0..usize::from(self.config.enabled))
            .map(|slot| {
                let pin = pins.join(format!("prog{slot}-prog"));
                let program = objects::open_pin(&pin).map_err(|error| {
                    io::Error::other(format!(
                        "the dispatcher's component cannot be opened: {}: {error}",
                        pin.display()
                    ))
                })?;
                let (actions, priority, flags) =
                    (self.config.actions[slot], self.config.priorities[slot], self.config.flags[slot]);
                Part::new(program, actions, priority, flags)
            })
            .collect()
    }

    /// Loads one that has room for these, and calls none of them yet.
    fn build(parts: &[Part], version: u8) -> io::Result<Self> {
        if parts.len() > SLOTS {
            return Err(io::Error::other(format!(
                "the dispatcher has {SLOTS} components, and libxdp's protocol allows no more; `xdp-loader unload` takes one out"
            )));
        }
        let frags =
            !parts.is_empty() && parts.iter().all(|part| part.flags & libbpf_sys::BPF_F_XDP_HAS_FRAGS != 0);
        let mut config = Config {
            magic: MAGIC,
            version,
            enabled: parts.len() as u8,
            frags: frags.into(),
            ..Config::zeroed()
        };
        for (slot, part) in parts.iter().enumerate() {
            config.actions[slot] = part.actions | 1 << EMPTY;
            config.priorities[slot] = part.priority;
            config.flags[slot] = part.flags;
        }
        Self::load(config)
    }

    /// One with an empty slot, to check a component against.
    fn blank() -> io::Result<Self> {
        Self::load(Config { magic: MAGIC, version: version_of_new(), enabled: 1, ..Config::zeroed() })
    }

    fn load(config: Config) -> io::Result<Self> {
        let (object, bytes) = match config.version {
            OLD_VERSION => (OBJECT_2, OLD_CONFIG),
            _ => (OBJECT_3, size_of::<Config>()),
        };
        let (object, _) = libbpf_log::collect(|| -> libbpf_rs::Result<_> {
            let mut object = ObjectBuilder::default().name("xdp_disp")?.open_memory(object)?;
            if let Some(mut map) = object.maps_mut().next() {
                map.set_initial_value(&bytemuck::bytes_of(&config)[..bytes])?;
            }
            for mut program in object.progs_mut() {
                program.set_flags(if config.frags != 0 { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 });
            }
            object.load()
        });
        let object = object
            .map_err(|error| io::Error::other(format!("the kernel refuses a dispatcher: {error:#}")))?;
        let program = object.progs().next().ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()?;
        let id = objects::program_info(program.as_fd())?.id;
        Ok(Self { program, id, config })
    }

    /// Has its slots call these, and pins both, as the protocol has it.
    fn pin_parts(&self, parts: &[Part], pins: &Path) -> io::Result<()> {
        change::create_dir(pins)?;
        for (slot, part) in parts.iter().enumerate() {
            let link = self.extend(slot, part.program.as_fd()).map_err(|error| {
                io::Error::other(format!(
                    "the kernel does not let {} into another dispatcher: {error}",
                    part.name
                ))
            })?;
            objects::pin(link.as_fd(), &pins.join(format!("prog{slot}-link")))?;
            objects::pin(part.program.as_fd(), &pins.join(format!("prog{slot}-prog")))?;
        }
        Ok(())
    }

    fn extend(&self, slot: usize, part: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let target = objects::function_of_program(self.program.as_fd(), &slot_name(slot))?;
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            target_btf_id: target,
            // SAFETY: zero is a value of every field of this plain C struct.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: `opts` says its size and outlives the call; the descriptors are plain numbers to it.
        owned(unsafe { libbpf_sys::bpf_link_create(part.as_raw_fd(), self.program.as_raw_fd(), 0, &opts) })
            .inspect(|_| change::made("link"))
    }
}

impl Part {
    fn new(program: OwnedFd, actions: u32, priority: u32, flags: u32) -> io::Result<Self> {
        let objects::ProgramInfo { id, name, .. } = objects::program_info(program.as_fd())?;
        Ok(Self { program, id, name, actions, priority, flags })
    }
}

/// That of the libxdp which goes with this kernel, where no dispatcher says which is in use.
fn version_of_new() -> u8 {
    let is_old = kernel::version_of(&kernel::release()).is_some_and(|version| version < NEW_SINCE);
    if is_old { OLD_VERSION } else { VERSION }
}

fn slot_name(slot: usize) -> String {
    format!("prog{slot}")
}

fn folder() -> PathBuf {
    std::env::var_os("LIBXDP_BPFFS").map_or_else(|| PathBuf::from(bpffs::PLACE), PathBuf::from).join(FOLDER)
}

/// Removes the pins of one that no longer runs. Missing pins are fine.
fn unpin(pins: &Path) {
    for slot in 0..SLOTS {
        for what in ["link", "prog"] {
            let _ = change::remove_file(&pins.join(format!("prog{slot}-{what}")));
        }
    }
    let _ = change::remove_dir(pins);
}
