// SPDX-License-Identifier: Apache-2.0
//! An attachment as it is in the kernel now: opened from its pins, whether or not the agent that made it lives.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi;
use crate::error::{Error, Result};
use crate::kernel;
use crate::manifest::Sharing;
use crate::mapped::MappedArray;
use crate::meta::Meta;
use crate::netdev;
use crate::netns;
use crate::object;
use crate::pins::{self, Lock, Root, RootArgs};
use crate::succession::{self, Found, Places};
use crate::xdp::{self, LinkInfo};

pub const POLICY_MAP: &str = "ww_policy";
pub const CPU_MAP: &str = object::PER_CPU;
pub const EVENTS_MAP: &str = object::EVENTS;
pub const FLOW_MAPS: [&str; 2] = ["ww_flows4", "ww_flows6"];

/// How long the directories of an interface may be in between two states, where nobody was killed.
const MOVING: Duration = Duration::from_millis(2);
const TRIES: u32 = 5;

/// The options of every command on one attachment.
#[derive(Debug, clap::Args)]
pub struct AttachmentArgs {
    /// Which interface; not needed if only one is attached
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    #[command(flatten)]
    root: RootArgs,
}

impl AttachmentArgs {
    pub fn root(&self) -> Result<Root> {
        self.root.root()
    }

    pub fn find(&self) -> Result<Attachment> {
        Attachment::find(&self.root()?, self.interface.as_deref())
    }

    /// As `find`, with the lock that keeps it so, and tidied up unless it is a dry run. check: what else must hold first.
    pub fn find_locked(
        &self,
        dry_run: bool,
        check: impl FnOnce(&Root) -> Result<()>,
    ) -> Result<(Lock, Attachment)> {
        let root = self.root()?;
        // Taking the lock makes the directory, which a command that finds nothing attached must not.
        self.find()?;
        check(&root)?;
        let lock = root.lock()?;
        if !dry_run {
            succession::tidy_all(&root)?;
        }
        let found = self.find()?;
        found.require_here()?;
        Ok((lock, found))
    }
}

/// Where an attachment's interface is, as the kernel says it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this thread's network namespace; its index.
    Here(u32),
    /// In another network namespace.
    Elsewhere,
    /// Nowhere: it was deleted, or the link was taken off it, or there never was one.
    Gone,
}

#[derive(Debug)]
pub struct Attachment {
    /// The interface's directory. What is read comes through `pins`: a swap may put another directory in this place.
    pub directory: PathBuf,
    pins: File,
    /// The name it has now; the one it had when it was attached if it is gone or in another network namespace.
    pub interface: String,
    /// `None`: an agent was killed before it attached, or the link was removed by hand.
    pub link: Option<(OwnedFd, LinkInfo)>,
    pub whereabouts: Whereabouts,
    pub meta: Option<Meta>,
    shadowed: bool,
}

