// SPDX-License-Identifier: Apache-2.0
//! The companion of a program at XDP: what only a socket buffer has, such as a mark, XDP writes in front of the packet, as metadata
//! (`struct ww_wish`, bpf/act/companion.h), and a program at TC does. It is there as long as the policy of what runs asks for such,
//! whichever program that is; so it is not swapped with it, and its pins are beside those of the interface.
//!
//! It consists of two programs. The kernel gives one that may write to a packet a packet of its own, and where somebody else looks on
//! (tcpdump) that is a copy without metadata. So the first only reads: it puts the wish into the buffer's `cb`, and calls the second, which
//! takes the magic word off, lest another interface takes the wish for its own, and then does what is wished.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys as bpf;

use crate::abi;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::kernel::assembler::{
    self, ADD, AND, CALL, EXIT, IF_BELOW, IF_BEYOND, IF_EQUAL, IF_NOT, LOAD_MAP, LOAD_U32, Line, MOVE,
    SECOND_HALF, SET, STORE_U32, THE_MAP, assemble,
};
use crate::kernel::change;
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::object::policy_maps;
use crate::plane::link::{self, LinkInfo};
use crate::plane::tc::SINCE;
use crate::plane::{Joining, Order, Plane, Port};
use crate::policy::Policy;
use crate::reading::meta::Meta;

/// Where it is.
pub const PLANE: Plane = Plane::TC_INGRESS;
/// The pin of the map by which the first program calls the second.
const SECOND: &str = "second";

/// A link that was found.
#[derive(Debug)]
pub struct CompanionLink {
    link: OwnedFd,
    pub info: LinkInfo,
}

/// The companion whose pins are there.
pub fn find(directory: &Path) -> io::Result<Option<CompanionLink>> {
    let Some(link) = objects::open_pin_if_there(&directory.join(pinned::LINK))? else {
        return Ok(None);
    };
    Ok(link::info(link.as_fd())?.map(|info| CompanionLink { link, info }))
}

/// What a policy leaves to a companion on a plane: `abi::STEER_*` bits.
pub fn asked(plane: Plane, policy: Option<&Policy>) -> u32 {
    policy.map_or(0, |policy| plane.by_companion(policy.steering_kinds()))
}

/// Removes the companion unless what runs asks for it. running : the pins of that; `None`: nothing runs.
pub fn settle(directory: &Path, running: Option<&Path>) -> io::Result<()> {
    if !directory.is_dir() || running.map_or(Ok(false), asks)? { Ok(()) } else { end(directory) }
}

fn asks(running: &Path) -> io::Result<bool> {
    // Where another version of the agent knows what runs, the companion stays.
    let Some(meta) = Meta::open(&running.join(pinned::META)) else { return Ok(true) };
    let failed = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let pinned = |name: &str| MapHandle::from_pinned_path(running.join(name)).ok();
    let policy = policy_maps::read_element(pinned).map_err(|error| failed(&error))?;
    Ok(meta.plane.by_companion(policy.steering()) != 0)
}

/// Takes it off the interface, with its pins.
pub fn end(directory: &Path) -> io::Result<()> {
    if let Some(CompanionLink { link, .. }) = find(directory)? {
        link::detach(link.as_fd())?;
    }
    if directory.is_dir() { pinned::remove(directory) } else { Ok(()) }
}

/// Attaches it before the programs of others.
pub fn provide(directory: &Path, interface: &str, joining: Joining) -> Result<()> {
    let joining = Joining { order: Order::Companion, ..joining };
    attach(directory, interface, joining).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Error::missing(format!(
            "{interface}: mark, priority, queue and mirror need a program at TC beside that at XDP, and this kernel has neither tcx (Linux {SINCE}) \
             nor filters of clsact (CONFIG_NET_CLS_BPF, CONFIG_NET_SCH_INGRESS); leave these out of the policy"
        )),
        _ => PLANE.attach_error(interface, &error),
    })
}

