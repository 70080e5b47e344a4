// SPDX-License-Identifier: Apache-2.0
//! TC on kernels before 6.6, which have no tcx links: a filter of the qdisc clsact. The kernel has no link for one, so a note in a pinned map
//! stands in its place, by which the filter is found, replaced and removed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;

use super::Tc;
use crate::interface::{netns, rtnetlink};
use crate::kernel::change;
use crate::kernel::libbpf_log;
use crate::kernel::objects::{self, check};
use crate::plane::link::{self, LinkInfo};
use crate::plane::{Order, Plane, Port};

/// Also says which form of note it is.
const MAP_NAME: &std::ffi::CStr = c"ww_filter_1";
/// Of every filter of ours, so that one that was left behind is found; but a companion's.
const HANDLE: u32 = 0x7777;
const HANDLE_OF_COMPANION: u32 = 0x7778;
const FIRST: u32 = 1;
const LAST: u32 = 0xffff;

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Words {
    /// Of the network namespace.
    cookie: u64,
    ifindex: u32,
    /// `BPF_TC_INGRESS` or `BPF_TC_EGRESS`.
    point: u32,
    priority: u32,
    /// The program that was last put there: what is known where the namespace cannot be entered.
    program: u32,
    /// 1: the qdisc was not there before.
    made_qdisc: u32,
    /// 0, of earlier agents: `HANDLE`.
    handle: u32,
}

/// A note.
#[derive(Debug)]
pub struct Filter {
    map: OwnedFd,
    /// Number of the map.
    id: u32,
    words: Words,
}

/// What `tc filter show` calls it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FilterHandle {
    pub priority: u32,
    pub handle: u32,
}

impl Filter {
    /// Attaches a program; the descriptor is the note's, which is pinned before there is anything that it tells of.
    pub(super) fn begin(
        tc: Tc,
        program: BorrowedFd<'_>,
        ifindex: u32,
        order: Order,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        let places = Words::places(tc, ifindex);
        let (mut words, left_behind) = match order {
            Order::First | Order::Priority(_) => (places[0], &places[..2]),
            Order::Last => (places[1], &places[..2]),
            Order::Companion => (places[2], &places[2..]),
        };
        // What an agent left that was killed before it had pinned its note.
        for words in left_behind {
            let _ = words.remove();
        }
        words.made_qdisc = (!rtnetlink::has_clsact(ifindex)?).into();
        words.cookie = netns::cookie();
        words.program = objects::program_info(program)?.id;
        let map = link::pinned(objects::new_note(MAP_NAME, &words)?, pin)?;
        words.make_qdisc().and_then(|()| words.put(program)).inspect_err(|_| {
            let _ = words.end(|| Ok(()));
            pin.map_or(Ok(()), change::remove_file).unwrap_or_default();
        })?;
        Ok(map)
    }

    /// `None`: it is something else.
    pub fn open(link: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let Some(id) = objects::note_id(link, MAP_NAME, size_of::<Words>())? else { return Ok(None) };
        let map = link.try_clone_to_owned()?;
        let mut words: Words = objects::first_element(map.as_fd())?;
        if words.handle == 0 {
            words.handle = HANDLE;
        }
        Ok(Some(Self { map, id, words }))
    }

    pub fn info(&self) -> LinkInfo {
        let Words { ifindex, cookie, .. } = self.words;
        let there = self.within(|words| words.program_there());
        let port = Some(Port::Interface(ifindex));
        let (port, program) = match there {
            Some(Some(program)) => (port, program),
            Some(None) => (None, self.words.program),
            None => (port, self.words.program),
        };
        LinkInfo::noted(self.id, program, port, self.plane(), cookie)
    }

    pub fn place(&self) -> FilterHandle {
        FilterHandle { priority: self.words.priority, handle: self.words.handle }
    }

