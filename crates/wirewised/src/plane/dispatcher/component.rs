// SPDX-License-Identifier: Apache-2.0
//! Our part of a dispatcher: a small extension that calls the data path by a tail call. The data path stays a program for XDP, and one write
//! to the map by which it is called is a swap, whatever dispatcher the extension is in by then. A note serves as the link.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use libbpf_rs::{AsRawLibbpf, Object, ObjectBuilder};

use super::{Dispatcher, Part, Place, SLOTS, slot_name};
use crate::interface::netdev::{self, Device};
use crate::interface::netns;
use crate::kernel::objects;
use crate::kernel::{self, change, libbpf_log};
use crate::plane::link::{self, LinkInfo};
use crate::plane::{Plane, Port};

/// `scripts/actor.sh` writes it, of `bpf/dispatch/`.
const OBJECT: &[u8] = include_bytes!("../../../../../bpf/dispatch/component.bpf.o");
/// Also says which form of note it is.
const MAP_NAME: &std::ffi::CStr = c"ww_component_1";
/// The pin beside the note's, of the map by which the extension calls the data path: it forgets its program when nobody has it open or pinned.
pub const CALLS: &str = "component";
const PASS: u32 = 1 << libbpf_sys::XDP_PASS;
/// In the verifier's message, if the extension has a tail call and the slot calls nothing that may change packets.
const OLD_DISPATCHER: &str = "changes packet data";

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Words {
    /// The network namespace's.
    cookie: u64,
    ifindex: u32,
    native: u32,
    priority: u32,
    /// Number of the extension.
    own: u32,
    /// Number of the map by which it calls the data path.
    calls: u32,
    /// The program that was last put there.
    program: u32,
}

/// A component that was begun, by its note.
#[derive(Debug)]
pub struct Component {
    map: OwnedFd,
    /// Number of the map.
    id: u32,
    words: Words,
}

/// Whether a program can join the dispatcher that is there, or a new one: what the kernel says against it.
pub fn probe(plane: Plane, ifindex: u32) -> io::Result<()> {
    load(Place { ifindex, plane }).map(drop)
}

impl Component {
    /// Joins the dispatcher of an interface, or makes one. The descriptor is the note's, which is pinned before the extension is called.
    pub(in crate::plane) fn begin(
        plane: Plane,
        program: BorrowedFd<'_>,
        ifindex: u32,
        priority: u32,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        let pin = pin.ok_or(io::ErrorKind::Unsupported)?;
        let place = Place { ifindex, plane };
        let object = load(place)?;
        let calls = object.maps().next().ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()?;
        let own = object.progs().next().ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()?;
        call(&calls, program)?;
        let words = Words {
            cookie: netns::cookie(),
            ifindex,
            native: plane.is_in_driver().into(),
            priority,
            own: objects::program_info(own.as_fd())?.id,
            calls: objects::map_info(calls.as_fd())?.ok_or(io::ErrorKind::NotFound)?.id,
            program: objects::program_info(program)?.id,
        };
        let calls_pin = pin.with_file_name(CALLS);
        objects::pin(calls.as_fd(), &calls_pin)?;
        let map = link::pinned(objects::new_note(MAP_NAME, &words)?, Some(pin))?;
        let mtu = netdev::name(ifindex).and_then(|name| Device::open(&name).ok()?.mtu());
        let frags = mtu.is_some_and(|mtu| plane.needs_frags(mtu));
        let join = |mut parts: Vec<Part>| {
            let flags = if frags { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 };
            parts.push(Part::new(own.try_clone()?, PASS, priority, flags)?);
            Ok(parts)
        };
        place.change(join).inspect_err(|_| {
            let _ = change::remove_file(pin);
            let _ = change::remove_file(&calls_pin);
        })?;
        Ok(map)
    }

    /// `None`: it is something else.
    pub fn open(link: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let Some(id) = objects::note_id(link, MAP_NAME, size_of::<Words>())? else { return Ok(None) };
        Ok(Some(Self { map: link.try_clone_to_owned()?, id, words: objects::first_element(link)? }))
    }

    pub fn info(&self) -> io::Result<LinkInfo> {
        // Where the namespace cannot be entered, nobody can tell that it is gone.
        let is_there = self.within(|| self.is_called()).unwrap_or(Ok(true))?;
        let Words { ifindex, cookie, calls, .. } = self.words;
        // An agent that dies changes the one and not the other; who may not ask by a number believes the note.
        let called = objects::map_by_id(calls).and_then(|calls| objects::first_element(calls.as_fd()));
        let program = called.unwrap_or(self.words.program);
        let port = is_there.then_some(Port::Interface(ifindex));
        Ok(LinkInfo::noted(self.id, program, port, self.place().plane, cookie))
    }

