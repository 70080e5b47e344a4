// SPDX-License-Identifier: Apache-2.0
//! Whether senders can prove their addresses where packets are judged, so that nobody has another banned; and which bans are in force.

use crate::abi::maps::BANS;
use crate::abi::{self, Mode};
use crate::attachment::Attachment;
use crate::attachment::allow::AllowList;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::outgoing;
use crate::attachment::way_out::Judged;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::bans::{Ban, Table};
use crate::policy::{Policy, Prefix};
use crate::reading::policy::effective_mode;

pub const CHECK: &str = "ban";

impl Attachment {
    /// The bans for which packets are dropped now; none in observe mode, nor where the policy has no class that bans.
    pub fn bans(&self) -> Result<Vec<Ban>> {
        self.bans_under(&self.element()?)
    }

    /// The same, where the policy in force is known.
    pub fn bans_under(&self, policy: &abi::Element) -> Result<Vec<Ban>> {
        let enforces = effective_mode(&policy.policy, kernel::boot_ns()) == Mode::Enforce;
        let map = if enforces && policy.bans() { self.optional_map(BANS)? } else { None };
        let Some(map) = map else { return Ok(Vec::new()) };
        let mut bans = Table::open(&map)?.read(kernel::monotonic_ns())?;
        bans.retain(|ban| !ban.would);
        Ok(bans)
    }

    /// The prefixes that are allowed now.
    pub fn allowed(&self) -> Result<Vec<Prefix>> {
        let list = AllowList::read(self)?;
        Ok(list.held.allowances(kernel::boot_s()).map(|(prefix, _)| *prefix).collect())
    }
}

/// Refuses bans that could never be made; warns of those that a forged packet can make.
pub fn admit(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let sees_answers = judged.planes.contains(&outgoing::PLANE);
    let incoming = judged.planes.iter().find(|plane| **plane != outgoing::PLANE);
    for (class, ban) in policy.bans() {
        let Some(plane) = incoming else {
            return Err(Error::input(format!(
                "policy: {class}: ban: {} sees only what this host sends, which has nobody banned; leave the ban out, or take a plane \
                 for what comes in",
                outgoing::PLANE
            )));
        };
        if !(ban.spoofable || sees_answers) {
            return Err(Error::input(format!(
                "policy: {class}: ban: on {plane} alone nobody can prove an address, because this host's answers are not seen, so nobody \
                 would be banned; add --outgoing, or `spoofable: true` to ban addresses that may be forged"
            )));
        }
    }
    Ok(spoofable(policy))
}

/// A warning for each class that bans addresses which nobody has proved.
pub fn spoofable(policy: &Policy) -> Vec<Finding> {
    let classes = policy.bans().filter(|(_, ban)| ban.spoofable);
    let warning = |(class, _)| {
        let found = format!(
            "{class}: `spoofable: true` bans addresses that may be forged, so anybody can have others banned"
        );
        Finding::warning(CHECK, found, "leave `spoofable` out, or put whom you depend on into the allow list")
    };
    classes.map(warning).collect()
}
