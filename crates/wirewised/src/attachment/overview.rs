// SPDX-License-Identifier: Apache-2.0
//! All that is attached, as far as it can be seen from here.

use crate::attachment::pins::{self, Root};
use crate::attachment::unpinned::{self, Unpinned};
use crate::attachment::{Attachment, Listing, Unreadable, Whereabouts};
use crate::error::{Error, Result};
use crate::plane::note::Carrier;
use crate::reading::status::Status;

/// What can be seen from here.
pub struct Overview {
    pub root: Root,
    pub attachments: Vec<Attachment>,
    /// Of an interface that is named, only its own.
    pub unreadable: Vec<Unreadable>,
    /// In other network namespaces, though the interface asked for has the same name.
    namesakes: Vec<String>,
    pub unpinned: Vec<Unpinned>,
    /// Why a process does not carry the packets that it should; one for each such attachment.
    uncarried: Vec<String>,
    /// Else there are no pins to be seen, whatever is attached.
    pub bpf_file_system: bool,
}

impl Overview {
    /// interface : only this one.
    pub fn of(root: Root, interface: Option<&str>) -> Result<Self> {
        let Listing { attachments: mut all, mut unreadable } = Attachment::all(&root)?;
        all.retain(|attachment| attachment.link.is_some());
        let mut unpinned = unpinned::find(&all)?;
        unpinned.retain(|unpinned| interface.is_none_or(|name| unpinned.is_on(name)));
        // The program of what cannot be read has its pins there.
        unpinned.retain(|unpinned| !unreadable.iter().any(|it| unpinned.is_on(&it.interface)));
        unreadable.retain(|it| interface.is_none_or(|name| it.interface == name));
        let mut namesakes = Vec::new();
        if let Some(interface) = interface {
            let elsewhere = all.iter().filter(|it| it.whereabouts == Whereabouts::Elsewhere);
            namesakes = elsewhere.filter(|it| it.interface == interface).map(Attachment::describe).collect();
            all = Attachment::of_interface(all, interface);
        }
        let bpf_file_system = root.is_in_bpf_file_system();
        Ok(Self {
            root,
            attachments: all,
            unreadable,
            namesakes,
            unpinned,
            uncarried: Vec::new(),
            bpf_file_system,
        })
    }

    /// Of all that can be read; what cannot is counted among the unreadable from here on.
    pub fn statuses(&mut self) -> Vec<Status> {
        let mut all = Vec::new();
        for attachment in &self.attachments {
            match attachment.status() {
                Ok(status) => {
                    let failing =
                        status.carrier.as_ref().filter(|_| status.attached).and_then(Carrier::failing);
                    self.uncarried.extend(failing.map(|failing| format!("{}: {failing}", status.interface)));
                    all.push(status);
                }
                Err(why) => self.unreadable.push(Unreadable::new(&attachment.directory, why)),
            }
        }
        all
    }

    /// What a health check wants to know, of what `statuses` found. Attached is what is here, and what is elsewhere if no interface is named.
    pub fn verdict(&self, interface: Option<&str>) -> Result<()> {
        if let Some(unreadable) = self.unreadable.first() {
            return Err(Error::unreadable(unreadable));
        }
        if let Some(gone) = self.attachments.iter().find(|it| it.whereabouts == Whereabouts::Gone) {
            return Err(Error::not_attached(format!(
                "{}: nothing is attached any more: the interface was deleted, or the program taken off it; \
                 `wirewised run` attaches again",
                gone.interface
            )));
        }
        if let Some(uncarried) = self.uncarried.first() {
            return Err(Error::not_attached(uncarried));
        }
        if !self.attachments.is_empty() {
            return Ok(());
        }
        let message = self.describe_nothing(interface);
        Err(if self.bpf_file_system && self.unpinned.is_empty() {
            Error::not_attached(message)
        } else {
            Error::unknown(message)
        })
    }

    /// Why nothing is shown.
    pub fn describe_nothing(&self, interface: Option<&str>) -> String {
        if !self.bpf_file_system {
            return self.root.cannot_know(interface);
        }
        let (root, on) = (self.root.path().display(), pins::to_interface(interface));
        if !self.unpinned.is_empty() {
            return format!(
                "no pins under {root} for the program that is attached{on}; name where they are with --pin-root"
            );
        }
        let namesakes = match &self.namesakes[..] {
            [] => String::new(),
            namesakes => format!(", but there is {}", namesakes.join(", ")),
        };
        format!("nothing is attached{on} under {root}{namesakes}")
    }
}
