// SPDX-License-Identifier: Apache-2.0
//! Planes in user space at work: this process carries packets from their lanes to engines that run the pinned program on the pinned maps.
//! Whoever wants another program, another allow list or an end says so in the note that is the program's link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::Wanted;
use super::engines::{self, AllowList, Pinned, Pins};
use super::note::{self, Note};
use super::worker::{Seat, work};
use crate::error::{Error, Result};
use crate::kernel;
use crate::plane::Plane;
use crate::stop::Stop;

/// The workers of an attachment, and the thread that tells them what to do.
pub struct Carrier {
    control: JoinHandle<Result<End>>,
}

/// Why no more packets are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// This process was asked to.
    Stopped,
    /// Somebody detached the program, who removes the pins.
    Detached,
}

impl Carrier {
    /// Opens the lanes, and begins. note : the link of the program. stop : set when it ends by itself, too.
    pub fn start(
        note: &Arc<Note>,
        pins: Pins,
        plane: Plane,
        wanted: &Wanted<'_>,
        stop: &Stop,
    ) -> Result<Self> {
        refuse_time_namespaces(plane)?;
        note.show_life_during(|| Self::begin(note, pins, plane, wanted, stop))
    }

    fn begin(note: &Arc<Note>, pins: Pins, plane: Plane, wanted: &Wanted<'_>, stop: &Stop) -> Result<Self> {
        let carried = plane.carried().ok_or_else(|| Error::other(format!("{plane} is the kernel's")))?;
        let lanes = carried.open(wanted)?;
        let program = note.wanted();
        let pinned = Pinned::open(&pins(program)?)?;
        let to = wanted.to.map(|to| plane.parts(to).0);
        note.describe(lanes.lanes.len(), to, &lanes.obtained);
        let halt = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for (number, lane) in lanes.lanes.into_iter().enumerate() {
            let seat = Arc::new(Seat::new(pinned.judge(number as u32)?));
            let (in_thread, note, halt) = (Arc::clone(&seat), Arc::clone(note), Arc::clone(&halt));
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            let worker = thread
                .spawn(move || work(number, lane, &in_thread, &note, &halt))
                .map_err(|error| cannot_start(&error))?;
            workers.push(Worker { seat, thread: worker });
        }
        note.runs(program);
        let control = Control { note: Arc::clone(note), halt, workers, pins, stop: stop.clone() };
        Ok(Self { control: thread::spawn(move || control.run()) })
    }

    /// Waits until no more packets are carried.
    pub fn join(self) -> Result<End> {
        self.control.join().unwrap_or_else(|_| Err(Error::other("the thread that leads the workers ended")))
    }
}

pub(super) fn refuse_time_namespaces(plane: Plane) -> Result<()> {
    if !kernel::is_in_time_namespace() {
        return Ok(());
    }
    Err(Error::input(format!(
        "{plane}: this process is in a time namespace, so its clocks are not those that other agents go by; run it outside \
         (`nsenter --time=/proc/1/ns/time`)"
    )))
}

pub(super) fn cannot_start(error: &io::Error) -> Error {
    Error::other(format!("cannot start a worker: {error}"))
}

struct Worker {
    seat: Arc<Seat>,
    thread: JoinHandle<Result<()>>,
}

struct Control {
    note: Arc<Note>,
    halt: Arc<AtomicBool>,
    workers: Vec<Worker>,
    pins: Pins,
    stop: Stop,
}

impl Control {
    fn run(mut self) -> Result<End> {
        let end = self.lead();
        self.halt.store(true, Ordering::Release);
        let mut failed = None;
        for worker in self.workers.drain(..) {
            let ended = worker.thread.join().unwrap_or_else(|_| Err(Error::other("a worker ended")));
            failed = failed.or(ended.err());
        }
        self.note.ended();
        self.stop.ask();
        failed.map_or(Ok(end), Err)
    }

    fn lead(&mut self) -> End {
        loop {
            self.note.show_life();
            if self.stop.asked() || self.workers.iter().any(|worker| worker.thread.is_finished()) {
                return End::Stopped;
            }
            let wanted = self.note.wanted();
            if wanted == 0 {
                return End::Detached;
            }
            if wanted != self.note.running()
                && let Err(error) = self.change_program(wanted)
            {
                self.note.refuse(wanted, &error.to_string());
                self.wait_while(|note| note.wanted() == wanted);
            }
            let change = self.note.allow_list();
            if change != self.note.allow_list_seen() {
                match self.change_allow_list() {
                    Ok(()) => self.note.allow_list_taken_up(change),
                    Err(error) => tracing::warn!("the allow list cannot be read: {error}"),
                }
            }
            thread::sleep(note::LOOK);
        }
    }

    /// Until whoever asked for it has seen the answer.
    fn wait_while(&self, holds: impl Fn(&Note) -> bool) {
        for _ in 0..100 {
            if !holds(&self.note) || self.stop.asked() {
                return;
            }
            self.note.show_life();
            thread::sleep(note::LOOK);
        }
    }

    /// All workers change between two bursts. What they had before is gone when this returns.
    fn change_program(&self, program: u32) -> Result<()> {
        let judges = self.note.show_life_during(|| {
            let pinned = Pinned::open(&(self.pins)(program)?)?;
            let judges = (0..self.workers.len()).map(|number| pinned.judge(number as u32));
            judges.collect::<Result<Vec<_>>>()
        })?;
        for (worker, judge) in self.workers.iter().zip(judges) {
            worker.seat.give(judge);
        }
        self.wait_for_workers();
        self.note.runs(program);
        Ok(())
    }

    fn change_allow_list(&self) -> Result<()> {
        let list = self.note.show_life_during(|| {
            let pinned = (self.pins)(self.note.running())?;
            pinned.last().map_or(Ok(AllowList::new()), |directory| engines::allow_list(directory))
        });
        let list = Arc::new(list?);
        for worker in &self.workers {
            worker.seat.allow(Arc::clone(&list));
        }
        self.wait_for_workers();
        Ok(())
    }

    /// Shows no life meanwhile: if a worker is stuck, nobody waits for this process.
    fn wait_for_workers(&self) {
        let busy = |worker: &Worker| !worker.seat.is_settled() && !worker.thread.is_finished();
        while self.workers.iter().any(busy) {
            thread::sleep(note::LOOK / 10);
        }
    }
}
