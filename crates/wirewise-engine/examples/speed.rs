// SPDX-License-Identifier: Apache-2.0
//! Measures how long an object takes for a packet in the engine: one JSON object on standard output.
//!
//! ```text
//! speed OBJECT [--program NAME] [--flows N] [--bytes N] [--rounds N] [--packets N] [--caged] [--verified] [--clang] [--clock live|batch|manual]
//!       [--metadata] [--entries MAP=N] [--data MAP:OFFSET=HEX] [--write MAP:OFFSET=HEX] [--tails MAP=PREFIX]
//! ```
//!
//! The frames are UDP over IPv4, one for each flow, in an order without a pattern. `--metadata` puts time, microseconds apart, and length
//! (`struct ww_captured`) in front of each. `--data` changes the initial bytes of global data, `--write` those of an array in the engine.
//! `--verified` loads the object into the kernel first (needs root); otherwise it is trusted to be what the kernel accepts, as this is
//! a measurement of our own objects.

use std::process::ExitCode;
use std::time::Instant;

use wirewise_engine::{Backend, ClockSource, Engine, Linked, Options, PacketSpan};

/// Packets of a batch, at least.
const LEAST_BATCH: usize = 256;

type Failure = Box<dyn std::error::Error>;

struct Arguments {
    object: String,
    program: String,
    flows: usize,
    bytes: usize,
    rounds: usize,
    packets: usize,
    caged: bool,
    verified: bool,
    backend: Backend,
    clock: ClockSource,
    metadata: bool,
    entries: Vec<(String, u32)>,
    data: Vec<(String, usize, Vec<u8>)>,
    write: Vec<(String, usize, Vec<u8>)>,
    tails: Option<(String, String)>,
}

fn hex(text: &str) -> Result<Vec<u8>, Failure> {
    let digits: Vec<u32> =
        text.chars().map(|digit| digit.to_digit(16).ok_or("not hexadecimal")).collect::<Result<_, _>>()?;
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect())
}

fn place(text: &str) -> Result<(String, usize, Vec<u8>), Failure> {
    let (place, bytes) = text.split_once('=').ok_or("MAP:OFFSET=HEX")?;
    let (map, offset) = place.rsplit_once(':').ok_or("MAP:OFFSET=HEX")?;
    Ok((map.to_owned(), offset.parse()?, hex(bytes)?))
}

fn arguments() -> Result<Arguments, Failure> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        object: given.next().ok_or("usage: speed OBJECT [options]; see the source")?,
        program: "ww_main".into(),
        flows: 10_000,
        bytes: 64,
        rounds: 9,
        packets: 1_000_000,
        caged: false,
        verified: false,
        backend: Backend::Cranelift,
        clock: ClockSource::Live,
        metadata: false,
        entries: Vec::new(),
        data: Vec::new(),
        write: Vec::new(),
        tails: None,
    };
    while let Some(option) = given.next() {
        let mut value = || given.next().ok_or(format!("{option} needs a value"));
        match option.as_str() {
            "--program" => arguments.program = value()?,
            "--flows" => arguments.flows = value()?.parse::<usize>()?.max(1),
            "--bytes" => arguments.bytes = value()?.parse::<usize>()?.clamp(60, 9000),
            "--rounds" => arguments.rounds = value()?.parse::<usize>()?.max(1),
            "--packets" => arguments.packets = value()?.parse::<usize>()?.max(1),
            "--caged" => arguments.caged = true,
            "--verified" => arguments.verified = true,
            #[cfg(feature = "aot")]
            "--clang" => arguments.backend = Backend::Clang,
            "--clock" => {
                arguments.clock = match value()?.as_str() {
                    "live" => ClockSource::Live,
                    "batch" => ClockSource::PerBatch,
                    "manual" => ClockSource::Manual,
                    other => return Err(format!("no clock {other}").into()),
                }
            }
            "--metadata" => arguments.metadata = true,
            "--entries" => {
                let text = value()?;
                let (map, entries) = text.split_once('=').ok_or("MAP=N")?;
                arguments.entries.push((map.to_owned(), entries.parse()?));
            }
            "--data" => arguments.data.push(place(&value()?)?),
            "--write" => arguments.write.push(place(&value()?)?),
            "--tails" => {
                let text = value()?;
                let (map, prefix) = text.split_once('=').ok_or("MAP=PREFIX")?;
                arguments.tails = Some((map.to_owned(), prefix.to_owned()));
            }
            other => return Err(format!("no option {other}").into()),
        }
    }
    Ok(arguments)
}

fn link(arguments: &Arguments) -> Result<Linked, Failure> {
    let bytes = std::fs::read(&arguments.object)?;
    let mut linked = Linked::from_elf(&bytes)?;
    for (map, entries) in &arguments.entries {
        linked.set_max_entries(map, *entries)?;
    }
    for (map, offset, bytes) in &arguments.data {
        let initial = linked.map(map).and_then(|map| map.initial()).ok_or(format!("no data {map}"))?;
        let mut initial = initial.to_vec();
        initial.get_mut(*offset..offset + bytes.len()).ok_or("beyond the data")?.copy_from_slice(bytes);
        linked.set_initial(map, initial)?;
    }
    if !arguments.caged {
        // SAFETY: as the options say, the object is one that the kernel accepts.
        linked = unsafe { linked.assume_verified() };
    }
    #[cfg(feature = "libbpf")]
    if arguments.verified {
        let mut open = libbpf_rs::ObjectBuilder::default().name("speed")?.open_memory(&bytes)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let spec = linked.map(&name).ok_or(format!("no map {name}"))?;
            match spec.initial() {
                Some(initial) => map.set_initial_value(initial)?,
                None if arguments.entries.iter().any(|(known, _)| *known == name) => {
                    map.set_max_entries(spec.max_entries())?
                }
                None => {}
            }
        }
        linked = Linked::from_loaded(&open.load()?)?;
    }
    Ok(linked)
}