impl Attachment {
    /// directory : the interface's.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_open(directory) {
                Ok(found) if found.link.is_some() || tries == TRIES => return Ok(found),
                Err(error) if error.kind() != io::ErrorKind::NotFound || tries == TRIES => {
                    return Err(open_error(directory, &error));
                }
                _ => std::thread::sleep(MOVING),
            }
        }
    }

    fn try_open(directory: &Path) -> io::Result<Self> {
        let Found { link, directory: place, shadowed } = Places::of(directory).find()?;
        let pins = File::open(&place)?;
        let meta = Meta::open(&inside(&pins, pins::META));
        let mut link = link.map(|(link, info, _)| (link, info));
        let whereabouts = link.as_mut().map_or(Ok(Whereabouts::Gone), |(link, info)| locate(link, info))?;
        let current = match whereabouts {
            Whereabouts::Here(index) => netdev::name(index),
            _ => None,
        };
        let recorded = || meta.as_ref().map(|meta| meta.interface.clone());
        let interface = current.or_else(recorded).unwrap_or_else(|| pins::interface_of(directory));
        Ok(Self { directory: directory.to_path_buf(), pins, interface, link, whereabouts, meta, shadowed })
    }

    /// What ran before the last swap; it has no link.
    pub fn previous(&self) -> Option<Self> {
        self.beside(Places::of(&self.directory).previous)
    }

    /// The second model, while it runs beside the first; it has no link to the interface.
    pub fn shadow(&self) -> Option<Self> {
        if self.shadowed { self.beside(Places::of(&self.directory).shadow) } else { None }
    }

    fn beside(&self, directory: PathBuf) -> Option<Self> {
        let pins = File::open(&directory).ok()?;
        let meta = Meta::open(&inside(&pins, pins::META));
        Some(Self {
            directory,
            pins,
            interface: self.interface.clone(),
            link: None,
            whereabouts: Whereabouts::Gone,
            meta,
            shadowed: false,
        })
    }

    /// Whether both have this map in common.
    pub fn shares(&self, other: &Self, map: &str) -> bool {
        let id = |of: &Self| Some(of.map(map).ok()?.info().ok()?.info.id);
        id(self).is_some_and(|own| id(other) == Some(own))
    }

    /// All attachments under a root, those without a link included.
    pub fn all(root: &Root) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for directory in root.directories()? {
            match Self::open(&directory) {
                // Detached since the directory was read.
                Err(_) if !Places::of(&directory).exist() => {}
                other => all.push(other?),
            }
        }
        Ok(all)
    }

    /// Those of an interface of this network namespace: what is attached to it; else the remains of what was attached to one of
    /// this name, here or, if none, in another namespace. What is attached in another namespace is never among them.
    pub fn of_interface(all: Vec<Self>, interface: &str) -> Vec<Self> {
        let index = netdev::index(interface).ok();
        let rank = |attachment: &Self| match attachment.whereabouts {
            Whereabouts::Here(here) if Some(here) == index => Some(0),
            Whereabouts::Gone if attachment.interface != interface => None,
            Whereabouts::Gone if attachment.meta.as_ref().is_none_or(Meta::is_from_here) => Some(1),
            Whereabouts::Gone => Some(2),
            _ => None,
        };
        let best = all.iter().filter_map(rank).min();
        all.into_iter().filter(|attachment| best.is_some() && rank(attachment) == best).collect()
    }

    /// The attachment of an interface, or the only one if none is named.
    pub fn find(root: &Root, interface: Option<&str>) -> Result<Self> {
        let mut all = Self::all(root)?;
        all.retain(|attachment| attachment.link.is_some());
        let Some(interface) = interface else {
            if all.iter().any(|attachment| attachment.ifindex().is_some()) {
                all.retain(|attachment| attachment.ifindex().is_some());
            }
            return match all.len() {
                1 => Ok(all.remove(0)),
                0 => Err(Error::input(format!(
                    "nothing is attached under {}; start with `wirewised run --bundle FILE --interface NAME`",
                    root.path().display()
                ))),
                _ => Err(Error::input(format!(
                    "several interfaces are attached, name one with --interface: {}",
                    known(&all)
                ))),
            };
        };
        Self::of_interface(all, interface).into_iter().next().ok_or_else(|| {
            let mut all = Self::all(root).unwrap_or_default();
            all.retain(|attachment| attachment.link.is_some());
            Error::input(format!(
                "no wirewise program on '{interface}' of this network namespace; attached under {}: {}",
                root.path().display(),
                known(&all)
            ))
        })
    }

    /// The link's interface in this network namespace; `None` if the interface is gone or elsewhere.
    pub fn ifindex(&self) -> Option<u32> {
        match self.whereabouts {
            Whereabouts::Here(index) => Some(index),
            _ => None,
        }
    }

    /// The other network namespace that has the interface, as far as this process can see.
    pub fn namespace(&self) -> Option<netns::Other> {
        let (Whereabouts::Elsewhere, Some((_, info))) = (self.whereabouts, &self.link) else { return None };
        netns::find(|| runs_here(info))
    }

    /// The interface, with where it is unless it is here.
    pub fn describe(&self) -> String {
        let interface = &self.interface;
        match (self.whereabouts, self.namespace()) {
            (Whereabouts::Here(_), _) => interface.clone(),
            (Whereabouts::Gone, _) => format!("{interface} (which is gone)"),
            (_, Some(other)) => format!("{interface} (--netns {})", other.name),
            (_, None) => format!("{interface} (in a network namespace that cannot be seen from here)"),
        }
    }

    /// Fails unless the program is on an interface of this network namespace.
    fn require_here(&self) -> Result<()> {
        match self.whereabouts {
            Whereabouts::Here(_) => Ok(()),
            Whereabouts::Gone => Err(Error::input(format!(
                "{}: nothing is attached any more: the interface was deleted, or the program taken off it; \
                 `wirewised run` attaches again",
                self.interface
            ))),
            Whereabouts::Elsewhere => {
                Err(Error::input(format!("not in this network namespace: {}", self.describe())))
            }
        }
    }

    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let pin = inside(&self.pins, name);
        MapHandle::from_pinned_path(&pin).map_err(|error| {
            let what = format!("{}/{name}", self.directory.display());
            // A pin that is not there, in a directory that has all of them or none.
            if pin.exists() {
                Error::other(format!("{what}: {error}"))
            } else {
                Error::other(format!("{what} is gone: {} was detached or replaced meanwhile", self.interface))
            }
        })
    }

    /// As `map`, for a map the object may do without.
    pub fn optional_map(&self, name: &str) -> Result<Option<MapHandle>> {
        if inside(&self.pins, name).exists() { self.map(name).map(Some) } else { Ok(None) }
    }

    /// The constants the program was loaded with; `None` if an agent attached it that did not keep them.
    pub fn config(&self) -> Result<Option<abi::Config>> {
        let map = self.optional_map(object::variable(object::CONFIG_MAP))?;
        map.map(|map| read_element(&map, 0)).transpose()
    }

    pub fn policy(&self) -> Result<abi::Policy> {
        read_element(&self.map(POLICY_MAP)?, 0)
    }

    /// Bytes of the flow tables.
    pub fn flow_table_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for name in FLOW_MAPS {
            if let Some(map) = self.optional_map(name)? {
                bytes += u64::from(map.max_entries()) * u64::from(map.value_size());
            }
        }
        Ok(bytes)
    }

    /// Whether all CPUs share the flow tables.
    pub fn sharing(&self) -> Result<Sharing> {
        let shared = self.config()?.is_some_and(|config| config.shared != 0);
        Ok(if shared { Sharing::Shared } else { Sharing::PerCpu })
    }

    /// CPUs that packets are counted of.
    pub fn shards(&self) -> Result<u32> {
        Ok(MappedArray::per_cpu(&self.map(CPU_MAP)?)?.entries())
    }

    /// The name of a class, or its number if nobody remembers it.
    pub fn class_name(&self, class_id: u8) -> String {
        let known = self.meta.as_ref().and_then(|meta| meta.class_name(class_id));
        known.map_or_else(|| format!("class {class_id}"), str::to_string)
    }

    pub fn classes(&self) -> usize {
        self.meta.as_ref().map_or(abi::MAX_CLASSES, |meta| meta.classes.len())
    }
}

