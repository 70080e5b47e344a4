// SPDX-License-Identifier: Apache-2.0
//! `wirewised receive`.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapCore, MapFlags};
use serde_json::{Value, json};
use wirewise_capture::{LinkType, Packet};

use crate::abi;
use crate::abi::maps::SOCKETS;
use crate::attachment::args::AttachmentArgs;
use crate::error::{Error, Result};
use crate::files::place::OutputPath;
use crate::offline::capture_out::CaptureOut;
use crate::plane::user_space::Receiver;
use crate::stop::{RESPONSE, Stop};
use crate::text::output::{check, line};
use crate::text::progress::Progress;
use crate::text::units::{Nanoseconds, format_count};

const EXAMPLES: &str = "\
Examples:
  wirewised receive --queue 0 --write attacks.pcapng     until Ctrl-C
  wirewised receive --queue 0 --count 1000 --for 10s --write attacks.pcapng
  wirewised receive --queue 0 --json                     a line for each packet, with its verdict if the policy has `metadata: true`
The policy sends a class here by `redirect: {socket: 0}`; until somebody receives, its packets pass. A program of yours can
receive them instead: it opens an AF_XDP socket of the queue and puts it into the pinned map `ww_sockets`.";

/// Receive the packets that a policy redirects to a socket: write them to a capture, or print what is known of each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// The receive queue they come by
    #[arg(long, value_name = "N", default_value_t = 0)]
    queue: u32,

    /// The capture; its name says the format (.pcap or .pcapng). It appears when it is whole
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath, required_unless_present = "json")]
    write: Option<OutputPath>,

    /// End after so many packets
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after so long, such as 10s
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// Print a JSON object per line: one for each packet, then the totals
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let stop = Stop::on_signals()?;
    let running = args.which.find()?;
    running.require_here()?;
    let interface = &running.interface;
    let Some(sockets) = running.optional_map(SOCKETS)? else {
        return Err(Error::input(format!(
            "{interface}: the policy redirects no class to a socket: `{{redirect: {{socket: {}}}}}`",
            args.queue
        )));
    };
    let mut receiver = Receiver::open(interface, args.queue)?;
    let classes = running.meta.as_ref().map_or(&[][..], |meta| &meta.classes);
    let mut capture = args.write.as_ref().map(|file| CaptureOut::create(file)).transpose()?;
    let socket = receiver.as_raw_fd();
    // Where another socket is, it would get nothing any more: that one stays.
    let entered = sockets.update(&args.queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::NO_EXIST);
    entered.map_err(|error| match error.kind() {
        libbpf_rs::ErrorKind::AlreadyExists => {
            Error::input(format!("{interface}: another socket receives the packets of queue {}", args.queue))
        }
        _ => Error::other(format!("{SOCKETS}: {error}")),
    })?;
    let end = args.time.map(|time| Instant::now() + Duration::from_nanos(time.0));
    let wanted = args.count.unwrap_or(u64::MAX);
    let (mut packets, mut bytes) = (0, 0);
    let mut progress = Progress::new(!args.json);
    // The kernel takes the socket out of the map when it is closed, whatever ends this process.
    while packets < wanted && !stop.asked() && end.is_none_or(|end| Instant::now() < end) {
        receiver.burst(RESPONSE, |frame, metadata| {
            if packets < wanted {
                packets += 1;
                bytes += frame.len() as u64;
                let packet = received(packets, frame);
                capture.as_mut().map_or(Ok(()), |capture| capture.write(&packet))?;
                if args.json {
                    let verdict = metadata.map(|metadata| described(&metadata, classes));
                    line(format_args!(
                        "{}",
                        json!({"packet": packets, "time_ns": packet.time_ns, "length": frame.len(), "metadata": verdict})
                    ));
                    return check();
                }
            }
            Ok(())
        })?;
        progress.show(|| format!("{} packets", format_count(packets as f64)));
    }
    progress.clear();
    let lost = receiver.lost();
    capture.map_or(Ok(()), |capture| capture.finish()?.commit())?;
    if args.json {
        line(format_args!(
            "{}",
            json!({"packets": packets, "bytes": bytes, "lost": lost, "file": args.write})
        ));
        return check();
    }
    let file = args.write.as_ref().map(|file| format!(", to {}", file.display())).unwrap_or_default();
    line(format_args!("{packets} packets, {bytes} bytes{file}; {lost} lost"));
    Ok(())
}

/// The verdict in front of a packet. classes : their names, by number.
fn described(metadata: &abi::Metadata, classes: &[String]) -> Value {
    let has_score = metadata.flags & abi::METADATA_SCORE as u8 != 0;
    json!({
        "class": classes.get(usize::from(metadata.class_id)),
        "class_id": metadata.class_id,
        "score": has_score.then_some(metadata.score),
        "flow_hash": metadata.flow_hash,
        "model": format!("{:08x}", metadata.model),
        "time_ns": metadata.time_ns,
    })
}

fn received(number: u64, frame: &[u8]) -> Packet<'_> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Packet {
        number,
        time_ns: now.as_nanos() as u64,
        wire_length: frame.len() as u32,
        link: LinkType::ETHERNET,
        original: frame,
        frame,
    }
}
