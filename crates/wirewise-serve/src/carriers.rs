// SPDX-License-Identifier: Apache-2.0
//! Processes that carry packets in user space. They are the agent's own `run`, and outlive the service; one that was started by an
//! earlier service is watched like those of this one.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use wirewised::error::{Error, Result};

use crate::config::Place;
use crate::keeper::Event;

/// A process that is watched until it ends, or this is dropped.
#[derive(Debug)]
pub struct Watched {
    pub process: u32,
    task: JoinHandle<()>,
}

impl Watched {
    /// Sends `Event::Ended` when the process has ended.
    pub fn new(process: u32, place: &Place, tell: UnboundedSender<Event>) -> Result<Self> {
        let failed = |error: io::Error| Error::other(format!("process {process} cannot be watched: {error}"));
        let descriptor = open(process).map_err(failed)?;
        // SAFETY: it owns the descriptor, which nothing else knows, until it is dropped.
        let descriptor = unsafe { AsyncFd::register(descriptor) }.map_err(|error| failed(error.into()))?;
        let place = place.clone();
        let task = tokio::spawn(async move {
            if descriptor.readable().await.is_ok() {
                let _ = tell.send(Event::Ended { place, process });
            }
        });
        Ok(Self { process, task })
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: takes numbers only.
        unsafe { libc::kill(self.process as libc::pid_t, signal) };
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A descriptor that can be read from once the process has ended.
fn open(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, libc::PIDFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made it, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
