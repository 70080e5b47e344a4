// SPDX-License-Identifier: Apache-2.0
//! The loop: read and share out a block while the workers run the one before, then write what came of that.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use bytemuck::Zeroable;
use wirewise_capture::{LinkType, Merge, Packet};

use super::shard::Shards;
use super::worker::{FlowRecord, Item, Share, Worker};
use super::{FlowRows, Names, PacketRows};
use crate::abi::{self, Fate};
use crate::error::{Error, Result};
use crate::files::place::cannot_write;
use crate::files::whole_file::commit_all;
use crate::offline::capture_out::CaptureOut;
use crate::offline::engine_run::Prepared;
use crate::packets::outer::Outer;
use crate::policy::Policy;
use crate::reading::counters;
use crate::rows::TableFile;

/// Packets of a block, and bytes of their frames.
const BLOCK_PACKETS: usize = 4096;
const BLOCK_BYTES: usize = 4 << 20;

/// What a replay writes.
#[derive(Default)]
pub struct Outputs {
    pub passed: Option<CaptureOut>,
    pub dropped: Option<CaptureOut>,
    /// To another interface, or back.
    pub elsewhere: Option<CaptureOut>,
    pub by_place: Option<Elsewhere>,
    /// The table and the batch that fills.
    pub packets: Option<(TableFile<PacketRows>, PacketRows)>,
    pub flows: Option<(TableFile<FlowRows>, FlowRows)>,
}

/// A capture for each place that packets go to.
pub struct Elsewhere {
    /// By class id.
    of_class: Vec<Option<usize>>,
    captures: Vec<CaptureOut>,
}

impl Elsewhere {
    /// The captures are made in a folder, each named after its place.
    pub fn create(folder: &Path, policy: &Policy) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let (mut names, mut of_class) = (Vec::new(), vec![None; policy.classes.len()]);
        for (class, steering) in policy.steering() {
            let Some(name) = steering.destination() else { continue };
            let known = names.iter().position(|known| *known == name);
            let place = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            if let Some(id) = policy.classes.iter().position(|known| known == class) {
                of_class[id] = Some(place);
            }
        }
        let create = |name: &String| CaptureOut::create(&folder.join(format!("{name}.pcapng")));
        Ok(Self { of_class, captures: names.iter().map(create).collect::<Result<_>>()? })
    }

    fn capture(&mut self, class: u32) -> Option<&mut CaptureOut> {
        let place = self.of_class.get(class as usize).copied().flatten()?;
        self.captures.get_mut(place)
    }
}

/// What is kept of a packet, beside the share its frame is in, to write it to a capture.
struct Written {
    worker: usize,
    link: LinkType,
    wire_length: u32,
    /// Its own bytes in `Block::originals`, where the frame was made up.
    original: Option<(usize, usize)>,
}

#[derive(Default)]
struct Block {
    shares: Vec<Share>,
    /// In the order of the captures.
    order: Vec<Written>,
    originals: Vec<u8>,
}

#[derive(Debug, Default, Clone)]
pub struct Totals {
    pub packets: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub passed: u64,
    pub dropped: u64,
    pub elsewhere: u64,
    pub skipped: u64,
    /// Index of each open capture among those that were named.
    pub sources: Vec<usize>,
    pub warnings: Vec<String>,
}

type Returned = Result<Share>;
type Ended = Result<(abi::Stats, Vec<FlowRecord>)>;

struct Hand {
    shares: SyncSender<Share>,
    returned: Receiver<Returned>,
    thread: JoinHandle<Ended>,
}

pub struct Replay<'a> {
    pub prepared: &'a Prepared,
    pub names: Arc<Names>,
    pub workers: usize,
    /// `None`: one worker has all packets.
    pub shards: Option<Shards>,
    pub keep_going: bool,
    pub outputs: Outputs,
    pub totals: Totals,
}

