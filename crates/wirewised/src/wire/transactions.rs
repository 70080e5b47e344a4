// SPDX-License-Identifier: Apache-2.0
//! Requests and answers over TCP while a wire is flooded, as hoiland-jorgensen's Figure 5 counts them (netperf's TCP_RR): a small payload
//! goes to the server and back, and the next follows. Here a connection is one of so many requests, so that beginnings of connections
//! count too.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Wire;
use crate::error::{Error, Result};
use crate::kernel;

pub const PORT: u16 = 80;
/// Requests of a connection.
pub const REQUESTS: u32 = 100;
/// Bytes of a request, and of its answer.
const BYTES: usize = 16;
/// A connection that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_millis(500);
/// Requests whose time is kept.
const KEPT: usize = 1 << 20;

/// What came of requests in a while.
#[derive(Debug, Clone, Serialize)]
pub struct Answered {
    pub transactions: u64,
    pub transactions_per_second: f64,
    /// Connections that were begun and did not come to be, or broke.
    pub failed_connections: u64,
    /// Nanoseconds; null: nothing was answered.
    pub median_ns: Option<u64>,
    pub p99_ns: Option<u64>,
}

/// A server at the receiving end of a wire, and a client at the other.
pub struct Pair<'a> {
    wire: &'a Wire,
    listener: TcpListener,
    to: SocketAddr,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    measuring: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
    times: Mutex<Vec<u64>>,
}

impl<'a> Pair<'a> {
    /// address : of the receiving end, whose namespace this thread is in.
    pub fn new(wire: &'a Wire, address: Ipv4Addr) -> Result<Self> {
        let to = SocketAddr::from((address, PORT));
        let listener = TcpListener::bind(to)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| Error::other(format!("bench xdp cannot listen on {to}: {error}")))?;
        Ok(Self { wire, listener, to })
    }

    /// server : the CPU that the server's thread is on. The client's is the sender's, before the flood.
    pub fn measure(&self, server: u32, warm_up: Duration, time: Duration) -> Result<Answered> {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            scope.spawn(|| self.serve(server, &counts));
            let asking = scope.spawn(|| {
                let ask = || self.ask(&counts);
                self.wire.outside.within(ask).unwrap_or_else(|| Err(Error::other("the client stopped")))
            });
            std::thread::sleep(warm_up);
            counts.measuring.store(true, Ordering::Relaxed);
            let (begin, before) = (Instant::now(), counts.read());
            std::thread::sleep(time);
            let (seconds, after) = (begin.elapsed().as_secs_f64(), counts.read());
            counts.stop.store(true, Ordering::Relaxed);
            asking.join().unwrap_or_else(|_| Err(Error::other("the client stopped")))?;
            let mut times = counts.times.lock().map_or_else(|_| Vec::new(), |times| times.clone());
            times.sort_unstable();
            let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
            let transactions = after.0 - before.0;
            Ok(Answered {
                transactions,
                transactions_per_second: transactions as f64 / seconds,
                failed_connections: after.1 - before.1,
                median_ns: at(0.5),
                p99_ns: at(0.99),
            })
        })
    }

    fn serve(&self, cpu: u32, counts: &Counts) {
        let _ = kernel::pin_to(cpu);
        while !counts.stop.load(Ordering::Relaxed) {
            let Ok((mut stream, _)) = self.listener.accept() else {
                // Between connections only; within one it waits in the kernel.
                std::thread::sleep(Duration::from_micros(50));
                continue;
            };
            let ready = stream.set_nonblocking(false).and_then(|()| prepare(&stream));
            let mut data = [0; BYTES];
            while ready.is_ok() && !counts.stop.load(Ordering::Relaxed) {
                if stream.read_exact(&mut data).and_then(|()| stream.write_all(&data)).is_err() {
                    break;
                }
            }
        }
    }

    fn ask(&self, counts: &Counts) -> Result<()> {
        kernel::pin_to(self.wire.cpus.sender)?;
        // Behind the flood it would be the flood's CPU that is measured, not the receiver's.
        kernel::come_first()?;
        while !counts.stop.load(Ordering::Relaxed) {
            if self.connection(counts).is_err() {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn connection(&self, counts: &Counts) -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.to, PATIENCE)?;
        prepare(&stream)?;
        let mut data = [0; BYTES];
        for _ in 0..REQUESTS {
            if counts.stop.load(Ordering::Relaxed) {
                break;
            }
            let begin = Instant::now();
            stream.write_all(&data)?;
            stream.read_exact(&mut data)?;
            counts.answered.fetch_add(1, Ordering::Relaxed);
            if counts.measuring.load(Ordering::Relaxed)
                && let Ok(mut times) = counts.times.lock()
                && times.len() < KEPT
            {
                times.push(begin.elapsed().as_nanos() as u64);
            }
        }
        Ok(())
    }
}

impl Counts {
    fn read(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}
