// SPDX-License-Identifier: Apache-2.0
//! Which interfaces there are, in each network namespace, and when that changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use wirewised::error::{Error, Result};
use wirewised::interface::netns::Other;
use wirewised::interface::{netdev, socket};

use crate::keeper::Event;

/// The interfaces of each of these namespaces that exists.
pub fn interfaces(namespaces: &BTreeSet<Option<String>>) -> BTreeMap<Option<String>, Vec<String>> {
    let found = namespaces.iter().filter_map(|namespace| {
        let names = within(namespace.as_deref(), netdev::names)?;
        Some((namespace.clone(), names))
    });
    found.collect()
}

/// Whether there is a network namespace of this name.
pub fn exists(namespace: Option<&str>) -> bool {
    inode(namespace).is_some()
}

/// What `work` says in a network namespace; `None`: there is none of this name, or it cannot be entered.
pub fn within<T: Send>(namespace: Option<&str>, work: impl FnOnce() -> T + Send) -> Option<T> {
    match namespace {
        None => Some(work()),
        Some(name) => Other::named(name)?.within(work),
    }
}

/// Tells of interfaces that come, go or change, in the namespaces that a configuration names.
#[derive(Debug)]
pub struct Watch {
    tell: UnboundedSender<Event>,
    /// With the inode of each, as one may be deleted and made again. A socket keeps its namespace alive, so none outlives the name.
    watched: BTreeMap<Option<String>, (u64, JoinHandle<()>)>,
}

impl Watch {
    pub fn new(tell: UnboundedSender<Event>) -> Self {
        Self { tell, watched: BTreeMap::new() }
    }

    /// Looks at which namespaces there are now. Returns whether one came or went.
    pub fn follow(&mut self, namespaces: &BTreeSet<Option<String>>) -> Result<bool> {
        let mut exist = BTreeMap::new();
        for namespace in namespaces {
            if let Some(inode) = inode(namespace.as_deref()) {
                exist.insert(namespace.clone(), inode);
            }
        }
        let before = self.watched.len();
        self.watched.retain(|namespace, (inode, task)| {
            let stays = exist.get(namespace) == Some(inode);
            if !stays {
                task.abort();
            }
            stays
        });
        let mut changed = self.watched.len() != before;
        for (namespace, inode) in exist {
            if self.watched.contains_key(&namespace) {
                continue;
            }
            let failed = |error: io::Error| Error::other(format!("cannot hear of interfaces: {error}"));
            // Deleted since.
            let Some(socket) = within(namespace.as_deref(), open) else { continue };
            let socket = socket.map_err(failed)?;
            // SAFETY: it owns the socket, which nothing else knows, until it is dropped.
            let socket = unsafe { AsyncFd::register(socket) }.map_err(|error| failed(error.into()))?;
            let task = tokio::spawn(listen(socket, self.tell.clone()));
            self.watched.insert(namespace, (inode, task));
            changed = true;
        }
        Ok(changed)
    }
}

fn inode(namespace: Option<&str>) -> Option<u64> {
    namespace.map_or(Some(0), |name| Other::named(name)?.inode())
}

/// A netlink socket for changes of links.
fn open() -> io::Result<OwnedFd> {
    let socket = socket::open(
        libc::AF_NETLINK,
        libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        libc::NETLINK_ROUTE,
    )?;
    // SAFETY: zeroes are a valid address.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = libc::RTMGRP_LINK as u32;
    // SAFETY: the socket is open, and the address has the size that is given.
    let code = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    if code == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// What changed is looked up when it is acted on, so what the kernel says is only counted, and may be lost.
async fn listen(socket: AsyncFd<OwnedFd>, tell: UnboundedSender<Event>) {
    let mut message = [0u8; 8192];
    while let Ok(mut ready) = socket.readable().await {
        loop {
            // SAFETY: the descriptor is open, and the buffer has the length that is given.
            let read = unsafe {
                libc::recv(socket.get_ref().as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0)
            };
            let full = io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if read <= 0 && !full {
                break;
            }
        }
        ready.clear_ready();
        if tell.send(Event::Interfaces).is_err() {
            return;
        }
    }
}
