// SPDX-License-Identifier: Apache-2.0
//! What has to happen for a bundle to run on an interface, decided before anything is changed.

use std::path::PathBuf;

use crate::abi::{Hook, Mode};
use crate::attachment::doctor;
use crate::attachment::followed;
use crate::attachment::names;
use crate::attachment::outgoing;
use crate::attachment::pins::Root;
use crate::attachment::{Attachment, Whereabouts};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::interface::netns;
use crate::object::Runs;
use crate::plane::{self, Attached, Joining, Order, Plane, Port, dispatcher};
use crate::policy::{self, Policy};
use crate::reading::meta::Meta;
use crate::text::shell::quoted;

#[derive(Debug)]
pub struct AttachRequest {
    pub interface: String,
    pub plane: Plane,
    /// Where the hook takes several programs.
    pub joining: Joining,
    /// What the host sends is judged too.
    pub outgoing: bool,
    /// `None`: observe, or what an adopted attachment has.
    pub mode: Option<Mode>,
    pub bundle: Bundle,
    pub bundle_file: PathBuf,
    /// `None`: everything passes, or what an adopted attachment has.
    pub policy: Option<(PathBuf, Policy)>,
    pub replace: bool,
    pub table_size: Option<u32>,
    /// Switch off what merges packets before the program.
    pub offloads_off: bool,
    pub root: Root,
}

impl AttachRequest {
    /// What the program must be loaded for.
    pub fn runs(&self) -> Runs {
        if self.joining.priority.is_some() { Runs::InDispatcher } else { self.plane.runs() }
    }

    /// Where its packets are judged, in both directions.
    pub fn planes(&self) -> impl Iterator<Item = Plane> {
        std::iter::once(self.plane).chain(self.outgoing.then_some(outgoing::PLANE))
    }
}

/// What `run` comes down to.
#[derive(Debug)]
pub enum AttachPlan {
    /// Nothing is attached, or what is goes first.
    Attach { displaced: Option<Attached> },
    /// The same bundle is attached: only policy and mode may change.
    Adopt(Attachment),
    /// The same bundle is attached, but its program was not loaded for what the new policy asks for.
    Reload(Attachment),
    /// Ours is replaced in one step; no packet meets the interface without a program.
    Replace(Attachment),
    /// Ours has to go before the new one can come, because the plane changes.
    Reattach(Attachment, Plane),
}

impl AttachPlan {
    /// What goes on with the same bundle.
    pub fn adopted(&self) -> Option<&Attachment> {
        match self {
            Self::Adopt(ours) | Self::Reload(ours) => Some(ours),
            _ => None,
        }
    }
}

/// The plane of what we have on an interface, or are about to have, and whether it judges outgoing packets too; `None` if we have nothing there.
pub fn current_plane(root: &Root, interface: &str) -> Option<(Plane, bool)> {
    let ours = Attachment::find(root, Some(interface)).ok()?;
    ours.port()?;
    let obtained = ours.link.as_ref()?.1.plane().ok()??;
    let wanted = ours.meta.as_ref().and_then(|meta| meta.until);
    Some((wanted.unwrap_or(obtained), ours.outgoing.is_some() || ours.awaits_outgoing()))
}

/// Looks, and changes nothing.
pub fn of(request: &AttachRequest) -> Result<AttachPlan> {
    let plan = choose(request)?;
    let kept = match &plan {
        AttachPlan::Adopt(ours) => ours.meta.as_ref().is_some_and(|meta| meta.policy.file.is_some()),
        _ => false,
    };
    if request.mode == Some(Mode::Enforce) && request.policy.is_none() && !kept {
        return Err(Error::input(policy::NOTHING_TO_ENFORCE));
    }
    Ok(plan)
}

fn choose(request: &AttachRequest) -> Result<AttachPlan> {
    let AttachRequest { interface, replace, .. } = request;
    let port = request.plane.port(interface)?;
    let attached = plane::attached_to(port)
        .map_err(|error| Error::other(format!("{interface}: cannot ask what is attached: {error}")))?;
    let all = Attachment::all(&request.root)?;
    let ours = all.attachments.into_iter().find(|attachment| attachment.is_on(port, interface));
    let Some(ours) = ours else {
        if let Some(unreadable) = all.unreadable.iter().find(|it| it.interface == *interface) {
            return Err(Error::other(format!(
                "{unreadable}; `wirewised detach --interface {}` takes it off",
                quoted(interface)
            )));
        }
        if request.joining.priority.is_some() {
            check_dispatcher(request, port, &attached)?;
            return Ok(AttachPlan::Attach { displaced: None });
        }
        return match attached.iter().find(|it| it.plane.is_in_the_way_of(request.plane)) {
            Some(taken) if !replace => Err(doctor::taken(interface, *taken, &request.root).to_error()),
            taken => Ok(AttachPlan::Attach { displaced: taken.copied() }),
        };
    };
    let obtained = ours.link.as_ref().and_then(|(_, link)| link.plane().ok()?);
    check_priority(request, &ours, obtained)?;
    let difference = difference(request, &ours, obtained);
    match (difference, obtained) {
        (None, _) if needs_reload(request, &ours)? => {
            if ours.shadow().is_some() {
                return Err(Error::other(format!(
                    "{interface}: for what this policy asks for the program has to be loaded again, which is not possible beside a \
                     shadow; `wirewised swap --no-shadow` ends that"
                )));
            }
            Ok(AttachPlan::Reload(ours))
        }
        (None, _) => Ok(AttachPlan::Adopt(ours)),
        (Some(difference), _) if !replace => Err(Error::other(format!(
            "{interface}: wirewise is attached {difference}; `--replace` changes that"
        ))),
        (Some(_), Some(obtained)) if obtained != request.plane => Ok(AttachPlan::Reattach(ours, obtained)),
        (Some(_), _) => Ok(AttachPlan::Replace(ours)),
    }
}

