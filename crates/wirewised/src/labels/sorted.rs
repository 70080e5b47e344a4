// SPDX-License-Identifier: Apache-2.0
//! A list of flows sorted by time, as `wirewise datasets` writes it from the labels of published data sets (docs/datasets.md). However
//! many flows it has, only those whose time is near the packet's are in memory: it is read along with the capture.
//!
//! All numbers are little-endian. Header (64 bytes): "WWFLOWS1", number of flows, longest duration in ns, length of the names in
//! bytes; the rest is zero. Then a record of 64 bytes a flow (`Record`), sorted by `from`; then the names of the labels, a line each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use hashbrown::HashMap;

use super::{LabelId, Names, Seen};
use crate::error::{Error, Result};
use crate::files::{self, Input};
use crate::packets::outer::{Conversation, Outer};

const MAGIC: [u8; 8] = *b"WWFLOWS1";
const HEADER: u64 = 64;
/// Records read at once.
const BLOCK: usize = 4096;
const MAX_NAMES: u64 = 1 << 20;
/// Two bits of memory for each: a sparse file may claim any number.
const MAX_FLOWS: u64 = 1 << 30;
/// Packets may come this much later than one with a higher time without reading the list again from there.
const DISORDER_NS: u64 = 2_000_000_000;
/// A capture that goes back in time more often than this would never be done.
const MAX_REWINDS: u64 = 1000;

/// A flow as in the file. Addresses are in network byte order; IPv4 in the first four bytes, the rest zero.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Record {
    /// ns since 1970; `until` itself is outside.
    from: u64,
    until: u64,
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    destination_port: u16,
    /// Number of its name, from 0.
    label: u16,
    version: u8,
    /// 0: any protocol without ports.
    protocol: u8,
    _rest: [u8; 8],
}

impl Record {
    fn conversation(&self) -> Conversation {
        Outer {
            vlans: 0,
            version: self.version,
            source: u128::from_be_bytes(self.source),
            destination: u128::from_be_bytes(self.destination),
            protocol: self.protocol,
            fragment: false,
            source_port: self.source_port,
            destination_port: self.destination_port,
            tcp_flags: 0,
            icmp_type: 0,
        }
        .conversation()
    }
}

#[derive(Debug)]
pub struct SortedFlows {
    path: PathBuf,
    file: File,
    count: u64,
    longest_ns: u64,
    otherwise: LabelId,
    /// Number of each name of the file.
    ids: Vec<LabelId>,
    names: Names,
}

impl SortedFlows {
    pub fn read(path: &Path, otherwise: Option<&str>) -> Result<Self> {
        let file = Input::File.open(path)?;
        let refuse = |rule: &str| {
            let name = path.display();
            Error::input(format!("{name}: {rule}; make it again with `wirewise datasets`"))
        };
        let size = file.metadata().map_err(|error| files::cannot_read(path, &error))?.len();
        let mut header = [0u64; HEADER as usize / 8];
        file.read_exact_at(bytemuck::cast_slice_mut(&mut header), 0)
            .map_err(|_| refuse("is no sorted list of flows"))?;
        if header[0].to_ne_bytes() != MAGIC {
            return Err(refuse("is no sorted list of flows"));
        }
        let [count, longest_ns, names_length] = [header[1], header[2], header[3]];
        let records = count.checked_mul(size_of::<Record>() as u64).and_then(|end| end.checked_add(HEADER));
        let Some(end) = records.filter(|end| {
            count <= MAX_FLOWS && names_length <= MAX_NAMES && end.checked_add(names_length) == Some(size)
        }) else {
            return Err(refuse("is cut off, or was changed"));
        };
        let mut text = vec![0; names_length as usize];
        file.read_exact_at(&mut text, end).map_err(|error| files::cannot_read(path, &error))?;
        let text = std::str::from_utf8(&text).map_err(|_| refuse("has names that are not UTF-8"))?;
        let mut names = Names::new();
        let otherwise = names.id(otherwise.unwrap_or_default());
        let ids = text.lines().map(|name| names.id(name)).collect();
        Ok(Self { path: path.to_owned(), file, count, longest_ns, otherwise, ids, names })
    }

    pub fn names(&self) -> Vec<String> {
        self.names.list.clone()
    }

