// SPDX-License-Identifier: Apache-2.0
//! What `run` does where this process carries the packets itself.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::abi::Mode;
use crate::attachment::Attachment;
use crate::attachment::detach::detach;
use crate::attachment::pins::Root;
use crate::attachment::plan::AttachRequest;
use crate::attachment::succession::Places;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::plane::user_space::{Carrier, Copying, End, Footprint, Options};
use crate::plane::{Drops, Note, Plane};
use crate::running::Running;
use crate::stop::Stop;
use crate::text::shell::quoted;

#[derive(Debug, clap::Args)]
pub struct UserSpaceArgs {
    /// With a plane in user space: send what passes on to this interface, and what comes in there back to the first (with
    /// --plane dpdk also a device, as with --interface)
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

    /// With --plane dpdk: DPDK's virtual device over the interface [default: net_af_packet, which gets copies]
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
}

impl UserSpaceArgs {
    /// What only some planes take.
    pub fn check_options(&self, plane: Plane) -> Result<()> {
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
        Ok(())
    }

    /// That, and what they cannot do.
    pub fn check(&self, request: &AttachRequest) -> Result<()> {
        let plane = request.plane;
        self.check_options(plane)?;
        let forwards = plane.carried().is_some() && plane.abilities().drops == Drops::Forwarding;
        let current = Attachment::find(&request.root, Some(&request.interface)).ok();
        let carrier = current.and_then(|current| current.carrier()).filter(|carrier| carrier.is_alive);
        if let Some(carrier) = &carrier
            && (self.to.is_some() && self.to != carrier.to || self.workers.is_some())
        {
            return Err(Error::input(format!(
                "{}: process {} carries its packets already, with its own --to and --workers; `wirewised detach --interface {}` ends it",
                request.interface,
                carrier.process,
                quoted(&request.interface)
            )));
        }
        let to = self.to.as_ref().or(carrier.as_ref().and_then(|carrier| carrier.to.as_ref()));
        if forwards && to.is_none() && request.mode == Some(Mode::Enforce) {
            if plane.names_device(&request.interface) {
                return Err(Error::input(format!(
                    "--mode enforce with --plane {plane}: what comes in by {} goes nowhere, so there is nothing to keep from anybody; \
                     give a second device or interface with `--to NAME`",
                    request.interface
                )));
            }
            return Err(Error::input(format!(
                "--mode enforce with --plane {plane}: it sees copies of packets, so it can drop none of them; give a second interface \
                 with `--to NAME`, between which and the first it is the only way, or take a plane in the kernel"
            )));
        }
        self.check_to(plane, &request.interface)
    }

    /// interface : the judged one.
    pub fn check_to(&self, plane: Plane, interface: &str) -> Result<()> {
        let Some(to) = self.to.as_deref() else { return Ok(()) };
        let name = match plane.names_device(to) {
            true => plane.parts(to).0.to_string(),
            false => netdev::primary_name(to),
        };
        if name == interface {
            return Err(Error::input(format!("--to {name}: it is the interface itself")));
        }
        plane.port(to).map(drop)
    }

    /// arguments : of the device, if it is none of the kernel's.
    pub fn options(&self, arguments: Option<&str>) -> Options {
        Options {
            arguments: arguments.map(str::to_string),
            to: self.to.clone(),
            workers: self.workers,
            copying: self.copying.unwrap_or_default(),
            busy_poll_us: self.busy_poll,
            driver: self.driver.clone(),
        }
    }
}

/// What carrying packets will take of memory; `None`: the kernel does it.
pub fn footprint(options: &Options, request: &AttachRequest, most_workers: u32) -> Result<Option<Footprint>> {
    let wanted = options.wanted(&request.interface, most_workers);
    request.plane.carried().map(|carried| carried.footprint(&wanted)).transpose()
}

/// Begins to carry packets, if the attachment is one whose packets this process carries.
pub fn start(
    options: &Options,
    root: &Root,
    attachment: &Attachment,
    plane: Plane,
    stop: &Stop,
) -> Result<Option<Carrier>> {
    let Some(note) = ours(attachment)? else { return Ok(None) };
    let places = Places::of(&attachment.directory);
    let started = attachment.shards().and_then(|shards| {
        let wanted = options.wanted(&attachment.interface, shards);
        Carrier::start(&note, Box::new(move |program| places.of_program(program)), plane, &wanted, stop)
    });
    if started.is_err() {
        note.ended();
        detach(root, &attachment.interface, false)?;
    }
    started.map(Some)
}

/// The note of an attachment whose packets this process is to carry; `None`: somebody else's, or the kernel's.
fn ours(attachment: &Attachment) -> Result<Option<Arc<Note>>> {
    let Some((link, _)) = &attachment.link else { return Ok(None) };
    let note = Note::open(link.as_fd())
        .map_err(|error| Error::other(format!("{}: cannot read its link: {error}", attachment.interface)))?;
    Ok(note.filter(|note| note.carrier().process == std::process::id()).map(Arc::new))
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
