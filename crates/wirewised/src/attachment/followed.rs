// SPDX-License-Identifier: Apache-2.0
//! The current `next` program of an attachment (`next.rs`): for a swap that keeps the policy, for `status` and for `doctor`.

use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};

use crate::abi::maps::NEXT;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::next::{Next, PIN, of_policy};
use crate::attachment::{Attachment, inside};
use crate::error::{Error, Result};
use crate::kernel::objects;
use crate::plane::Plane;
use crate::policy::Policy;
use crate::reading::status;

pub const CHECK: &str = "next";

/// The one that is called now, even if its owner's pin is gone.
pub fn of(ours: &Attachment) -> Result<Option<Next>> {
    let pin = inside(&ours.pins, PIN);
    let program = objects::open_pin_if_there(&pin)
        .map_err(|error| Error::other(format!("{}/{PIN}: {error}", ours.directory.display())))?;
    Ok(program.map(|program| Next { program, name: path_of(ours).unwrap_or_else(|| PIN.to_owned()) }))
}

/// What the policy calls it.
fn path_of(ours: &Attachment) -> Option<String> {
    ours.meta.as_ref()?.policy.next.clone()
}

/// Whether a policy has another program go on, or none, than what runs.
pub fn differs(ours: &Attachment, policy: &Policy, plane: Plane) -> Result<bool> {
    let id = |next: Option<Next>| next.map(|next| next.id()).transpose();
    Ok(id(of_policy(policy, plane)?)? != id(of(ours)?)?)
}

/// For `status`.
pub fn status(ours: &Attachment) -> Result<Option<status::Next>> {
    let Some(next) = of(ours)? else { return Ok(None) };
    let info = objects::program_info(next.program.as_fd())
        .map_err(|error| Error::other(format!("{}: {error}", next.name)))?;
    Ok(Some(status::Next { path: next.name, program_id: info.id, name: info.name }))
}

/// Whether what passes goes on to the program that the policy means.
pub fn check_running(ours: &Attachment) -> Option<Finding> {
    const AGAIN: &str = "give the policy again: `wirewised run --policy`";
    let next = match status(ours) {
        Ok(next) => next?,
        Err(error) => return Some(Finding::warning(CHECK, error.to_string(), AGAIN)),
    };
    let called = format!("program {} ({})", next.program_id, next.name);
    let map = ours.map(NEXT).ok();
    let slot = map.and_then(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?);
    if slot.is_none() {
        return Some(Finding::warning(CHECK, format!("{called} is not called: what passes, passes"), AGAIN));
    }
    let path = Path::new(&next.path);
    Some(match objects::open_pin(path).and_then(|program| objects::program_info(program.as_fd())) {
        Ok(there) if there.id == next.program_id => {
            Finding::ok(CHECK, format!("what passes goes on to {called}"))
        }
        Ok(there) => Finding::warning(
            CHECK,
            format!(
                "{} is program {} ({}) now; what passes still goes on to {called}",
                next.path, there.id, there.name
            ),
            AGAIN,
        ),
        Err(_) => Finding::warning(
            CHECK,
            format!(
                "{} is gone; what passes still goes on to {called}, which stays loaded for this",
                next.path
            ),
            format!("pin a program there, or leave `next` out of the policy, and {AGAIN}"),
        ),
    })
}
