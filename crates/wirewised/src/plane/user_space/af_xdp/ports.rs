// SPDX-License-Identifier: Apache-2.0
//! The sockets of all lanes opened together, over one area of memory.

use std::io::Error;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::interface::Interface;
use super::options::{BusyPoll, Options};
use super::rings::{Area, Consumer, Producer};
use super::socket::Socket;

/// What a way receives from and sends to: each a place among the interfaces, and a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub from: (usize, u32),
    pub to: Option<(usize, u32)>,
}

/// The sockets of a way.
pub(super) struct Port {
    pub entry: Entry,
    pub exit: Option<Exit>,
}

pub(super) struct Entry {
    pub socket: Socket,
    pub rx: Consumer<libc::xdp_desc>,
    pub fill: Producer<u64>,
    /// For what goes back out of the same queue; `None`: the interface has fewer to send than to receive.
    pub tx: Option<Producer<libc::xdp_desc>>,
    pub outlet: Arc<Outlet>,
}

pub(super) struct Exit {
    pub socket: Socket,
    pub tx: Producer<libc::xdp_desc>,
    pub outlet: Arc<Outlet>,
}

/// The completion ring of a queue. Several ways may send there, if they come from more queues than there are.
pub(super) struct Outlet(Mutex<Completions>);

struct Completions {
    ring: Consumer<u64>,
    taken: Vec<u64>,
    /// Bytes of the area that each way has.
    share: u64,
    /// What one way took from the ring but another one sent.
    back: Vec<Vec<u64>>,
}

impl Outlet {
    /// Moves the frames of a way that have been transmitted into `sent`.
    pub fn reclaim(&self, way: usize, sent: &mut Vec<u64>) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Completions { ring, taken, share, back } = &mut *guard;
        ring.take(usize::MAX, taken);
        for address in taken.drain(..) {
            // What is nobody's is left to the first who asks: no frame of its own, it ends that lane.
            match usize::try_from(address / *share).ok().filter(|&owner| owner != way) {
                Some(owner) if owner < back.len() => back[owner].push(address),
                _ => sent.push(address),
            }
        }
        sent.append(&mut back[way]);
    }
}

/// Why sockets could not be had: the error number tells whether another way is worth a try.
#[derive(Default)]
pub(super) struct Failure {
    pub errno: i32,
    pub text: String,
}

