// SPDX-License-Identifier: Apache-2.0
//! Who is let through by the allow list, and who is kept out: by the deny list, and by bans.

use serde::Serialize;
use serde_json::{Value, json};

use crate::abi::maps::BANS;
use crate::attachment::Attachment;
use crate::attachment::allow::AllowList;
use crate::attachment::deny::DenyList;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::bans::Table;
use crate::policy::Prefix;

/// The beginning of each list, as `wirewised allow list`, `deny list` and `bans list` print it.
#[derive(Debug, Serialize)]
pub struct Lists {
    pub interface: String,
    pub allowed: Part,
    /// `None`: the policy has no deny list.
    pub denied: Option<Part>,
    /// `None`: the policy bans nobody.
    pub banned: Option<Part>,
}

#[derive(Debug, Serialize)]
pub struct Part {
    pub count: usize,
    pub first: Vec<Value>,
}

impl Lists {
    /// limit : entries of each.
    pub fn read(ours: &Attachment, limit: usize) -> Result<Self> {
        let element = ours.element()?;
        let part = |all: &mut dyn Iterator<Item = Value>| {
            let first: Vec<_> = all.take(limit).collect();
            Part { count: first.len() + all.count(), first }
        };
        let allowed = AllowList::read(ours)?;
        let allowances = allowed.held.allowances(kernel::boot_s());
        let allowed = part(&mut allowances.map(|(prefix, who)| allowance(prefix, &who)));
        let denied = element.denies().then(|| DenyList::read(ours)).transpose()?;
        let denied = denied.map(|list| {
            let denials = list.held.denials(kernel::boot_s());
            part(&mut denials.map(|(prefix, who)| denial(prefix, &who)))
        });
        let now = kernel::monotonic_ns();
        let banned = element.bans().then(|| bans(ours)?.read(now)).transpose()?;
        let banned = banned.map(|bans| part(&mut bans.iter().map(|ban| ban.form(now))));
        Ok(Self { interface: ours.interface.clone(), allowed, denied, banned })
    }
}

/// The bans of what is attached.
pub fn bans(ours: &Attachment) -> Result<Table> {
    let none = || {
        Error::input(format!(
            "the policy on {} bans nobody; give a class `ban: {{by: source, for: 60s}}`",
            ours.interface
        ))
    };
    if !ours.element()?.bans() {
        return Err(none());
    }
    Table::open(&ours.optional_map(BANS)?.ok_or_else(none)?)
}

/// An allowed prefix as JSON. who : allows it, each with the seconds that are left, `None`: for ever.
pub fn allowance(prefix: &Prefix, who: &[(&str, Option<u32>)]) -> Value {
    json!({ "prefix": prefix.to_string(), "allowed_by": each(who) })
}

/// A denied prefix as JSON. who : denies it, each with the seconds that are left, `None`: for ever.
pub fn denial(prefix: &Prefix, who: &[(&str, Option<u32>)]) -> Value {
    json!({ "prefix": prefix.to_string(), "denied_by": each(who) })
}

fn each(who: &[(&str, Option<u32>)]) -> Vec<Value> {
    who.iter().map(|(name, left)| json!({ "origin": name, "for_s": left })).collect()
}
