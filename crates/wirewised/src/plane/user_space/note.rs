// SPDX-License-Identifier: Apache-2.0
//! The link of a plane in user space: a note in a pinned map, in which the agent that carries the packets says which program judges them,
//! and whoever wants another one asks for it. Both have it in their memory.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use wirewise_lane::LaneCounts;

use crate::interface::netns;
use crate::kernel;
use crate::kernel::change;
use crate::kernel::objects::{note_id, owned, program_info};
use crate::plane::link::LinkInfo;
use crate::plane::{Plane, Port};

/// Also says which form of note it is.
const MAP_NAME: &std::ffi::CStr = c"ww_carried_1";
const MAX_LANES: usize = 64;
/// How often either side looks.
pub const LOOK: Duration = Duration::from_millis(10);
/// A program is verified again and compiled before it takes over.
const TAKE_OVER: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(10);
/// Without a sign of life for so long, an agent that cannot be looked for is taken for dead.
const SILENCE_NS: u64 = SILENCE.as_nanos() as u64;
/// One that can be found is stopped, or stuck: nobody waits for it any longer.
const SILENCE: Duration = Duration::from_secs(5);
/// Until an agent is asked no more whether it is there: it shows that a hundred times a second, where others leave it a CPU.
const ANSWER: Duration = Duration::from_secs(2);

/// Written by one side at a time, in whole words; zeros are a note that nobody has begun.
#[repr(C)]
struct Words {
    /// 0: of a device that is not the kernel's.
    ifindex: AtomicU32,
    process: AtomicU32,
    /// When the process began, and the inode of the namespace its number is of.
    process_began: AtomicU64,
    process_namespace: AtomicU64,
    /// Of the network namespace.
    cookie: AtomicU64,
    /// CLOCK_MONOTONIC of the last sign of life.
    alive_ns: AtomicU64,
    /// Number of the program asked for; 0: the agent is to end.
    wanted: AtomicU32,
    /// Of the program that judges packets.
    running: AtomicU32,
    /// Of one that could not be taken up, and why.
    refused: AtomicU32,
    /// 1: the agent carries no more packets.
    ended: AtomicU32,
    /// Rises with each change of the allow list; follows it when all workers go by the new one.
    allow_list: AtomicU32,
    allow_list_taken_up: AtomicU32,
    lanes: AtomicU32,
    reserved: AtomicU32,
    plane: [AtomicU8; 32],
    to: [AtomicU8; 16],
    obtained: [AtomicU8; 128],
    why: [AtomicU8; 1024],
    counts: [[AtomicU64; LaneCounts::LENGTH]; MAX_LANES],
}

/// What the agent that carries the packets says of itself.
#[derive(Debug, Clone, Serialize)]
pub struct Carrier {
    pub process: u32,
    /// False: it has ended, and nobody carries packets.
    pub is_alive: bool,
    /// False: it has ended, is stopped, or is stuck.
    pub answers: bool,
    /// False: it makes ready to carry packets, which may yet fail, and has carried none.
    pub has_begun: bool,
    /// The second interface, to which what passes is sent on.
    pub to: Option<String>,
    pub obtained: String,
    /// One for each worker.
    pub lanes: Vec<LaneCounts>,
}

impl Carrier {
    /// Why nobody carries packets, as far as can be told from here.
    pub fn failing(&self) -> Option<String> {
        if !self.answers {
            return Some(silence(self.process, self.is_alive));
        }
        (!self.has_begun).then(|| format!("process {} has not yet begun to carry the packets", self.process))
    }
}

fn silence(process: u32, is_alive: bool) -> String {
    if is_alive {
        format!(
            "process {process}, which carries the packets, does not answer; `kill -CONT {process}` if it was stopped, \
             `kill -KILL {process}` ends it"
        )
    } else {
        format!("process {process}, which carried the packets, has ended")
    }
}

/// A note in this process' memory.
pub struct Note {
    words: *mut Words,
    /// Number of its map.
    id: u32,
}

// SAFETY: the mapping is shared memory of atomic words, and belongs to this value until it is dropped.
unsafe impl Send for Note {}
// SAFETY: as for Send.
unsafe impl Sync for Note {}

