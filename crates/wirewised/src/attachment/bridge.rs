// SPDX-License-Identifier: Apache-2.0
//! A program at TC that judges packets while one takes the place of another at XDP, where the kernel cannot exchange them in one step: from
//! native to generic, or where somebody else's program is in the way. It is the same bundle under the same policy, with flow tables of its
//! own. Whoever dies in between leaves it attached, as `tc-ingress`, and the next command goes on from there.

use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::attachment::plan::AttachRequest;
use crate::attachment::ready::{prepare, stage};
use crate::attachment::staging;
use crate::attachment::succession::Places;
use crate::error::{Error, Kind, Result};
use crate::kernel::objects;
use crate::kernel::pinned;
use crate::plane::{Plane, Port, link};
use crate::reading::meta::Meta;

const PLANE: Plane = Plane::TC_INGRESS;

/// Ends with this value.
pub struct Bridge(PathBuf);

/// `None`: a plane in user space ends with its process anyway, and a kernel without TC leaves a moment without a program.
pub fn bridge(request: &AttachRequest, places: &Places, port: Port) -> Result<Option<Bridge>> {
    if request.plane.is_in_user_space() {
        return Ok(None);
    }
    attach(request, places, port).map(Some).or_else(|error| {
        if error.kind() != Kind::Missing {
            return Err(error);
        }
        tracing::warn!("{error}; so packets meet no program for a moment");
        Ok(None)
    })
}

fn attach(request: &AttachRequest, places: &Places, port: Port) -> Result<Bridge> {
    let policy = request.policy.as_ref();
    let bridging = AttachRequest {
        interface: request.interface.clone(),
        plane: PLANE,
        joining: request.joining,
        outgoing: false,
        mode: request.mode,
        bundle: request.bundle.clone(),
        bundle_file: request.bundle_file.clone(),
        // What only XDP can do waits for it.
        policy: policy.map(|(file, policy)| (file.clone(), policy.limited_to(PLANE.abilities().steers))),
        replace: request.replace,
        table_size: request.table_size,
        offloads_off: false,
        root: request.root.clone(),
    };
    let prepared = prepare(&bridging)?;
    let loaded = staging::load(prepared.opened, &request.bundle, false, None)?;
    let staged = stage(&bridging, &loaded, &prepared.config, &places.bridge)?;
    if let Some(meta) = Meta::open(&places.bridge.join(pinned::META)) {
        staging::remember(&places.bridge, &Meta { until: Some(request.plane), ..meta })?;
    }
    let link = places.bridge.join(pinned::LINK);
    PLANE
        .attach_pinned(loaded.entry()?.as_fd(), port, request.joining, &link)
        .map_err(|error| PLANE.attach_error(&request.interface, &error))?;
    staged.keep();
    Ok(Bridge(places.bridge.clone()))
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let end = || {
            let link = objects::open_pin(&self.0.join(pinned::LINK))?;
            link::detach(link.as_fd())?;
            pinned::remove(&self.0)
        };
        if let Err(error) = end().map_err(|error: std::io::Error| Error::other(error)) {
            tracing::warn!("{}: {error}; the next command removes it", self.0.display());
        }
    }
}
