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
use crate::error::Result;
use crate::kernel;
use crate::object::policy_maps;
use crate::policy::Policy;
use crate::reading::meta::PolicyMeta;
use crate::reading::policy::{carry_class_modes, effective_mode, set_class_mode};

/// Has classes, by number, observe or enforce as far as the whole policy does; with a time, after it the other again. The caller holds the lock
/// of the root.
pub fn change_classes(ours: &Attachment, classes: &[usize], mode: Mode, time_ns: Option<u64>) -> Result<()> {
    let (now, mut element) = (kernel::boot_ns(), ours.element()?);
    for class in classes {
        set_class_mode(&mut element.policy.class_policy[*class], mode, now, time_ns);
    }
    policy_maps::write_element(&element, live(Places::of(&ours.directory).of_policy().current))
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
        let policy = abi::Policy { mode: mode.code(), enforce_until_ns: until, ..current.policy };
        let element = abi::Element { policy, ..current };
        policy_maps::write_element(&element, live(&places.current))?;
        write_shadow(&places.shadow, &element)?;
        meta.policy.changed = kernel::now();
        return staging::remember(&places.current, &meta);
    };
    let mut element = policy.to_abi(now, mode.unwrap_or_else(|| effective_mode(&current.policy, now)));
    carry_class_modes(&current.policy, &mut element.policy, Some);
    meta.policy = PolicyMeta::new(Some(file), policy);
    let staged = stage(places.of_policy(), policy, &element, &current.policy)?;
    staging::remember(&places.policy, &meta)?;
    staged.keep();
    let link = ours.link.as_ref().map(|(link, _)| link.as_fd());
    finish(places.of_policy(), link)
}
