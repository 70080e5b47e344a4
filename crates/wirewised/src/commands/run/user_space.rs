// SPDX-License-Identifier: Apache-2.0
//! What `run` does where this process carries the packets itself.

use crate::abi::Mode;
use crate::attachment::Attachment;
use crate::attachment::detach::detach;
use crate::attachment::pins::Root;
use crate::attachment::plan::AttachRequest;
use crate::carrying::{self, Carrier, End};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::plane::{Carried, Copying, Drops, Footprint, Plane};
use crate::running::stop::Stop;

#[derive(Debug, clap::Args)]
pub struct UserSpaceArgs {
    /// With a plane in user space: send what passes on to this interface, and what comes in there back to the first
    #[arg(long, value_name = "NAME")]
    to: Option<String>,

    /// With a plane in user space: threads that carry packets [default: one a CPU, or a queue]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,

    /// With --plane af-xdp: whether the driver puts packets into this process' memory itself [default: where it can]
    #[arg(long, value_enum, value_name = "HOW")]
    copying: Option<Copying>,

    /// With --plane af-xdp: poll the driver for so many microseconds instead of waiting for interrupts
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    busy_poll: Option<u32>,

    /// With --plane dpdk: DPDK's driver for the interface [default: net_af_packet, which gets copies]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
}

impl UserSpaceArgs {
    /// What only planes in user space take, and what they cannot do.
    pub fn check(&self, request: &AttachRequest) -> Result<()> {
        let plane = request.plane;
        let forwards = plane.carried().is_some() && plane.abilities().drops == Drops::Forwarding;
        let takes = plane.carried().map_or(&[][..], |carried| carried.options());
        let given = [
            ("--to", self.to.is_some()),
            ("--workers", self.workers.is_some()),
            ("--copying", self.copying.is_some()),
            ("--busy-poll", self.busy_poll.is_some()),
            ("--driver", self.driver.is_some()),
        ];
        if let Some((option, _)) = given.into_iter().find(|(option, given)| *given && !takes.contains(option))
        {
            let planes = Plane::all()
                .iter()
                .filter(|it| it.carried().is_some_and(|it| it.options().contains(&option)));
            let planes: Vec<_> = planes.map(|it| it.name()).collect();
            let others = if planes.is_empty() {
                "dpdk, without which this agent was built".into()
            } else {
                planes.join(", ")
            };
            return Err(Error::input(format!("{option} is not for --plane {plane}, but for {others}")));
        }
        let current = Attachment::find(&request.root, Some(&request.interface)).ok();
        let carrier = current.and_then(|current| current.carrier()).filter(|carrier| carrier.is_alive);
        if let Some(carrier) = &carrier
            && (self.to.is_some() && self.to != carrier.to || self.workers.is_some())
        {
            return Err(Error::input(format!(
                "{}: process {} carries its packets already, with its own --to and --workers; `wirewised detach --interface {}` ends it",
                request.interface, carrier.process, request.interface
            )));
        }
        let to = self.to.as_ref().or(carrier.as_ref().and_then(|carrier| carrier.to.as_ref()));
        if forwards && to.is_none() && request.mode == Some(Mode::Enforce) {
            return Err(Error::input(format!(
                "--mode enforce with --plane {plane}: it sees copies of packets, so it can drop none of them; give a second interface \
                 with `--to NAME`, between which and the first it is the only way, or take a plane in the kernel"
            )));
        }
        if self.to.as_deref().is_some_and(|to| netdev::primary_name(to) == request.interface) {
            return Err(Error::input(format!("--to {}: it is the interface itself", request.interface)));
        }
        self.to.as_deref().map_or(Ok(()), |to| netdev::index(to).map(drop))
    }

    fn options(&self) -> carrying::Options {
        carrying::Options {
            to: self.to.clone(),
            workers: self.workers,
            copying: self.copying.unwrap_or_default(),
            busy_poll_us: self.busy_poll,
            driver: self.driver.clone(),
        }
    }

    /// What carrying packets will take of memory; `None`: the kernel does it.
    pub fn footprint(&self, request: &AttachRequest, most_workers: u32) -> Result<Option<Footprint>> {
        let footprint = |carried: &dyn Carried| {
            carried.footprint(&self.options().wanted(&request.interface, most_workers))
        };
        request.plane.carried().map(footprint).transpose()
    }
}

/// Begins to carry packets, if the attachment is one whose packets this process carries.
pub fn start(
    args: &UserSpaceArgs,
    root: &Root,
    attachment: &Attachment,
    plane: Plane,
    stop: &Stop,
) -> Result<Option<Carrier>> {
    let Some(note) = carrying::ours(attachment)? else { return Ok(None) };
    let started = Carrier::start(attachment, &note, plane, &args.options(), stop);
    if started.is_err() {
        note.ended();
        detach(root, &attachment.interface, false)?;
    }
    started.map(Some)
}

/// Waits until no more packets are carried, and leaves nothing behind.
pub fn end(carrier: Carrier, root: &Root, interface: &str) -> Result<()> {
    let end = carrier.join();
    // Who detached it removes the pins.
    if end != Ok(End::Detached) {
        detach(root, interface, false)?;
    }
    end.map(drop)
}
