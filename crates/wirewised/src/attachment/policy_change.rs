// SPDX-License-Identifier: Apache-2.0
//! Another policy for what is attached, under load. It is written whole into maps beside those in use, `::policy`, and then taken over map by
//! map. Whoever dies in between leaves it there, and the next command goes on with it.

use std::os::fd::AsFd;
use std::path::Path;

use crate::abi::{self, Mode};
use crate::attachment::Attachment;
use crate::attachment::staged_policy::{finish, live, stage, write_shadow};
use crate::attachment::staging;
use crate::attachment::succession::Places;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::policy_maps;
use crate::policy::Policy;
use crate::reading::meta::PolicyMeta;
use crate::reading::policy::{carry_class_modes, carry_mode, set_class_mode, set_mode_for};

/// Has classes, by number, observe or enforce as far as the whole policy does; with a time, after it the other again. The caller holds the lock
/// of the root.
pub fn change_classes(ours: &Attachment, classes: &[usize], mode: Mode, time_ns: Option<u64>) -> Result<()> {
    let (now, mut element) = (kernel::boot_ns(), ours.element()?);
    for class in classes {
        set_class_mode(&mut element.policy.class_policy[*class], mode, now, time_ns);
    }
    policy_maps::write_element(&element, live(Places::of(&ours.directory).of_policy().current))
}

/// The policy in force, so that the whole observes or enforces for a time, and then the other.
pub fn with_mode_for(ours: &Attachment, mode: Mode, time_ns: u64) -> Result<abi::Policy> {
    let mut policy = ours.policy()?;
    let changed = set_mode_for(&mut policy, mode, kernel::boot_ns(), time_ns);
    changed.map(|()| policy).ok_or_else(|| {
        Error::input(format!(
            "{} observes already, so there is nothing to return to; leave out --for",
            ours.interface
        ))
    })
}

/// Writes the policy in force with another mode. The caller holds the lock of the root.
pub fn write_mode(ours: &Attachment, policy: abi::Policy) -> Result<()> {
    let (places, element) = (Places::of(&ours.directory), abi::Element { policy, ..ours.element()? });
    policy_maps::write_element(&element, live(&places.current))?;
    write_shadow(&places.shadow, &element)?;
    let Some(mut meta) = ours.meta.clone() else { return Ok(()) };
    meta.policy.changed = kernel::now();
    staging::remember(&places.current, &meta)
}

/// Changes policy and mode; `None`: what holds stays. policy : with its file. Where an agent of another version knows what this is, nothing
/// changes. The caller holds the lock of the root.
pub fn change(ours: &Attachment, policy: Option<(&Path, &Policy)>, mode: Option<Mode>) -> Result<()> {
    let (now, current) = (kernel::boot_ns(), ours.element()?);
    let Some(mut meta) = ours.meta.clone() else { return Ok(()) };
    let places = Places::of(&ours.directory);
    let Some((file, policy)) = policy else {
        let Some(mode) = mode else { return Ok(()) };
        let until = meta.policy.enforce_for_ns.map_or(0, |duration| now.saturating_add(duration));
        let times = abi::Policy { enforce_until_ns: until, observe_until_ns: 0, ..current.policy };
        return write_mode(ours, abi::Policy { mode: mode.code(), ..times });
    };
    let mut element = policy.to_abi(now, mode.unwrap_or(Mode::Observe));
    if mode.is_none() {
        carry_mode(&current.policy, &mut element.policy, meta.policy.enforce_for_ns.is_some(), now);
    }
    carry_class_modes(&current.policy, &mut element.policy, Some);
    meta.policy = PolicyMeta::new(Some(file), policy);
    let staged = stage(places.of_policy(), policy, &element, &current.policy)?;
    staging::remember(&places.policy, &meta)?;
    staged.keep();
    let link = ours.link.as_ref().map(|(link, _)| link.as_fd());
    finish(places.of_policy(), link)
}