/// One port for each route, by queue: the kernel allows one area only on each queue, so whatever receives from a
/// queue and whatever sends to it must share.
pub(super) fn open(
    interfaces: &[Interface],
    routes: &[Route],
    frame_size: u32,
    options: &Options,
    zero_copy: bool,
) -> Result<(Arc<Area>, Vec<Port>), Failure> {
    let share = options.frames as usize * frame_size as usize;
    let length = share * routes.len();
    let area = Arc::new(Area::new(length).map_err(|error| Failure {
        errno: error.raw_os_error().unwrap_or(0),
        text: format!(
            "cannot get {length} bytes of memory for packets: {error}; raise the limit on this process' addresses (ulimit -v), or have \
             fewer queues"
        ),
    })?);
    let way = if zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let mut queues: Vec<_> = routes.iter().map(|route| route.from).collect();
    queues.extend(routes.iter().filter_map(|route| route.to));
    queues.sort_unstable();
    queues.dedup();

    let mut entries: Vec<Option<Entry>> = routes.iter().map(|_| None).collect();
    let mut exits: Vec<Option<Exit>> = routes.iter().map(|_| None).collect();
    let mut first = None;
    for key in queues {
        let (interface, queue) = (&interfaces[key.0], key.1);
        let failed = |what: &'static str| {
            move |error: Error| Failure {
                errno: error.raw_os_error().unwrap_or(0),
                text: format!(
                    "interface {} queue {queue}: cannot {what}: {error}{}",
                    interface.name,
                    way_out(&error, zero_copy)
                ),
            }
        };
        // The first socket on a queue has its fill and its completion ring. Whoever receives comes first.
        let mut main: Option<(RawFd, Arc<Outlet>)> = None;
        let receivers = (0..routes.len()).filter(|&at| routes[at].from == key).map(|at| (at, true));
        let senders = (0..routes.len()).filter(|&at| routes[at].to == Some(key)).map(|at| (at, false));
        for (at, receives) in receivers.chain(senders) {
            let socket = Socket::new().map_err(failed("make an AF_XDP socket"))?;
            if first.is_none() {
                socket.register(&area, frame_size).map_err(failed("share memory with an AF_XDP socket"))?;
            }
            let with = main.as_ref().map(|(main, _)| *main).or(first);
            let ((_, outlet), fill) = match &main {
                Some(main) => (main, None),
                None => {
                    // Room for all frames of a way.
                    let fill = socket.fill(options.frames).map_err(failed("make the fill ring"))?;
                    let ring = socket.completion(options.frames);
                    let completions = Completions {
                        ring: ring.map_err(failed("make the completion ring"))?,
                        taken: Vec::new(),
                        share: share as u64,
                        back: routes.iter().map(|_| Vec::new()).collect(),
                    };
                    let outlet = Arc::new(Outlet(Mutex::new(completions)));
                    (&*main.insert((socket.as_raw_fd(), outlet)), Some(fill))
                }
            };
            let outlet = Arc::clone(outlet);
            let mut rx = None;
            if receives {
                rx = Some(socket.rx(options.ring).map_err(failed("make the RX ring"))?);
            }
            let mut tx = None;
            if queue < interface.tx_queues {
                tx = Some(socket.tx(options.ring).map_err(failed("make the TX ring"))?);
            }
            busy_poll(&socket, options.busy_poll)
                .map_err(failed("set busy polling, which Linux has from 5.11 on"))?;
            let flags = way | libc::XDP_USE_NEED_WAKEUP;
            socket.bind(interface.index, queue, flags, with).map_err(failed("bind an AF_XDP socket"))?;
            first = first.or(Some(socket.as_raw_fd()));
            match (rx, fill) {
                (Some(rx), Some(fill)) => entries[at] = Some(Entry { socket, rx, fill, tx, outlet }),
                _ => exits[at] = tx.map(|tx| Exit { socket, tx, outlet }),
            }
        }
    }
    let ports = entries.into_iter().flatten().zip(exits).map(|(entry, exit)| Port { entry, exit });
    Ok((area, ports.collect()))
}

pub(super) fn way_out(error: &Error, zero_copy: bool) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; it takes CAP_NET_RAW and CAP_NET_ADMIN (or root)",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "; raise the limit on locked memory (`ulimit -l`, LimitMEMLOCK= of a unit) to 8 MiB for each queue and direction or more, or give \
             it CAP_IPC_LOCK"
        }
        Some(libc::EAFNOSUPPORT) => "; this kernel is built without AF_XDP (CONFIG_XDP_SOCKETS)",
        Some(libc::EPROTONOSUPPORT) => "; AF_XDP of this kernel is too old, it takes Linux 5.10",
        Some(libc::EBUSY) => "; another AF_XDP socket is bound to this queue, end the program that holds it",
        Some(libc::EOPNOTSUPP | libc::EINVAL) if zero_copy => {
            "; its driver cannot do zero-copy with this setup, ask for Auto or Copy"
        }
        Some(libc::ENETDOWN) => "; set the interface up first",
        _ => "",
    }
}

fn busy_poll(socket: &Socket, wanted: Option<BusyPoll>) -> Result<(), Error> {
    let Some(BusyPoll { microseconds, budget }) = wanted else { return Ok(()) };
    for (option, value) in [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, microseconds),
        (libc::SO_BUSY_POLL_BUDGET, budget),
    ] {
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        socket.set(libc::SOL_SOCKET, option, &value)?;
    }
    Ok(())
}
