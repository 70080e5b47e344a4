// SPDX-License-Identifier: Apache-2.0
//! An attachment as it is in the kernel now: opened from its pins, whether or not the agent that made it lives.

pub mod allow;
pub mod args;
pub mod attach;
pub mod ban;
mod bridge;
pub mod challenge;
mod circles;
pub mod companion;
pub mod deny;
pub mod detach;
mod displaced;
pub mod doctor;
pub mod followed;
pub mod forwarding;
pub mod health;
pub mod interfaces;
mod limits;
pub mod lists;
pub mod lockout;
pub(crate) mod names;
pub mod next;
pub mod outgoing;
pub mod overview;
pub mod pins;
pub mod plan;
pub mod policy_change;
pub mod pools;
mod reading;
pub mod ready;
pub(crate) mod session;
mod staged_policy;
pub(crate) mod staging;
mod status;
pub mod steering;
pub mod succession;
pub mod swap;
pub mod tunnels;
pub(crate) mod unpinned;
pub mod untried;
pub(crate) mod verdicts;
mod way_out;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::MapCore;

use crate::abi::maps::flow_tables;
use crate::attachment::pins::Root;
use crate::attachment::succession::{Contents, Places};
use crate::error::{Error, Result};
use crate::files::owned;
use crate::interface::netdev;
use crate::interface::netns;
use crate::kernel::{self, pinned};
use crate::object::Runs;
use crate::plane::Plane;
use crate::plane::link::{self, LinkInfo};
use crate::plane::note::Carrier;
use crate::plane::{Component, Filter, FilterHandle, Note, Port};
use crate::reading::meta::Meta;
use crate::text::shell::quoted;

/// How long the directories of an interface may be in between two states, where nobody was killed.
const MOVING: Duration = Duration::from_millis(2);
const TRIES: u32 = 5;

/// Where an attachment's interface is, as the kernel says it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this thread's network namespace.
    Here(Port),
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
    /// Of what the host sends, if that is judged too.
    pub outgoing: Option<LinkInfo>,
    /// The program at TC that does what this one, at XDP, cannot.
    pub companion: Option<LinkInfo>,
    pub whereabouts: Whereabouts,
    pub meta: Option<Meta>,
    shadowed: bool,
}

/// What lies under a root.
#[derive(Debug, Default)]
pub struct Listing {
    pub attachments: Vec<Attachment>,
    pub unreadable: Vec<Unreadable>,
}

/// An attachment that this agent cannot read: its program may be running, but nothing can be told of it.
#[derive(Debug)]
pub struct Unreadable {
    /// The interface's directory.
    pub directory: PathBuf,
    /// What the directory is named after.
    pub interface: String,
    pub why: Error,
}