    pub fn of_capture(&self) -> SortedLabeller<'_> {
        SortedLabeller {
            list: self,
            live: HashMap::new(),
            held: 0,
            sweep_at: BLOCK,
            block: Vec::new(),
            block_at: 0,
            next: 0,
            started: false,
            latest_ns: 0,
            swept_ns: 0,
            joined: Joined::default(),
            matched: vec![0; (self.count as usize).div_ceil(64)],
            listed: vec![0; (self.count as usize).div_ceil(64)],
        }
    }

    fn records(&self, at: u64) -> Result<Vec<Record>> {
        let count = (self.count - at).min(BLOCK as u64) as usize;
        let mut records = vec![Record::zeroed(); count];
        let offset = HEADER + at * size_of::<Record>() as u64;
        self.file
            .read_exact_at(bytemuck::cast_slice_mut(&mut records), offset)
            .map_err(|error| files::cannot_read(&self.path, &error))?;
        Ok(records)
    }

    /// Number of the first flow that begins at or after a time.
    fn first_from(&self, time_ns: u64) -> Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut from = [0; 8];
            self.file
                .read_exact_at(&mut from, HEADER + middle * size_of::<Record>() as u64)
                .map_err(|error| files::cannot_read(&self.path, &error))?;
            if u64::from_le_bytes(from) < time_ns { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// What became of the flows of the list in one capture.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Joined {
    /// Flows of the list whose time overlaps the capture's.
    pub listed: u64,
    /// Of these, flows that at least one packet belongs to.
    pub matched: u64,
    /// Packets to which flows with different labels apply; they get that of the flow that began last.
    pub ambiguous_packets: u64,
    /// IP packets that no flow applies to.
    pub unmatched_packets: u64,
    /// How often the capture went back in time, so that the list was read again from there.
    pub rewinds: u64,
    /// Times of the capture's first and last packet.
    pub first_ns: u64,
    pub last_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    from: u64,
    until: u64,
    label: LabelId,
    number: u64,
}

/// The flows of one conversation: one, nearly always.
#[derive(Debug)]
struct Flows {
    first: Live,
    more: Vec<Live>,
}

pub struct SortedLabeller<'a> {
    list: &'a SortedFlows,
    live: HashMap<Conversation, Flows>,
    /// Flows in `live`, and how many there are when those of the past are let go.
    held: usize,
    sweep_at: usize,
    block: Vec<Record>,
    /// Number of the first flow in `block`, and of the next to read.
    block_at: u64,
    next: u64,
    started: bool,
    latest_ns: u64,
    /// Flows that ended before this may have been let go.
    swept_ns: u64,
    joined: Joined,
    /// A bit for each flow of the list.
    matched: Vec<u64>,
    listed: Vec<u64>,
}

