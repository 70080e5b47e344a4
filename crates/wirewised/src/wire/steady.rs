// SPDX-License-Identifier: Apache-2.0
//! What becomes of packets at one rate, once queues and caches are as they stay.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Wire;
use super::cpu_time::{CpuTime, Watched};
use super::receiver::{self, Receiver};
use super::sender::{Sender, Traffic};
use crate::error::{Error, Result};
use crate::kernel;

const SOON: Duration = Duration::from_millis(5);
const WARM_UP: Duration = Duration::from_millis(200);
/// Queues are empty again after this.
const PAUSE: Duration = Duration::from_millis(50);

/// From one moment to another, while packets are sent.
#[derive(Debug, Clone, Serialize)]
pub struct Steady {
    pub seconds: f64,
    /// Packets that were sent; those that found the receiver's queue full are among them.
    pub sent: u64,
    /// Packets that the receiving driver took from its queue.
    pub taken: u64,
    /// Packets that got a verdict; without a program, those that the driver handed to the stack.
    pub received: u64,
    pub cpu: CpuTime,
}

impl Steady {
    pub fn a_second(&self, packets: u64) -> f64 {
        packets as f64 / self.seconds
    }

    /// Of the receiver's CPU.
    pub fn busy(&self) -> f64 {
        self.cpu.sum_ns() / (self.seconds * 1e9)
    }

    /// `None`: nothing was received.
    pub fn ns_per_packet(&self) -> Option<f64> {
        (self.received > 0).then(|| self.cpu.sum_ns() / self.received as f64)
    }
}

/// A sender at one end of a wire, and what is measured of the other.
pub struct Measuring<'a> {
    wire: &'a Wire,
    sender: Sender,
}

struct Moment {
    at: Instant,
    sent: u64,
    taken: u64,
    received: u64,
}

impl<'a> Measuring<'a> {
    pub fn on(wire: &'a Wire, traffic: Traffic) -> Result<Self> {
        kernel::allow_interrupts()?;
        Ok(Self { wire, sender: Sender::new(wire.sending_end, traffic)? })
    }

    /// receiver : `None`: no program is attached. rate : packets a second; `None`: as many as go.
    pub fn at(&self, receiver: Option<&Receiver>, rate: Option<u32>, time: Duration) -> Result<Steady> {
        let watched = match receiver {
            Some(receiver) => receiver.watched.clone(),
            None => receiver::watched(self.wire, None)?,
        };
        self.during(rate, || self.window(receiver, &watched, time))
    }

    /// Sends while `measure` runs, and says what that says.
    pub fn during<T>(&self, rate: Option<u32>, measure: impl FnOnce() -> Result<T>) -> Result<T> {
        self.sender.pace(rate)?;
        let (stop, thread_id) = (AtomicBool::new(false), AtomicI32::new(0));
        let measured = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let work = || {
                    thread_id.store(kernel::thread_id(), Ordering::Relaxed);
                    kernel::pin_to(self.wire.cpus.sender).and_then(|()| self.sender.send(&stop))
                };
                self.wire.outside.within(work).unwrap_or_else(|| Err(Error::other("the sender stopped")))
            });
            let measured = measure();
            stop.store(true, Ordering::Relaxed);
            while !sending.is_finished() {
                kernel::interrupt(thread_id.load(Ordering::Relaxed));
                thread::sleep(SOON);
            }
            sending.join().unwrap_or_else(|_| Err(Error::other("the sender stopped")))?;
            measured
        });
        thread::sleep(PAUSE);
        measured
    }

    /// Packets that were sent since sending began.
    pub fn sent(&self) -> Result<u64> {
        self.sender.sent()
    }

    /// This thread is on the receiver's CPU. So while it reads, no thread that is measured runs, and what the kernel says of their time
    /// is not behind.
    fn window(&self, receiver: Option<&Receiver>, watched: &Watched, time: Duration) -> Result<Steady> {
        thread::sleep(WARM_UP);
        let (cpu, from) = (watched.read(), self.moment(receiver)?);
        thread::sleep(time);
        let (spent, to) = (watched.read(), self.moment(receiver)?);
        Ok(Steady {
            seconds: (to.at - from.at).as_secs_f64(),
            sent: to.sent - from.sent,
            taken: to.taken.saturating_sub(from.taken),
            received: to.received.saturating_sub(from.received),
            cpu: spent.since(&cpu),
        })
    }

    fn moment(&self, receiver: Option<&Receiver>) -> Result<Moment> {
        let taken = self.wire.received()?;
        let received = receiver.map_or(Ok(taken), Receiver::judged)?;
        Ok(Moment { at: Instant::now(), sent: self.sender.sent()?, taken, received })
    }
}