impl Replay<'_> {
    /// Runs all packets. An error of a capture is the second of the pair: what came before it is done and written.
    ///
    /// begin : writes policy and mode into a worker's engine, given the time of the first packet.
    pub fn run(
        &mut self,
        captures: &mut Merge,
        begin: impl Fn(&mut crate::offline::engine_run::Worker, u64) -> Result<()>,
        mut show: impl FnMut(&Totals, (u64, Option<u64>)),
    ) -> Result<(abi::Stats, Option<Error>)> {
        let mut next = Block::default();
        let mut more = self.fill(&mut next, captures);
        let hands = self.start(|engine| begin(engine, self.totals.first_ns))?;
        let mut running: Option<Block> = None;
        let mut spare = Block::default();
        loop {
            let last = next.order.is_empty();
            if !last {
                send(&hands, &mut next);
            }
            let done = running.take();
            if !last {
                running = Some(std::mem::take(&mut next));
            }
            if let Some(mut block) = done {
                collect(&hands, &mut block)?;
                self.write(&block)?;
                spare = block;
            }
            if last {
                break;
            }
            next = std::mem::take(&mut spare);
            more = match more {
                Ok(true) => self.fill(&mut next, captures),
                ended => {
                    next.clear();
                    ended
                }
            };
            show(&self.totals, captures.progress());
        }
        let stats = self.finish(hands)?;
        Ok((stats, more.err()))
    }

    /// Fills a block. False: the captures have ended.
    fn fill(&mut self, block: &mut Block, captures: &mut Merge) -> Result<bool> {
        block.clear();
        block.shares.resize_with(self.workers, Share::default);
        let Outputs { passed, dropped, elsewhere, by_place, .. } = &self.outputs;
        let keep_originals =
            by_place.is_some() || [passed, dropped, elsewhere].into_iter().any(Option::is_some);
        let mut bytes = 0;
        while block.order.len() < BLOCK_PACKETS && bytes < BLOCK_BYTES {
            match captures.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) if self.keep_going => {
                    if error.is_about_one_packet() {
                        self.totals.skipped += 1;
                    } else {
                        self.totals.warnings.push(error.to_string());
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let packet = captures.packet();
            let outer = Outer::parse(packet.frame);
            let worker = self.shards.as_ref().map_or(0, |shards| shards.worker(outer.as_ref(), self.workers));
            let Some(share) = block.shares.get_mut(worker) else { continue };
            let start = share.bytes.len();
            share.bytes.extend_from_slice(packet.frame);
            bytes += packet.frame.len() + packet.original.len();
            share.packets.push(Item {
                start,
                end: share.bytes.len(),
                time_ns: packet.time_ns,
                capture: self.totals.sources.get(captures.source()).map_or(0, |index| *index as u32),
                number: packet.number,
                flow: outer.map(|outer| outer.conversation()),
            });
            let original = (keep_originals && packet.link != LinkType::ETHERNET).then(|| {
                let start = block.originals.len();
                block.originals.extend_from_slice(packet.original);
                (start, block.originals.len())
            });
            block.order.push(Written {
                worker,
                link: packet.link,
                wire_length: packet.wire_length,
                original,
            });
            if self.totals.packets == 0 {
                self.totals.first_ns = packet.time_ns;
            }
            self.totals.last_ns = self.totals.last_ns.max(packet.time_ns);
            self.totals.packets += 1;
        }
        Ok(true)
    }

    fn start(
        &self,
        begin: impl Fn(&mut crate::offline::engine_run::Worker) -> Result<()>,
    ) -> Result<Vec<Hand>> {
        let config = self.prepared.config();
        let entries = 2 * abi::WAYS as usize * (config.bucket_mask as usize + 1);
        let flows = self.outputs.flows.is_some().then_some((config.idle_timeout_ns, entries));
        let hand = |number: usize| {
            let mut engine = self.prepared.worker()?;
            begin(&mut engine)?;
            let mut worker = Worker::new(engine, flows);
            let (shares, work) = sync_channel::<Share>(2);
            let (give_back, returned) = sync_channel::<Returned>(2);
            let thread = thread::Builder::new().name(format!("worker {number}")).spawn(move || {
                for mut share in work {
                    let result = worker.run(&mut share).map(|()| share);
                    if give_back.send(result).is_err() {
                        break;
                    }
                }
                let mut ended = Vec::new();
                worker.finish(&mut ended).map(|stats| (stats, ended))
            });
            let thread = thread.map_err(|error| Error::other(format!("cannot start a thread: {error}")))?;
            Ok(Hand { shares, returned, thread })
        };
        (0..self.workers).map(hand).collect()
    }

    /// Writes what came of a block's packets, in their order.
    fn write(&mut self, block: &Block) -> Result<()> {
        let Self { outputs, totals, names, .. } = self;
        let mut at = vec![0; block.shares.len()];
        for packet in &block.order {
            let share = &block.shares[packet.worker];
            let index = at[packet.worker];
            at[packet.worker] += 1;
            let (Some(item), Some(outcome)) = (share.packets.get(index), share.results.get(index)) else {
                continue;
            };
            if let Some((table, rows)) = &mut outputs.packets {
                rows.push(item, outcome);
                table.write_full(rows, || PacketRows::new(Arc::clone(names)))?;
            }
            let went = matches!(outcome.fate, Fate::Bounced | Fate::Redirected);
            let class = outcome.verdict.filter(|_| went).map(|(class, ..)| class);
            let place = class.and_then(|class| outputs.by_place.as_mut()?.capture(class));
            let (count, capture) = match outcome.fate {
                Fate::Passed => (&mut totals.passed, &mut outputs.passed),
                Fate::Dropped => (&mut totals.dropped, &mut outputs.dropped),
                Fate::Bounced | Fate::Redirected => (&mut totals.elsewhere, &mut outputs.elsewhere),
            };
            *count += 1;
            for capture in [capture.as_mut(), place].into_iter().flatten() {
                let original = match packet.original {
                    Some((start, end)) => block.originals.get(start..end),
                    None => share.bytes.get(item.start..item.end),
                };
                capture.write(&Packet {
                    number: item.number,
                    time_ns: item.time_ns,
                    wire_length: packet.wire_length,
                    link: packet.link,
                    original: original.unwrap_or_default(),
                    frame: &[],
                })?;
            }
        }
        block.shares.iter().try_for_each(|share| write_flows(&mut outputs.flows, names, &share.ended))
    }

    fn finish(&mut self, hands: Vec<Hand>) -> Result<abi::Stats> {
        let mut sum = abi::Stats::zeroed();
        for Hand { shares, returned, thread } in hands {
            drop((shares, returned));
            let ended = thread.join().unwrap_or_else(|_| Err(Error::other("a worker stopped")));
            let (own, flows) = ended?;
            counters::add(&mut sum, &own);
            write_flows(&mut self.outputs.flows, &self.names, &flows)?;
        }
        counters::count_classified(&mut sum);
        let outputs = std::mem::take(&mut self.outputs);
        let captures = [outputs.passed, outputs.dropped, outputs.elsewhere].into_iter().flatten();
        let by_place = outputs.by_place.map_or_else(Vec::new, |by_place| by_place.captures);
        let mut files = captures.chain(by_place).map(CaptureOut::finish).collect::<Result<Vec<_>>>()?;
        let names = &self.names;
        if let Some((table, rows)) = outputs.packets {
            files.push(table.finish(rows, || PacketRows::new(Arc::clone(names)))?);
        }
        if let Some((table, rows)) = outputs.flows {
            files.push(table.finish(rows, || FlowRows::new(Arc::clone(names)))?);
        }
        commit_all(files)?;
        Ok(sum)
    }
}

fn write_flows(
    flows: &mut Option<(TableFile<FlowRows>, FlowRows)>,
    names: &Arc<Names>,
    ended: &[FlowRecord],
) -> Result<()> {
    let Some((table, rows)) = flows else { return Ok(()) };
    for record in ended {
        rows.push(record);
        table.write_full(rows, || FlowRows::new(Arc::clone(names)))?;
    }
    Ok(())
}

impl Block {
    fn clear(&mut self) {
        self.shares.iter_mut().for_each(Share::clear);
        self.order.clear();
        self.originals.clear();
    }
}

fn send(hands: &[Hand], block: &mut Block) {
    for (hand, share) in hands.iter().zip(&mut block.shares) {
        // A worker that is gone has left its error in the other channel.
        let _ = hand.shares.send(std::mem::take(share));
    }
}

fn collect(hands: &[Hand], block: &mut Block) -> Result<()> {
    for (hand, share) in hands.iter().zip(&mut block.shares) {
        *share = hand.returned.recv().map_err(|_| Error::other("a worker stopped"))??;
    }
    Ok(())
}
