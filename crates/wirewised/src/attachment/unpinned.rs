// SPDX-License-Identifier: Apache-2.0
//! Programs that look like this agent's, on interfaces of this network namespace, but whose pins are not seen: they were attached under
//! another root, or in a BPF file system that is not mounted here, and judge packets all the same.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::attachment::Attachment;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::rtnetlink;
use crate::kernel::objects;
use crate::plane::{self, Plane};

/// Begins the names of this agent's programs that judge packets, and of none that only hands them on.
const OURS: &str = "ww_";

#[derive(Debug, Serialize)]
pub struct Unpinned {
    pub interface: String,
    #[serde(skip)]
    index: u32,
    pub program_id: u32,
    /// Null: this process may not ask (CAP_SYS_ADMIN), so it may be somebody else's.
    pub name: Option<String>,
    pub plane: Plane,
}

/// known : what has pins.
pub fn find(known: &[Attachment]) -> Result<Vec<Unpinned>> {
    let links = known
        .iter()
        .flat_map(|it| [it.link.as_ref().map(|(_, info)| info), it.outgoing.as_ref(), it.companion.as_ref()]);
    let known: Vec<_> = links.flatten().map(|info| info.program_id).collect();
    let links = rtnetlink::links()
        .map_err(|error| Error::other(format!("cannot list this namespace's interfaces: {error}")))?;
    let mut found = Vec::new();
    for link in links {
        // Interfaces come and go.
        let Ok(attached) = plane::attached(link.index) else { continue };
        for attached in attached.into_iter().filter(|it| !known.contains(&it.program_id)) {
            let program = objects::program_by_id(attached.program_id);
            let name =
                program.and_then(|program| objects::program_info(program.as_fd())).map(|info| info.name).ok();
            if name.as_ref().is_none_or(|name| name.starts_with(OURS)) {
                found.push(Unpinned {
                    interface: link.name.clone(),
                    index: link.index,
                    program_id: attached.program_id,
                    name,
                    plane: attached.plane,
                });
            }
        }
    }
    Ok(found)
}

impl Unpinned {
    pub fn is_on(&self, interface: &str) -> bool {
        netdev::index(interface) == Ok(self.index)
    }
}