/// The run priority with which a program joins a dispatcher of libxdp; `None`: it is alone, or not at XDP.
///
/// replace : a dispatcher that cannot be joined may be taken off.
pub fn priority(plane: Plane, interface: &str, order: Order, replace: bool) -> Result<Option<u32>> {
    let at_xdp = plane.runs() == Runs::InKernel(Hook::Xdp);
    if let Order::Priority(priority) = order {
        return match at_xdp {
            true => Ok(Some(priority)),
            false => Err(Error::input(format!(
                "--order {priority}: run priorities are for dispatchers of libxdp, at XDP; `--plane {plane}` takes none, planes of TC first or last"
            ))),
        };
    }
    let Ok(Port::Interface(index)) = plane.port(interface) else { return Ok(None) };
    // Without the privilege to ask, attaching fails later and reports it.
    let joins = at_xdp && dispatcher::is_there(plane, index).unwrap_or(false);
    let replaced = joins && replace && dispatcher::probe(plane, index).is_err();
    Ok((joins && !replaced).then(|| order.priority()))
}

/// Refuses to join where the kernel, or another program, does not let us.
fn check_dispatcher(request: &AttachRequest, port: Port, attached: &[Attached]) -> Result<()> {
    let AttachRequest { interface, plane, .. } = request;
    let index = port.index().unwrap_or(0);
    let is_dispatcher = dispatcher::is_there(*plane, index).unwrap_or(false);
    if let Some(taken) = attached.iter().find(|it| it.plane.is_in_the_way_of(*plane))
        && !(is_dispatcher && taken.plane == *plane)
    {
        return Err(doctor::taken(interface, *taken, &request.root).to_error());
    }
    dispatcher::probe(*plane, index)
        .map_err(|error| Error::missing(format!("{interface}: {error}; {}", doctor::beside_dispatcher())))
}

/// Refuses to move to another place in a dispatcher, or into or out of one, where the one at XDP must go before the other can come.
fn check_priority(request: &AttachRequest, ours: &Attachment, obtained: Option<Plane>) -> Result<()> {
    let (is, wanted) = (ours.priority(), request.joining.priority);
    let stays = obtained == Some(request.plane);
    let is_another = matches!(request.joining.order, Order::Priority(_)) && is != wanted;
    let moves = obtained.is_some_and(|obtained| !stays && obtained.excludes(request.plane));
    if !(stays && is_another || moves && is.or(wanted).is_some()) {
        return Ok(());
    }
    let place = obtained.map_or(String::new(), |obtained| format!(" as {obtained}"));
    let is = is.map_or("alone, not in a dispatcher".to_string(), |is| {
        format!("in a dispatcher with run priority {is}")
    });
    Err(Error::other(format!(
        "{}: wirewise is attached{place}, {is}; `wirewised detach --interface {}`, then run it as you want it",
        request.interface,
        quoted(&request.interface)
    )))
}

/// Where the pins of a new attachment go: to the interface's directory, unless that is kept for an interface that had this name
/// before, or has it in another network namespace.
pub fn directory(request: &AttachRequest) -> Result<PathBuf> {
    let plain = request.root.directory(&request.interface);
    let all = Attachment::all(&request.root)?.attachments;
    let Some(there) = all.into_iter().find(|there| there.directory == plain) else {
        return Ok(plain);
    };
    let port = request.plane.port(&request.interface)?;
    let free = match there.whereabouts {
        Whereabouts::Here(here) => here == port,
        Whereabouts::Elsewhere => false,
        Whereabouts::Gone => there.meta.as_ref().is_none_or(Meta::is_from_here),
    };
    Ok(if free { plain } else { names::apart(&plain, port.index().unwrap_or(0), netns::cookie()) })
}

/// Whether the policy asks for what the program cannot do as it was loaded.
fn needs_reload(request: &AttachRequest, ours: &Attachment) -> Result<bool> {
    let Some((_, policy)) = &request.policy else { return Ok(false) };
    let lacks = policy.steering_kinds() & !ours.config()?.map_or(0, |config| config.acts);
    Ok(lacks != 0 || followed::differs(ours, policy, request.plane)?)
}

/// How what is attached differs from what is asked for, beyond policy and mode.
fn difference(request: &AttachRequest, ours: &Attachment, obtained: Option<Plane>) -> Option<String> {
    let Some(meta) = &ours.meta else { return Some("by another version of wirewised".to_string()) };
    if meta.bundle.digest != request.bundle.digest {
        let Meta { bundle, .. } = meta;
        return Some(format!(
            "with another bundle ({}, {}): `wirewised swap` replaces it and keeps its flows",
            bundle.name,
            &bundle.digest[..12]
        ));
    }
    if let Some(obtained) = obtained.filter(|obtained| *obtained != request.plane) {
        return Some(format!("as {obtained}"));
    }
    if request.outgoing && ours.outgoing.is_none() && !ours.awaits_outgoing() {
        return Some("to judge incoming packets only".to_string());
    }
    let table_size = request.table_size.filter(|size| *size != meta.table_size);
    table_size.map(|_| format!("with flow tables of {}", meta.flow.sharing.entries(meta.table_size)))
}
