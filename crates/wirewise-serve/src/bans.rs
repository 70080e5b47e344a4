// SPDX-License-Identifier: Apache-2.0
//! The bans in force.

use std::collections::BTreeSet;
use std::net::IpAddr;

use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::error::Result;
use wirewised::object::bans::Ban;
use wirewised::policy::Prefix;

/// Who is banned, and who must not be.
#[derive(Debug, Default)]
pub struct Bans {
    pub bans: Vec<Ban>,
    /// Prefixes of the allow lists of all attachments: one may ban what another lets through.
    pub allowed: Vec<Prefix>,
    /// Whether all could be read.
    pub complete: bool,
}

impl Bans {
    /// interfaces : whose bans count.
    pub fn read(root: &Root, interfaces: &BTreeSet<String>) -> Result<Self> {
        let Listing { attachments, unreadable } = Attachment::all(root)?;
        let complete = !unreadable.iter().any(|it| interfaces.contains(&it.interface));
        let mut all = Self { complete, ..Self::default() };
        for attachment in attachments.iter().filter(|it| it.link.is_some()) {
            all.allowed.extend(attachment.allowed().unwrap_or_default());
            if interfaces.contains(&attachment.interface) {
                match attachment.bans() {
                    Ok(bans) => all.bans.extend(bans),
                    Err(_) => all.complete = false,
                }
            }
        }
        Ok(all)
    }
}

/// The ban on an interface that was made last for one of these addresses. An event has both ends of a flow, and in a flow of both directions
/// either may have been banned.
pub fn latest(root: &Root, interface: &str, ends: &[IpAddr]) -> Result<Option<Ban>> {
    let attachments = Attachment::all(root)?.attachments;
    let mut latest: Option<Ban> = None;
    for attachment in attachments.iter().filter(|it| it.link.is_some() && it.interface == interface) {
        let bans = attachment.bans()?.into_iter();
        let fitting = bans.filter(|ban| ends.iter().any(|end| ban.source.contains(*end)));
        latest = latest.into_iter().chain(fitting).max_by_key(|ban| ban.until_ns);
    }
    Ok(latest)
}
