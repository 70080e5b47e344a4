// SPDX-License-Identifier: Apache-2.0
//! Knowing that everything has arrived, on a machine that may be busy with other work: sockets with room for whatever a test sends, senders
//! that wait for the interface, and a silence that counts only once nobody who carries packets waits for a CPU.
//!
//! A machine may be so busy for long: the senders of `wirewised bench`, which other tests run, come before all others on their CPU.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// For so long nothing must come for everything to have come, where the kernel alone carries packets: it does so at once.
const SILENCE: Duration = Duration::from_millis(20);
/// And where an agent runs. Longer than any timer of an agent's that a packet may wait for.
const SILENCE_OF_AGENTS: Duration = Duration::from_millis(200);
/// Who is always ready to run, as one that polls, has had its turn when it has run for more than this, in hundredths of a second.
const TURN: u64 = 2;
/// For what must come. As long as it may take on a busy machine: nobody waits for it where it comes.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Does what looks at something while it lasts, for a number of seconds that it is given. Where this machine was too busy to do it in that time,
/// it is done again, with more of them. Returns their number, and what was seen.
pub fn while_it_lasts<T>(work: impl Fn(u64) -> T) -> (u64, T) {
    let mut seconds = 3;
    loop {
        let begun = Instant::now();
        let seen = work(seconds);
        if begun.elapsed() < Duration::from_secs(seconds) {
            return (seconds, seen);
        }
        seconds *= 3;
    }
}

/// Bytes. By default a socket has room for about fifty packets that an XDP program has seen, each of which counts as a page or more.
const ROOM: libc::c_int = 64 << 20;
/// Frames that the queue of a veth holds for sure (VETH_RING_SIZE is 256).
const BURST: u64 = 128;

/// The next packet; `None`: no more comes.
///
/// # Panics
/// If packets came for which the socket had no room.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<usize> {
    while more(socket) {
        // SAFETY: the buffer has the length given.
        let length = unsafe {
            libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(length) {
            Ok(length) => return Some(length),
            // What made it readable had a wrong checksum.
            Err(_) => assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(lost(socket), 0, "packets that the socket had no room for");
    None
}

/// How many packets of `count` come.
pub fn arrivals(socket: &UdpSocket, count: usize) -> usize {
    (0..count).take_while(|_| receive(socket, &mut [0; 4096]).is_some()).count()
}

/// Waits until there is something to receive; false: no more comes.
pub fn more(socket: &impl AsRawFd) -> bool {
    let mut wanted = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let begin = Instant::now();
    let silence = if agents().is_empty() { SILENCE } else { SILENCE_OF_AGENTS };
    let mut turns = Turns::default();
    loop {
        // SAFETY: one element, which outlives the call.
        if unsafe { libc::poll(&raw mut wanted, 1, silence.as_millis() as libc::c_int) } > 0 {
            return true;
        }
        if begin.elapsed() > PATIENCE || !turns.someone_waits() {
            return false;
        }
    }
}

thread_local! {
    /// The folder of this test's lab, in which its agents run.
    static LAB: RefCell<PathBuf> = const { RefCell::new(PathBuf::new()) };
}

/// Waits, in this thread, for agents that run in the folder.
pub fn wait_for_agents_in(folder: &Path) {
    LAB.set(folder.to_path_buf());
}

/// How long threads that were ready to run had run by then, in hundredths of a second.
#[derive(Default)]
struct Turns(BTreeMap<PathBuf, u64>);

impl Turns {
    /// Whether a thread that may have packets to carry is ready to run, or held up by the kernel, and has not had its turn since it was first seen
    /// so. It is then not known what it still has to do.
    fn someone_waits(&mut self) -> bool {
        // All are seen, not only the first that waits.
        let waiting = carriers().filter_map(|thread| {
            let stat = fs::read_to_string(thread.join("stat")).ok()?;
            let words: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
            // Its state, and the time in user space and in the kernel: proc_pid_stat(5).
            let ran = words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?;
            (words[0] == "R" || words[0] == "D").then_some((thread, ran))
        });
        waiting.fold(false, |waits, (thread, ran)| {
            let first = *self.0.entry(thread).or_insert(ran);
            waits | (ran.saturating_sub(first) <= TURN)
        })
    }
}

/// Threads that may have packets to carry: those of the lab's agents, and the kernel's for soft interrupts.
fn carriers() -> impl Iterator<Item = PathBuf> {
    static OF_THE_KERNEL: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let of_the_kernel = OF_THE_KERNEL.get_or_init(|| {
        let comm = |process: &PathBuf| fs::read_to_string(process.join("comm")).unwrap_or_default();
        entries("/proc".into()).filter(|process| comm(process).starts_with("ksoftirqd/")).collect()
    });
    of_the_kernel.iter().cloned().chain(agents().into_iter().flat_map(|agent| entries(agent.join("task"))))
}

/// The processes in the folder of this test's lab.
fn agents() -> Vec<PathBuf> {
    let lab = LAB.with_borrow(Clone::clone);
    entries("/proc".into())
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == lab))
        .collect()
}

fn entries(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Gives a socket room for all that a test sends.
pub fn make_room(socket: &impl AsRawFd) {
    let room = ROOM;
    // SAFETY: the option is of the size given and outlives the call.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const room).cast(),
            size_of_val(&room) as libc::socklen_t,
        )
    };
    assert_eq!(code, 0, "{}", io::Error::last_os_error());
}

/// Packets that the socket had no room for; the kernel counts them.
pub fn lost(socket: &impl AsRawFd) -> u32 {
    const DROPS: usize = 8; // SK_MEMINFO_DROPS
    let mut info = [0_u32; DROPS + 1];
    let mut size = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the array is of the size given.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    assert_eq!((code, size as usize), (0, size_of_val(&info)), "{}", io::Error::last_os_error());
    info[DROPS]
}

/// An interface that a test sends from, with the counters of its driver. The queue of its pair is short, and the kernel may be late to empty it.
pub struct Sending {
    devices: File,
    interface: String,
}

impl Sending {
    /// The interface of this name in the network namespace of this thread.
    pub fn on(interface: &str) -> Self {
        Self { devices: File::open("/proc/thread-self/net/dev").unwrap(), interface: format!("{interface}:") }
    }

    /// Packets that the other end of the pair has taken, and those that it had no room for.
    fn gone(&self) -> u64 {
        let mut text = vec![0; 1 << 16];
        let length = self.devices.read_at(&mut text, 0).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        let counters = text.lines().find_map(|line| line.trim_start().strip_prefix(&self.interface));
        let counters: Vec<u64> =
            counters.unwrap().split_ascii_whitespace().map(|word| word.parse().unwrap()).collect();
        let (packets, dropped) = (counters[9], counters[11]);
        packets + dropped
    }

    /// Calls `send` for each number below `count`, and waits now and then for the other end to take what was sent.
    pub fn each(&self, count: usize, mut send: impl FnMut(usize)) {
        let before = self.gone();
        for number in 0..count {
            send(number);
            let sent = number as u64 + 1;
            if sent.is_multiple_of(BURST) {
                let taken = || self.gone() - before >= sent;
                // One that is down takes nothing.
                let (begin, mut turns) = (Instant::now(), Turns::default());
                while !taken() && (begin.elapsed() < SILENCE || turns.someone_waits()) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}