fn known(all: &[Attachment]) -> String {
    let names: Vec<_> = all.iter().map(Attachment::describe).collect();
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}

/// Where a link's interface is. Brings `info` up to date.
fn locate(link: &OwnedFd, info: &mut LinkInfo) -> io::Result<Whereabouts> {
    for _ in 0..TRIES {
        if info.ifindex == 0 {
            return Ok(Whereabouts::Gone);
        }
        if runs_here(info) {
            return Ok(Whereabouts::Here(info.ifindex));
        }
        // A swap may have come between the two questions.
        let before = std::mem::replace(info, xdp::link_info(link.as_fd())?.unwrap_or(*info));
        if before == *info {
            break;
        }
    }
    Ok(Whereabouts::Elsewhere)
}

/// An index alone says nothing: every namespace counts for itself. The number of the program is the kernel's.
fn runs_here(info: &LinkInfo) -> bool {
    xdp::query(info.ifindex).is_ok_and(|state| state.plane_of(info.program_id).is_some())
}

/// A pin in a directory that may be renamed meanwhile.
fn inside(directory: &File, pin: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{pin}", directory.as_raw_fd()).into()
}

fn open_error(directory: &Path, error: &io::Error) -> Error {
    let message = format!("{}: {error}", directory.display());
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => match kernel::require() {
            Err(missing) => missing,
            Ok(()) => Error::missing(format!("{message}: these pins belong to another user")),
        },
        _ => Error::other(message),
    }
}

/// One element of an array map of a type of `abi`.
pub fn read_element<T: bytemuck::AnyBitPattern>(map: &MapHandle, index: u32) -> Result<T> {
    let name = map.name().to_string_lossy();
    let value = map
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::other(format!("{name}: cannot be read: {error}")))?;
    value.and_then(|bytes| bytemuck::try_pod_read_unaligned(bytes.get(..size_of::<T>())?).ok()).ok_or_else(
        || Error::other(format!("{name}: not as this agent knows it; it was attached by another version")),
    )
}