/// UDP over IPv4 from an address of the flow's own.
fn frame(flow: u32, bytes: usize) -> Vec<u8> {
    let length = (bytes - 14) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(length.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend((10 << 24 | flow).to_be_bytes());
    frame.extend([192, 168, 0, 1]);
    frame.extend((1024 + (flow % 60_000) as u16).to_be_bytes());
    frame.extend(443u16.to_be_bytes());
    frame.extend((length - 20).to_be_bytes());
    frame.resize(bytes, 0);
    frame
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("speed: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments = arguments()?;
    let linked = link(&arguments)?;
    let options = Options {
        caged: arguments.caged.then_some(true),
        clock: arguments.clock,
        backend: arguments.backend,
        ..Options::default()
    };
    let start = Instant::now();
    let mut engine = Engine::new(&linked, options)?;
    let compile_ms = start.elapsed().as_secs_f64() * 1e3;
    let program = engine.program(&arguments.program).ok_or(format!("no program {}", arguments.program))?;
    for (map, offset, bytes) in &arguments.write {
        let memory =
            engine.map_mut(map).and_then(|map| map.into_bytes_mut()).ok_or(format!("no array {map}"))?;
        memory.get_mut(*offset..offset + bytes.len()).ok_or("beyond the array")?.copy_from_slice(bytes);
    }
    if let Some((map, prefix)) = &arguments.tails {
        let programs: Vec<_> = engine.programs().map(|(name, id)| (name.to_owned(), id)).collect();
        let mut map = engine.map_mut(map).ok_or("no such map")?;
        for (name, id) in programs {
            if let Some(index) = name.strip_prefix(prefix.as_str()).and_then(|index| index.parse().ok()) {
                map.set(index, Some(id))?;
            }
        }
    }
    let (buffer, spans) = packets(&arguments);
    let mut buffer = buffer;
    let mut codes = Vec::new();
    engine.run_xdp_batch(program, &mut buffer, &spans, &mut codes)?;
    let mut rounds = Vec::with_capacity(arguments.rounds);
    for _ in 0..arguments.rounds {
        let repeat = arguments.packets.div_ceil(spans.len());
        let start = Instant::now();
        for _ in 0..repeat {
            codes.clear();
            engine.run_xdp_batch(program, &mut buffer, &spans, &mut codes)?;
        }
        rounds.push(start.elapsed().as_secs_f64() * 1e9 / (repeat * spans.len()) as f64);
    }
    let listed: Vec<String> = rounds.iter().map(|ns| format!("{ns:.2}")).collect();
    rounds.sort_by(f64::total_cmp);
    let median = rounds[rounds.len() / 2];
    let mut counts = std::collections::BTreeMap::new();
    for code in &codes {
        *counts.entry(*code).or_insert(0) += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(code, count)| format!("\"{code}\": {count}")).collect();
    println!(
        "{{\"ns_per_packet\": {median:.2}, \"min_ns\": {:.2}, \"rounds_ns\": [{}], \"packets_per_second\": {:.0}, \
         \"compile_ms\": {compile_ms:.2}, \"caged\": {}, \"flows\": {}, \"frame_bytes\": {}, \"codes\": {{{}}}}}",
        rounds[0],
        listed.join(", "),
        1e9 / median,
        engine.is_caged(),
        arguments.flows,
        arguments.bytes,
        counts.join(", ")
    );
    Ok(())
}

/// All frames in one buffer, and the order in which they come.
fn packets(arguments: &Arguments) -> (Vec<u8>, Vec<PacketSpan>) {
    let metadata = if arguments.metadata { 16 } else { 0 };
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    for flow in 0..arguments.flows {
        let (start, time_ns) = (buffer.len(), 1_000_000_000 + 1000 * flow as u64);
        if arguments.metadata {
            buffer.extend(time_ns.to_le_bytes());
            buffer.extend((arguments.bytes as u64).to_le_bytes());
        }
        buffer.extend(frame(flow as u32, arguments.bytes));
        let length = metadata + arguments.bytes;
        spans.push(PacketSpan { start, metadata, length, time_ns, headroom: 0 });
        // Frames begin at multiples of 64, as in a receive ring.
        buffer.resize(buffer.len().next_multiple_of(64), 0);
    }
    // An odd factor permutes the numbers below a power of two.
    let size = arguments.flows.next_power_of_two();
    let order = (0..size).map(|index| index * 0x9e37_79b1 % size).filter(|index| *index < arguments.flows);
    let order: Vec<PacketSpan> = order.map(|index| spans[index]).collect();
    // A batch of some length, however few the flows.
    let spans = order.iter().copied().cycle().take(order.len().next_multiple_of(LEAST_BATCH)).collect();
    (buffer, spans)
}