impl Note {
    /// The link of a program whose packets this process carries from now on; the descriptor is its note's.
    pub(in crate::plane) fn begin(plane: Plane, program: BorrowedFd<'_>, port: Port) -> io::Result<OwnedFd> {
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let (kind, size) = (libbpf_sys::BPF_MAP_TYPE_ARRAY, size_of::<Words>() as u32);
        // SAFETY: the name is a C string, and `opts` says its size; both outlive the call.
        let map = owned(unsafe { libbpf_sys::bpf_map_create(kind, MAP_NAME.as_ptr(), 4, size, 1, &opts) })?;
        let note = Self::map(&map, 0)?;
        let words = note.words();
        write_text(&words.plane, plane.name());
        words.ifindex.store(port.index().unwrap_or(0), Ordering::Relaxed);
        words.process_began.store(process_began(std::process::id()).unwrap_or(0), Ordering::Relaxed);
        words.process_namespace.store(process_namespace(), Ordering::Relaxed);
        words.cookie.store(netns::cookie(), Ordering::Relaxed);
        words.wanted.store(program_info(program)?.id, Ordering::Relaxed);
        note.show_life();
        words.process.store(std::process::id(), Ordering::Release);
        Ok(map)
    }

    /// `None`: it is something else.
    pub fn open(link: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let id = note_id(link, MAP_NAME, size_of::<Words>())?;
        id.map(|id| Self::map(&link, id)).transpose()
    }

    fn map(map: &impl AsRawFd, id: u32) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let length = size_of::<Words>();
        // SAFETY: a new shared mapping of a map whose value has `length` bytes.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { words: start.cast(), id })
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping lives as long as `self`, begins at a page, has the bytes of `Words`, all of them atomic words that hold any
        // bits, and is shared by nothing that writes otherwise.
        unsafe { &*self.words }
    }

    /// As of a link of the kernel; `None`: of a plane this agent does not have.
    pub(in crate::plane) fn info(&self) -> Option<LinkInfo> {
        let words = self.words();
        let name = read_text(&words.plane);
        let plane = Plane::all().iter().find(|plane| plane.name() == name)?;
        let port = self.is_alive().then(|| Port::of_index(words.ifindex.load(Ordering::Relaxed)));
        // Until it first runs, what it is asked to run.
        let (wanted, running) = (words.wanted.load(Ordering::Acquire), words.running.load(Ordering::Acquire));
        let program = if running == 0 { wanted } else { running };
        Some(LinkInfo::noted(self.id, program, port, *plane, words.cookie.load(Ordering::Relaxed)))
    }

    /// Whether somebody carries packets, or is about to.
    fn is_alive(&self) -> bool {
        let words = self.words();
        if words.ended.load(Ordering::Acquire) != 0 {
            return false;
        }
        if words.process_namespace.load(Ordering::Relaxed) == process_namespace() {
            let began = process_began(self.process());
            return began == Some(words.process_began.load(Ordering::Relaxed));
        }
        let silence = kernel::monotonic_ns().saturating_sub(words.alive_ns.load(Ordering::Relaxed));
        silence < SILENCE_NS
    }

    /// Number of the process that carries packets, or did.
    pub fn process(&self) -> u32 {
        self.words().process.load(Ordering::Acquire)
    }

    /// Waits for a sign of life.
    pub fn carrier(&self) -> Carrier {
        let words = self.words();
        let text = |text: &[AtomicU8]| Some(read_text(text)).filter(|text| !text.is_empty());
        let lanes = words.counts.iter().take(words.lanes.load(Ordering::Acquire) as usize);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Carrier {
            is_alive: self.is_alive(),
            answers: self.answers(),
            has_begun: self.running() != 0,
            process: self.process(),
            to: text(&words.to),
            obtained: read_text(&words.obtained),
            lanes: lanes.map(|counts| LaneCounts::from_array(counts.each_ref().map(load))).collect(),
        }
    }

    /// Asks for another program, and waits until all packets are its.
    pub(in crate::plane) fn change_program(&self, program: u32) -> io::Result<()> {
        let words = self.words();
        words.refused.store(0, Ordering::Relaxed);
        // An agent that has only begun runs nothing yet.
        let before = words.wanted.swap(program, Ordering::AcqRel);
        change::made("note");
        let done = || {
            let refused = words.refused.load(Ordering::Acquire) == program;
            (words.running.load(Ordering::Acquire) == program || refused).then_some(refused)
        };
        match self.wait(TAKE_OVER, done) {
            Some(false) => Ok(()),
            refused => {
                // What ran, or was about to, goes on.
                words.wanted.store(before, Ordering::Release);
                Err(if refused.is_some() { io::Error::other(read_text(&words.why)) } else { self.silent() })
            }
        }
    }

    /// Asks the agent to carry no more packets, and waits until it does not. One that is dead has ended already.
    pub(in crate::plane) fn stop(&self) -> io::Result<()> {
        let words = self.words();
        words.wanted.store(0, Ordering::Release);
        change::made("note");
        let ended = self.wait(STOP, || (words.ended.load(Ordering::Acquire) != 0).then_some(()));
        if ended.is_some() || !self.is_alive() { Ok(()) } else { Err(self.silent()) }
    }

    /// After a change of the allow list: waits until all workers go by it.
    pub fn allow_list_changed(&self) -> io::Result<()> {
        let words = self.words();
        let change = words.allow_list.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let taken_up = || (words.allow_list_taken_up.load(Ordering::Acquire) == change).then_some(());
        self.wait(STOP, taken_up).ok_or_else(|| self.silent())
    }

    /// Gives up on an agent that is gone, or silent.
    fn wait<T>(&self, most: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let end = Instant::now() + most;
        let (mut sign, mut since) = (self.last_sign(), Instant::now());
        loop {
            if let Some(done) = done() {
                return Some(done);
            }
            if self.last_sign() != sign {
                (sign, since) = (self.last_sign(), Instant::now());
            }
            if Instant::now() > end || since.elapsed() > SILENCE || !self.is_alive() {
                return done();
            }
            thread::sleep(LOOK);
        }
    }

    fn last_sign(&self) -> u64 {
        self.words().alive_ns.load(Ordering::Relaxed)
    }

    /// Waits for a sign of life.
    fn answers(&self) -> bool {
        let (sign, begin) = (self.last_sign(), Instant::now());
        while self.is_alive() && begin.elapsed() < ANSWER {
            if self.last_sign() != sign {
                return true;
            }
            thread::sleep(LOOK / 2);
        }
        false
    }

    fn silent(&self) -> io::Error {
        io::Error::other(silence(self.process(), self.is_alive()))
    }
}