impl SortedLabeller<'_> {
    #[inline]
    pub fn label(&mut self, seen: &Seen<'_>) -> Result<LabelId> {
        let now = seen.time_ns;
        if !self.started || now < self.swept_ns {
            self.restart(now)?;
        }
        if now > self.latest_ns {
            self.latest_ns = now;
        }
        self.joined.first_ns = self.joined.first_ns.min(now);
        self.joined.last_ns = self.joined.last_ns.max(now);
        while let Some(record) = self.peek()?.filter(|record| record.from <= now) {
            self.take(record);
        }
        if self.held >= self.sweep_at {
            self.sweep();
        }
        let Some(outer) = seen.outer else { return Ok(self.list.otherwise) };
        let conversation = outer.conversation();
        let mut found = self.live.get(&conversation).and_then(|flows| choose(flows, now));
        if found.is_none() && conversation.ports == [0, 0] && !matches!(conversation.protocol, 6 | 17) {
            let any = Conversation { protocol: 0, ..conversation };
            found = self.live.get(&any).and_then(|flows| choose(flows, now));
        }
        let Some((flow, ambiguous)) = found else {
            self.joined.unmatched_packets += 1;
            return Ok(self.list.otherwise);
        };
        self.joined.ambiguous_packets += u64::from(ambiguous);
        mark(&mut self.matched, flow.number);
        Ok(flow.label)
    }

    /// The next flow of the list.
    #[inline]
    fn peek(&mut self) -> Result<Option<Record>> {
        if let Some(record) = self.block.get((self.next - self.block_at) as usize) {
            return Ok(Some(*record));
        }
        if self.next >= self.list.count {
            return Ok(None);
        }
        self.block = self.list.records(self.next)?;
        self.block_at = self.next;
        Ok(self.block.first().copied())
    }

    fn take(&mut self, record: Record) {
        let number = self.next;
        self.next += 1;
        if record.until <= self.swept_ns {
            return;
        }
        mark(&mut self.listed, number);
        let label = self.list.ids.get(usize::from(record.label)).copied().unwrap_or(self.list.otherwise);
        let flow = Live { from: record.from, until: record.until, label, number };
        self.held += 1;
        match self.live.entry(record.conversation()) {
            hashbrown::hash_map::Entry::Vacant(entry) => {
                entry.insert(Flows { first: flow, more: Vec::new() });
            }
            hashbrown::hash_map::Entry::Occupied(mut entry) => {
                let flows = entry.get_mut();
                // What is over goes first: a conversation that is listed often does not grow.
                if flows.first.until <= self.swept_ns {
                    flows.first = flow;
                    self.held -= 1;
                } else {
                    flows.more.push(flow);
                }
            }
        }
    }

    /// Lets go of the flows that are over.
    fn sweep(&mut self) {
        let horizon = self.latest_ns.saturating_sub(DISORDER_NS);
        self.swept_ns = self.swept_ns.max(horizon);
        let mut held = 0;
        self.live.retain(|_, flows| {
            flows.more.retain(|flow| flow.until > horizon);
            if flows.first.until <= horizon {
                if flows.more.is_empty() {
                    return false;
                }
                flows.first = flows.more.remove(0);
            }
            held += 1 + flows.more.len();
            true
        });
        self.held = held;
        self.sweep_at = (2 * held).max(1 << 16);
        if self.live.capacity() > 4 * (self.live.len() + (1 << 14)) {
            self.live.shrink_to(2 * self.live.len());
        }
    }

    /// From the first flow that may not be over at a time.
    fn restart(&mut self, now: u64) -> Result<()> {
        if self.started {
            self.joined.rewinds += 1;
            if self.joined.rewinds > MAX_REWINDS {
                return Err(Error::input(format!(
                    "the capture goes back in time by more than {} s, and more than {MAX_REWINDS} times: sort it first \
                     (`reordercap IN OUT`)",
                    DISORDER_NS / 1_000_000_000
                )));
            }
        } else {
            self.joined.first_ns = now;
        }
        self.started = true;
        self.live.clear();
        self.held = 0;
        self.latest_ns = now;
        self.swept_ns = now.saturating_sub(DISORDER_NS);
        let begin = self.swept_ns.saturating_sub(self.list.longest_ns);
        self.next = self.list.first_from(begin)?;
        self.block_at = self.next;
        self.block = Vec::new();
        Ok(())
    }

    pub fn joined(&self) -> Joined {
        let count = |bits: &[u64]| bits.iter().map(|word| u64::from(word.count_ones())).sum();
        Joined { listed: count(&self.listed), matched: count(&self.matched), ..self.joined.clone() }
    }
}

/// The flow that applies at a time, of several the one that began last; and whether another has another label.
#[inline]
fn choose(flows: &Flows, now: u64) -> Option<(Live, bool)> {
    let mut found: Option<Live> = None;
    let mut ambiguous = false;
    for flow in std::iter::once(&flows.first).chain(&flows.more) {
        if flow.from <= now && now < flow.until {
            ambiguous |= found.is_some_and(|known| known.label != flow.label);
            // The list is in the order of `from`.
            if found.is_none_or(|known| flow.from > known.from) {
                found = Some(*flow);
            }
        }
    }
    found.map(|flow| (flow, ambiguous))
}