    /// Replaces the program, in one step.
    pub fn change_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let put = self.within(|words| words.put(program));
        put.unwrap_or_else(|| Err(io::ErrorKind::PermissionDenied.into()))?;
        let words = Words { program: objects::program_info(program)?.id, ..self.words };
        objects::set_first_element(self.map.as_fd(), &words)
    }

    /// Removes the filter, and the qdisc if it came with it and nobody else uses it; of other filters of ours, the last one does.
    pub fn stop(&self) -> io::Result<()> {
        let stop = |words: &Words| words.end(|| self.hand_qdisc_on());
        // Where it cannot be entered the namespace, and with it the filter, may be gone.
        self.within(stop).unwrap_or_else(|| match crate::kernel::may_mount() {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        })
    }

    /// Who goes last has to know that the qdisc came with ours. (Who may not ask for maps by number leaves it behind.)
    fn hand_qdisc_on(&self) -> io::Result<()> {
        let is_beside = |other: &Self| {
            let (own, words) = (&self.words, &other.words);
            other.id != self.id && (words.cookie, words.ifindex) == (own.cookie, own.ifindex)
        };
        for other in objects::maps().filter_map(|map| Self::open(map.as_fd()).ok()?).filter(is_beside) {
            objects::set_first_element(other.map.as_fd(), &Words { made_qdisc: 1, ..other.words })?;
        }
        Ok(())
    }

    fn plane(&self) -> Plane {
        if self.words.point == libbpf_sys::BPF_TC_EGRESS { super::EGRESS } else { super::INGRESS }
    }

    /// What `work` says in the filter's network namespace; `None`: it cannot be entered.
    fn within<T: Send>(&self, work: impl Fn(&Words) -> T + Send + Sync) -> Option<T> {
        let words = self.words;
        if words.cookie == netns::cookie() {
            return Some(work(&words));
        }
        netns::find(None, || (netns::cookie() == words.cookie).then_some(()))?.0.within(|| work(&words))
    }
}

/// The programs of ours that are attached there by filters.
pub(super) fn programs(tc: Tc, ifindex: u32) -> impl Iterator<Item = u32> {
    Words::places(tc, ifindex).into_iter().filter_map(|words| words.program_there())
}

impl Words {
    /// Where filters of ours are: first, last, and of a companion.
    fn places(tc: Tc, ifindex: u32) -> [Self; 3] {
        [(FIRST, HANDLE), (LAST, HANDLE), (FIRST, HANDLE_OF_COMPANION)].map(|(priority, handle)| Self {
            ifindex,
            point: tc.point(),
            priority,
            handle,
            ..Self::zeroed()
        })
    }

    fn hook(&self) -> libbpf_sys::bpf_tc_hook {
        libbpf_sys::bpf_tc_hook {
            sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
            ifindex: self.ifindex as i32,
            attach_point: self.point,
            ..Default::default()
        }
    }

    fn opts(&self) -> libbpf_sys::bpf_tc_opts {
        libbpf_sys::bpf_tc_opts {
            sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
            handle: self.handle,
            priority: self.priority,
            ..Default::default()
        }
    }

    /// Also if it is there.
    fn make_qdisc(&self) -> io::Result<()> {
        // SAFETY: the hook says its size and outlives the call.
        match quietly(|| unsafe { libbpf_sys::bpf_tc_hook_create(&mut self.hook()) }) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            made => made.map(|_| change::made("make qdisc")),
        }
    }

    /// hand_on : what to do with a qdisc that came with this filter, and that others use.
    fn end(&self, hand_on: impl Fn() -> io::Result<()>) -> io::Result<()> {
        self.remove()?;
        match self.made_qdisc != 0 {
            true if rtnetlink::has_filters(self.ifindex)? => hand_on(),
            true => self.remove_qdisc(),
            false => Ok(()),
        }
    }

    fn remove_qdisc(&self) -> io::Result<()> {
        let mut hook = self.hook();
        // Both together are the qdisc itself.
        hook.attach_point = libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS;
        // SAFETY: the hook says its size and outlives the call.
        let removed = quietly(|| unsafe { libbpf_sys::bpf_tc_hook_destroy(&mut hook) });
        gone_is_fine(removed.inspect(|_| change::made("remove qdisc")))
    }

    fn put(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut opts = self.opts();
        opts.prog_fd = program.as_raw_fd();
        opts.flags = libbpf_sys::BPF_TC_F_REPLACE;
        // SAFETY: both say their sizes and outlive the call.
        quietly(|| unsafe { libbpf_sys::bpf_tc_attach(&self.hook(), &mut opts) })
            .map(|_| change::made("put filter"))
    }

    fn remove(&self) -> io::Result<()> {
        // SAFETY: both say their sizes and outlive the call.
        let removed = quietly(|| unsafe { libbpf_sys::bpf_tc_detach(&self.hook(), &self.opts()) });
        gone_is_fine(removed.inspect(|_| change::made("remove filter")))
    }

    fn program_there(&self) -> Option<u32> {
        let mut opts = self.opts();
        // SAFETY: both say their sizes and outlive the call.
        quietly(|| unsafe { libbpf_sys::bpf_tc_query(&self.hook(), &mut opts) }).ok()?;
        Some(opts.prog_id)
    }
}

/// libbpf says on standard error what the kernel said to a question that may well be answered with no.
fn quietly(call: impl FnOnce() -> i32) -> io::Result<i32> {
    check(libbpf_log::collect(call).0)
}

/// No such filter, qdisc or interface.
fn gone_is_fine(result: io::Result<i32>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EINVAL)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}