/// What the agent that carries the packets reads and writes.
impl Note {
    pub fn show_life(&self) {
        self.words().alive_ns.store(kernel::monotonic_ns(), Ordering::Relaxed);
    }

    /// Shows life while this thread does something that takes long.
    pub fn show_life_during<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // Also when `work` panics, for the scope waits.
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    self.show_life();
                    thread::sleep(LOOK);
                }
            });
            work()
        })
    }

    /// Number of the program asked for; 0: end.
    pub fn wanted(&self) -> u32 {
        self.words().wanted.load(Ordering::Acquire)
    }

    pub fn running(&self) -> u32 {
        self.words().running.load(Ordering::Acquire)
    }

    pub fn runs(&self, program: u32) {
        self.words().running.store(program, Ordering::Release);
    }

    pub fn refuse(&self, program: u32, why: &str) {
        write_text(&self.words().why, why);
        self.words().refused.store(program, Ordering::Release);
    }

    /// Nobody carries packets any more.
    pub fn ended(&self) {
        self.words().ended.store(1, Ordering::Release);
    }

    pub fn describe(&self, lanes: usize, to: Option<&str>, obtained: &str) {
        let words = self.words();
        write_text(&words.to, to.unwrap_or_default());
        write_text(&words.obtained, obtained);
        words.lanes.store(lanes.min(MAX_LANES) as u32, Ordering::Release);
    }

    pub fn count(&self, lane: usize, counts: LaneCounts) {
        let Some(words) = self.words().counts.get(lane) else { return };
        words.iter().zip(counts.to_array()).for_each(|(word, count)| word.store(count, Ordering::Relaxed));
    }

    /// Number of the allow list's last change.
    pub fn allow_list(&self) -> u32 {
        self.words().allow_list.load(Ordering::Acquire)
    }

    /// Of the last one that all workers go by.
    pub fn allow_list_seen(&self) -> u32 {
        self.words().allow_list_taken_up.load(Ordering::Acquire)
    }

    pub fn allow_list_taken_up(&self, change: u32) {
        self.words().allow_list_taken_up.store(change, Ordering::Release);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing points into any more.
        unsafe { libc::munmap(self.words.cast(), size_of::<Words>()) };
    }
}

/// As much of it as there is room for, and a zero behind.
fn write_text(to: &[AtomicU8], text: &str) {
    let end = text.floor_char_boundary(to.len() - 1);
    let bytes = text.as_bytes()[..end].iter().copied().chain(std::iter::repeat(0));
    to.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
}

fn read_text(from: &[AtomicU8]) -> String {
    let bytes = from.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

fn process_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino())
}

/// When a process began, in ticks since the machine did; `None`: there is none, or it has ended and nobody has asked how.
fn process_began(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

const _: () = assert!(offset_of!(Words, counts).is_multiple_of(8));