#[inline]
fn mark(bits: &mut [u64], number: u64) {
    if let Some(word) = bits.get_mut((number / 64) as usize) {
        *word |= 1 << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const SECOND: u64 = 1_000_000_000;

    fn record(from: u64, until: u64, port: u16, protocol: u8, label: u16) -> Record {
        let mut record = Record::zeroed();
        (record.from, record.until) = (from, until);
        record.source[..4].copy_from_slice(&[10, 0, 0, 2]);
        record.destination[..4].copy_from_slice(&[10, 0, 0, 1]);
        (record.source_port, record.destination_port) = if protocol == 0 { (0, 0) } else { (port, 80) };
        (record.label, record.version, record.protocol) = (label, 4, protocol);
        record
    }

    fn list(records: &[Record]) -> (tempfile::NamedTempFile, SortedFlows) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let longest = records.iter().map(|record| record.until - record.from).max().unwrap_or(0);
        let names = b"benign\nattack\n";
        let mut header = [0u64; 8];
        header[0] = u64::from_ne_bytes(MAGIC);
        (header[1], header[2], header[3]) = (records.len() as u64, longest, names.len() as u64);
        file.write_all(bytemuck::cast_slice(&header)).unwrap();
        file.write_all(bytemuck::cast_slice(records)).unwrap();
        file.write_all(names).unwrap();
        let read = SortedFlows::read(file.path(), None).unwrap();
        (file, read)
    }

    fn label(labeller: &mut SortedLabeller<'_>, time_ns: u64, port: u16, protocol: u8, back: bool) -> String {
        let mut outer = Outer {
            vlans: 0,
            version: 4,
            source: u128::from(u32::from_be_bytes([10, 0, 0, 2])) << 96,
            destination: u128::from(u32::from_be_bytes([10, 0, 0, 1])) << 96,
            protocol,
            fragment: false,
            source_port: if protocol == 1 { 0 } else { port },
            destination_port: if protocol == 1 { 0 } else { 80 },
            tcp_flags: 0,
            icmp_type: 0,
        };
        if back {
            std::mem::swap(&mut outer.source, &mut outer.destination);
            std::mem::swap(&mut outer.source_port, &mut outer.destination_port);
        }
        let id = labeller.label(&Seen { time_ns, frame: &[], outer: Some(&outer) }).unwrap();
        labeller.list.names()[id as usize].clone()
    }

    #[test]
    fn flows_apply_in_their_time_in_both_directions_and_the_latest_decides() {
        let (_file, list) = list(&[
            record(0, 100 * SECOND, 5, 6, 0),
            record(10 * SECOND, 20 * SECOND, 5, 6, 1),
            record(30 * SECOND, 31 * SECOND, 7, 0, 1),
        ]);
        let mut labeller = list.of_capture();
        assert_eq!(label(&mut labeller, 9 * SECOND, 5, 6, false), "benign");
        assert_eq!(label(&mut labeller, 10 * SECOND, 5, 6, true), "attack");
        assert_eq!(label(&mut labeller, 20 * SECOND, 5, 6, true), "benign");
        assert_eq!(label(&mut labeller, 20 * SECOND, 6, 6, true), "");
        assert_eq!(label(&mut labeller, 30 * SECOND, 0, 1, true), "attack");
        assert_eq!(label(&mut labeller, 31 * SECOND, 0, 1, true), "");
        let joined = labeller.joined();
        assert_eq!((joined.listed, joined.matched, joined.ambiguous_packets), (3, 3, 1));
        assert_eq!((joined.first_ns, joined.last_ns), (9 * SECOND, 31 * SECOND));
    }

    #[test]
    fn a_window_forgets_and_a_capture_that_goes_back_is_labelled_as_one_that_does_not() {
        let records: Vec<Record> = (0..400_000u64)
            .map(|number| {
                let from = number * SECOND / 1000;
                record(from, from + SECOND, (number % 50_000) as u16, 17, (number % 2) as u16)
            })
            .collect();
        let (_file, list) = list(&records);
        let mut labeller = list.of_capture();
        for number in (0..400_000u64).step_by(97) {
            let wanted = ["benign", "attack"][(number % 2) as usize];
            let time = number * SECOND / 1000 + 5;
            assert_eq!(label(&mut labeller, time, (number % 50_000) as u16, 17, false), wanted);
        }
        assert!(labeller.held < 150_000, "{}", labeller.held);
        assert_eq!(labeller.joined().rewinds, 0);
        assert_eq!(label(&mut labeller, 1000, 0, 17, false), "benign");
        assert_eq!(label(&mut labeller, 5 * SECOND, 5001, 17, false), "");
        assert_eq!(label(&mut labeller, 5 * SECOND, 5000, 17, false), "benign");
        assert_eq!(labeller.joined().rewinds, 1);
    }

    #[test]
    fn damaged_lists_are_refused() {
        let (file, _) = list(&[record(0, 1, 5, 6, 0)]);
        let whole = std::fs::read(file.path()).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..70], b"WWFLOWS1", b"", &[0; 200]] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), damaged).unwrap();
            let error = SortedFlows::read(file.path(), None).unwrap_err().to_string();
            assert!(error.contains("wirewise datasets"), "{error}");
        }
    }
}