/// Attaches it; what is attached already gets these programs.
fn attach(directory: &Path, interface: &str, joining: Joining) -> io::Result<()> {
    let (program, map) = load()?;
    let pin = directory.join(pinned::LINK);
    let there = objects::open_pin_if_there(&pin)?;
    if let Some(link) = there
        && link::info(link.as_fd())?.is_some_and(|info| info.port.is_some())
    {
        let (second, new) = (directory.join(SECOND), directory.join("second-new"));
        let _ = change::remove_file(&new);
        objects::pin(map.as_fd(), &new)?;
        link::update(link.as_fd(), program.as_fd())?;
        return change::rename(&new, &second);
    }
    let failed = |error: Error| io::Error::other(error.to_string());
    let index = netdev::index(interface).map_err(failed)?;
    let made = Provisional::create(directory).map_err(failed)?;
    objects::pin(map.as_fd(), &directory.join(SECOND))?;
    PLANE.attach_pinned(program.as_fd(), Port::Interface(index), joining, &pin)?;
    made.keep();
    Ok(())
}

/// The first program, and the map that holds the second.
fn load() -> io::Result<(OwnedFd, MapHandle)> {
    let second = assembler::load(bpf::BPF_PROG_TYPE_SCHED_CLS, c"ww_companion_2", &second())?;
    let options =
        bpf::bpf_map_create_opts { sz: size_of::<bpf::bpf_map_create_opts>() as _, ..Default::default() };
    let map = MapHandle::create(MapType::ProgArray, Some("ww_companion"), 4, 4, 1, &options)
        .map_err(|error| io::Error::other(error.to_string()))?;
    map.update(&0u32.to_ne_bytes(), &second.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let first =
        assembler::load(bpf::BPF_PROG_TYPE_SCHED_CLS, c"ww_companion", &first(map.as_fd().as_raw_fd()))?;
    Ok((first, map))
}

/// Offsets in `struct __sk_buff` (linux/bpf.h).
const MARK: i16 = 8;
const QUEUE_MAPPING: i16 = 12;
const PRIORITY: i16 = 32;
const TC_INDEX: i16 = 44;
const CB: i16 = 48;
const DATA: i16 = 76;
const DATA_META: i16 = 140;
/// Where lines jump to: the next program of whoever else is there.
const NEXT: i16 = i16::MAX;
const DO: i16 = i16::MAX - 1;

const WISH: i32 = size_of::<abi::Wish>() as i32;
/// Behind the magic word, a word of a wish has its place in `cb`, which has room for five.
const WORDS: [usize; 5] = [
    offset_of!(abi::Wish, kinds),
    offset_of!(abi::Wish, mark),
    offset_of!(abi::Wish, priority),
    offset_of!(abi::Wish, queue),
    offset_of!(abi::Wish, mirror_ifindex),
];
const KINDS: i16 = CB;
const MARK_WISHED: i16 = CB + 4;
const PRIORITY_WISHED: i16 = CB + 8;
const QUEUE_WISHED: i16 = CB + 12;
const MIRROR_TO: i16 = CB + 16;

/// Of packets without a wish nothing else is asked.
fn first(map: i32) -> Vec<bpf::bpf_insn> {
    let mut lines = vec![
        (MOVE, 6, 1, 0, 0),             // r6: the context
        (LOAD_U32, 2, 6, DATA_META, 0), // r2: where metadata starts
        (LOAD_U32, 3, 6, DATA, 0),      // r3: where it ends
    ];
    lines.extend(behind_verdict(NEXT));
    lines.extend([
        (MOVE, 4, 2, 0, 0),
        (ADD, 4, 0, 0, WISH),
        (IF_BEYOND, 4, 3, NEXT, 0),
        (LOAD_U32, 5, 2, offset_of!(abi::Wish, magic) as i16, 0),
        (IF_NOT, 5, 0, NEXT, abi::WISH as i32),
    ]);
    for (word, place) in WORDS.into_iter().zip((CB..).step_by(4)) {
        lines.extend([(LOAD_U32, 5, 2, word as i16, 0), (STORE_U32, 6, 5, place, 0)]);
    }
    lines.extend([
        (MOVE, 1, 6, 0, 0),
        (LOAD_MAP, 2, THE_MAP, 0, 0),
        SECOND_HALF,
        (SET, 3, 0, 0, 0),
        (CALL, 0, 0, 0, bpf::BPF_FUNC_tail_call as i32),
    ]);
    let next = lines.len();
    lines.extend(GO_ON);
    assemble(&lines, &[(NEXT, next)], map)
}

/// Moves r2 from a verdict that is in front of a wish (`struct ww_metadata`) to the wish. otherwise : where to go without metadata.
fn behind_verdict(otherwise: i16) -> [Line; 6] {
    [
        (MOVE, 4, 2, 0, 0),
        (ADD, 4, 0, 0, size_of::<u32>() as i32),
        (IF_BEYOND, 4, 3, otherwise, 0),
        (LOAD_U32, 5, 2, offset_of!(abi::Metadata, magic) as i16, 0),
        (IF_NOT, 5, 0, 1, abi::METADATA as i32),
        (ADD, 2, 0, 0, size_of::<abi::Metadata>() as i32),
    ]
}

/// The copy comes before what is written on the packet, as where the program itself is at TC.
fn second() -> Vec<bpf::bpf_insn> {
    let mut lines = vec![
        (MOVE, 6, 1, 0, 0),             // r6: the context
        (LOAD_U32, 7, 6, KINDS, 0),     // r7: what is wished
        (LOAD_U32, 2, 6, DATA_META, 0), // r2: where metadata starts
        (LOAD_U32, 3, 6, DATA, 0),      // r3: where it ends
    ];
    lines.extend(behind_verdict(DO)); // none: this is a copy without it
    lines.extend([
        (MOVE, 4, 2, 0, 0),
        (ADD, 4, 0, 0, size_of::<u32>() as i32),
        (IF_BEYOND, 4, 3, DO, 0),
        (SET, 5, 0, 0, 0),
        (STORE_U32, 2, 5, offset_of!(abi::Wish, magic) as i16, 0),
    ]);
    let start = lines.len();
    lines.extend(if_wished(
        abi::STEER_MIRROR,
        &[
            (LOAD_U32, 8, 6, TC_INDEX, 0), // r8: what it has now; r5: how many copies it is of
            (MOVE, 5, 8, 0, 0),
            (ADD, 5, 0, 0, -(abi::COPY as i32)),
            (IF_EQUAL, 5, 0, 9, abi::COPIES as i32), // no more
            (IF_BELOW, 5, 0, 1, abi::COPIES as i32),
            (SET, 5, 0, 0, 0),
            (ADD, 5, 0, 0, abi::COPY as i32 + 1),
            (STORE_U32, 6, 5, TC_INDEX, 0),
            (MOVE, 1, 6, 0, 0),
            (LOAD_U32, 2, 6, MIRROR_TO, 0),
            (SET, 3, 0, 0, 0),
            (CALL, 0, 0, 0, bpf::BPF_FUNC_clone_redirect as i32),
            (STORE_U32, 6, 8, TC_INDEX, 0),
        ],
    ));
    lines.extend(if_wished(abi::STEER_MARK, &[(LOAD_U32, 5, 6, MARK_WISHED, 0), (STORE_U32, 6, 5, MARK, 0)]));
    lines.extend(if_wished(
        abi::STEER_PRIORITY,
        &[(LOAD_U32, 5, 6, PRIORITY_WISHED, 0), (STORE_U32, 6, 5, PRIORITY, 0)],
    ));
    lines.extend(if_wished(
        abi::STEER_QUEUE,
        &[
            (LOAD_U32, 5, 6, QUEUE_WISHED, 0),
            (ADD, 5, 0, 0, 1), // as the kernel notes the queue that a packet came by: 0 is none
            (STORE_U32, 6, 5, QUEUE_MAPPING, 0),
        ],
    ));
    lines.extend(GO_ON);
    assemble(&lines, &[(DO, start)], -1)
}

/// As TC_ACT_UNSPEC, or TCX_NEXT: whoever else is there goes on.
const GO_ON: [Line; 2] = [(SET, 0, 0, 0, -1), (EXIT, 0, 0, 0, 0)];

/// kind : an `abi::STEER_*` bit.
fn if_wished(kind: u32, lines: &[Line]) -> Vec<Line> {
    let asked = [(MOVE, 5, 7, 0, 0), (AND, 5, 0, 0, kind as i32), (IF_EQUAL, 5, 0, lines.len() as i16, 0)];
    [&asked, lines].concat()
}