    pub fn priority(&self) -> u32 {
        self.words.priority
    }

    /// In one step. Needs CAP_SYS_ADMIN, as all that is found by a number.
    pub fn change_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        call(&objects::map_by_id(self.words.calls)?, program)?;
        let words = Words { program: objects::program_info(program)?.id, ..self.words };
        objects::set_first_element(self.map.as_fd(), &words)
    }

    /// Leaves the dispatcher; the last one takes it along.
    pub fn stop(&self) -> io::Result<()> {
        let leave = || {
            if !self.is_called()? {
                return Ok(());
            }
            self.place().change(|mut parts| {
                parts.retain(|part| part.id != self.words.own);
                Ok(parts)
            })
        };
        // Where it cannot be entered the namespace, and with it the interface, may be gone.
        self.within(leave).unwrap_or_else(|| match kernel::may_mount() {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        })
    }

    fn place(&self) -> Place {
        let plane = if self.words.native != 0 { Plane::XDP_NATIVE } else { Plane::XDP_GENERIC };
        Place { ifindex: self.words.ifindex, plane }
    }

    /// Whether the dispatcher that is there now does. Whoever puts another in its place then removes its pins.
    fn is_called(&self) -> io::Result<bool> {
        let place = self.place();
        let mut last = None;
        loop {
            let now = place.program()?;
            let Some(id) = now else { return Ok(false) };
            let pins = place.pins(&super::folder(), id);
            let is_ours = |slot| {
                let part = objects::open_pin(&pins.join(format!("{}-prog", slot_name(slot)))).ok()?;
                Some(objects::program_info(part.as_fd()).ok()?.id == self.words.own)
            };
            if (0..SLOTS).any(|slot| is_ours(slot) == Some(true)) {
                return Ok(true);
            }
            if last == now {
                return Ok(false);
            }
            last = now;
        }
    }

    /// What `work` says in the network namespace of the interface; `None`: it cannot be entered.
    fn within<T: Send>(&self, work: impl Fn() -> T + Send + Sync) -> Option<T> {
        let cookie = self.words.cookie;
        if cookie == netns::cookie() {
            return Some(work());
        }
        netns::find(None, || (netns::cookie() == cookie).then_some(()))?.0.within(work)
    }
}

/// Loads the extension, checked against the dispatcher that is there, or one of ours.
fn load(place: Place) -> io::Result<Object> {
    let dispatcher = place.find()?;
    let target = dispatcher.map_or_else(Dispatcher::blank, Ok)?;
    let slot = std::ffi::CString::new(slot_name(0))?;
    let (object, warnings) = libbpf_log::collect(|| -> libbpf_rs::Result<_> {
        let mut object = ObjectBuilder::default().name("wirewise")?.open_memory(OBJECT)?;
        for program in object.progs_mut() {
            let program = program.as_libbpf_object().as_ptr();
            // SAFETY: the program is one of the object and not loaded yet; the name is a C string that the call copies.
            unsafe {
                libbpf_sys::bpf_program__set_type(program, libbpf_sys::BPF_PROG_TYPE_EXT);
                libbpf_sys::bpf_program__set_expected_attach_type(program, 0);
                libbpf_sys::bpf_program__set_attach_target(
                    program,
                    target.program.as_raw_fd(),
                    slot.as_ptr(),
                );
            }
        }
        object.load()
    });
    object.map_err(|error| {
        if warnings.iter().any(|warning| warning.contains(OLD_DISPATCHER)) {
            return io::Error::other(
                "this kernel lets no program with tail calls into a dispatcher of libxdp before 1.5.5, which would then not be able to change it \
                 any more (\"Extension program changes packet data, while original does not\"); update libxdp (xdp-tools)",
            );
        }
        io::Error::other(format!(
            "this kernel refuses extensions (BPF_PROG_TYPE_EXT), which the programs in a dispatcher are: {error:#}"
        ))
    })
}

/// Has the extension call a program.
fn call(calls: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    objects::set_first_element(calls.as_fd(), &program.as_raw_fd())
        .map(|()| change::made("call from dispatcher"))
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the kernel does not let a dispatcher's component call it: {error}"),
            )
        })
}