impl Unreadable {
    pub fn new(directory: &Path, why: Error) -> Self {
        Self { directory: directory.to_path_buf(), interface: pins::interface_of(directory), why }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: what is attached cannot be read: {}", self.interface, self.why)
    }
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
        let places = Places::of(directory);
        let Contents { link, directory: place, shadowed, .. } = places.find()?;
        let outgoing = places.outgoing()?.map(|found| found.info).filter(|info| info.port.is_some());
        let companion =
            companion::find(&places.companion)?.map(|found| found.info).filter(|info| info.port.is_some());
        let pins = owned::directory(&place)?;
        let meta = Meta::open(&inside(&pins, pinned::META));
        let mut link = link.map(|(link, info, _)| (link, info));
        let whereabouts = link.as_mut().map_or(Ok(Whereabouts::Gone), |(link, info)| locate(link, info))?;
        let current = match whereabouts {
            Whereabouts::Here(Port::Interface(index)) => netdev::name(index),
            _ => None,
        };
        let recorded = || meta.as_ref().map(|meta| meta.interface.clone());
        let interface = current.or_else(recorded).unwrap_or_else(|| pins::interface_of(directory));
        let directory = directory.to_path_buf();
        Ok(Self { directory, pins, interface, link, outgoing, companion, whereabouts, meta, shadowed })
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
        let pins = owned::directory(&directory).ok()?;
        let meta = Meta::open(&inside(&pins, pinned::META));
        Some(Self {
            directory,
            pins,
            interface: self.interface.clone(),
            link: None,
            outgoing: None,
            companion: None,
            whereabouts: Whereabouts::Gone,
            meta,
            shadowed: false,
        })
    }

    /// Whether it is to judge what the host sends, but whoever attached it died before: the next change completes it.
    pub fn awaits_outgoing(&self) -> bool {
        self.outgoing.is_none() && outgoing::is_awaited(&inside(&self.pins, "")).unwrap_or(false)
    }

    /// Whether both have all their flow tables in common.
    pub fn shares_flows(&self, other: &Self) -> bool {
        flow_tables().all(|table| self.shares(other, table))
    }

    /// Whether both have this map in common.
    pub fn shares(&self, other: &Self, map: &str) -> bool {
        let id = |of: &Self| Some(of.map(map).ok()?.info().ok()?.info.id);
        id(self).is_some_and(|own| id(other) == Some(own))
    }

    /// All attachments under a root, those without a link included.
    pub fn all(root: &Root) -> Result<Listing> {
        let mut all = Listing::default();
        for directory in root.directories()? {
            match Self::open(&directory) {
                Ok(found) => all.attachments.push(found),
                // Detached since the directory was read.
                Err(_) if !Places::of(&directory).exist() => {}
                Err(why) => all.unreadable.push(Unreadable::new(&directory, why)),
            }
        }
        Ok(all)
    }

    /// Those of an interface of this network namespace: what is attached to it; else the remains of what was attached to one of
    /// this name, here or, if none, in another namespace. What is attached in another namespace is never among them.
    pub fn of_interface(all: Vec<Self>, interface: &str) -> Vec<Self> {
        let port = netdev::index(interface).map(Port::Interface).ok();
        let rank = |attachment: &Self| match attachment.whereabouts {
            Whereabouts::Here(Port::Device) if attachment.interface == interface => Some(0),
            Whereabouts::Here(here) if Some(here) == port => Some(0),
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
        let Listing { attachments: mut all, unreadable } = Self::all(root)?;
        if all.is_empty() && unreadable.is_empty() && !root.is_in_bpf_file_system() {
            return Err(Error::unknown(root.cannot_know(interface)));
        }
        all.retain(|attachment| attachment.link.is_some());
        let Some(interface) = interface else {
            // It may be the one that is meant.
            if let Some(unreadable) = unreadable.first() {
                return Err(Error::other(format!("{unreadable}; name another interface with --interface")));
            }
            if all.iter().any(|attachment| attachment.port().is_some()) {
                all.retain(|attachment| attachment.port().is_some());
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
            if let Some(unreadable) = unreadable.into_iter().find(|it| it.interface == interface) {
                return unreadable.why;
            }
            let mut all = Self::all(root).unwrap_or_default().attachments;
            all.retain(|attachment| attachment.link.is_some());
            Error::input(format!(
                "no wirewise program on '{interface}' of this network namespace; attached under {}: {}",
                root.path().display(),
                known(&all)
            ))
        })
    }

    /// Who carries its packets, of a plane in user space.
    pub fn carrier(&self) -> Option<Carrier> {
        let (link, _) = self.link.as_ref()?;
        Note::open(link.as_fd()).ok()?.map(|note| note.carrier())
    }

    /// Where it is among filters of clsact, if it is one.
    pub fn filter(&self) -> Option<FilterHandle> {
        let (link, _) = self.link.as_ref()?;
        Filter::open(link.as_fd()).ok()?.map(|filter| filter.place())
    }

    /// Its run priority in a dispatcher of libxdp, if it is in one.
    pub fn priority(&self) -> Option<u32> {
        let (link, _) = self.link.as_ref()?;
        Some(Component::open(link.as_fd()).ok()??.priority())
    }

    /// What a program must be loaded for that is to follow this one on its plane.
    pub fn runs(&self, plane: Plane) -> Runs {
        if self.priority().is_some() { Runs::InDispatcher } else { plane.runs() }
    }

    /// Where it is in this network namespace; `None` if that is gone or elsewhere.
    pub fn port(&self) -> Option<Port> {
        match self.whereabouts {
            Whereabouts::Here(port) => Some(port),
            _ => None,
        }
    }

    /// Whether it is on a port. name : of the port, by which alone devices are told apart.
    pub fn is_on(&self, port: Port, name: &str) -> bool {
        self.port() == Some(port) && (port != Port::Device || self.interface == name)
    }

    /// The other network namespace that has the interface, as far as this process can see.
    pub fn namespace(&self) -> Option<netns::Other> {
        self.elsewhere().map(|(other, _)| other)
    }

    /// The same, with the plane on which the program is there.
    pub fn elsewhere(&self) -> Option<(netns::Other, Plane)> {
        let (Whereabouts::Elsewhere, Some((_, info))) = (self.whereabouts, &self.link) else { return None };
        // Unless the interface was moved, it is where it was attached.
        netns::find(self.meta.as_ref().map(|meta| meta.namespace), || info.plane().ok()?)
    }

    /// The interface, with where it is unless it is here.
    pub fn describe(&self) -> String {
        let interface = &self.interface;
        match (self.whereabouts, self.namespace()) {
            (Whereabouts::Here(_), _) => interface.clone(),
            (Whereabouts::Gone, _) => format!("{interface} (which is gone)"),
            (_, Some(other)) => format!("{interface} (--netns {})", quoted(&other.name)),
            (_, None) => format!("{interface} (in a network namespace that cannot be seen from here)"),
        }
    }

    /// Fails unless the program is on an interface of this network namespace.
    pub fn require_here(&self) -> Result<()> {
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
}

fn known(all: &[Attachment]) -> String {
    let names: Vec<_> = all.iter().map(Attachment::describe).collect();
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}

/// Where a link's interface is. Brings `info` up to date.
fn locate(link: &OwnedFd, info: &mut LinkInfo) -> io::Result<Whereabouts> {
    for _ in 0..TRIES {
        let Some(port) = info.port else { return Ok(Whereabouts::Gone) };
        if runs_here(info) {
            return Ok(Whereabouts::Here(port));
        }
        // A swap may have come between the two questions.
        let before = std::mem::replace(info, link::info(link.as_fd())?.unwrap_or(*info));
        if before == *info {
            break;
        }
    }
    Ok(Whereabouts::Elsewhere)
}

fn runs_here(info: &LinkInfo) -> bool {
    info.plane().is_ok_and(|plane| plane.is_some())
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
