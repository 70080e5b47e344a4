// SPDX-License-Identifier: Apache-2.0
//! A list of flows with their labels, as CSV: five-tuples and times, such as the ground truth of a data set.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use glob::Pattern;
use serde::Deserialize;

use super::moment::Moment;
use super::values::Protocol;
use super::{LabelId, Names, Seen};
use crate::error::{Error, Result};
use crate::files::Input;
use crate::files::records::Records;
use crate::packets::outer::{self, Conversation, Outer};

/// A line of the file.
#[derive(Debug, Deserialize)]
struct Line {
    src: IpAddr,
    #[serde(default)]
    sport: Option<u16>,
    dst: IpAddr,
    #[serde(default)]
    dport: Option<u16>,
    proto: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    until: Option<String>,
    label: String,
    #[serde(default)]
    capture: Option<String>,
}

#[derive(Debug)]
struct Entry {
    from: Moment,
    until: Moment,
    label: LabelId,
    capture: Option<Pattern>,
}

#[derive(Debug)]
pub struct FlowList {
    /// In the order of the file: of those that hold, the first decides.
    flows: HashMap<Conversation, Vec<Entry>>,
    otherwise: LabelId,
    names: Names,
}

impl FlowList {
    pub fn read(path: &Path, otherwise: Option<&str>) -> Result<Self> {
        let file = Input::FileOrPipe.open(path)?;
        Self::parse(file, otherwise)
            .map_err(|rule| Error::input(format!("{}: {rule}; see docs/labels.md", path.display())))
    }

    pub fn parse(input: impl Read, otherwise: Option<&str>) -> std::result::Result<Self, String> {
        let mut names = Names::new();
        let otherwise = names.id(otherwise.unwrap_or_default());
        let mut flows: HashMap<Conversation, Vec<Entry>> = HashMap::new();
        let input = Records::of(input);
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(input);
        let unreadable = |error: csv::Error| error.to_string();
        // Without its first line that can be read, the reader would give no line at all.
        let headers = reader.headers().map_err(unreadable)?.clone();
        let mut record = csv::StringRecord::new();
        loop {
            reader.get_mut().begin();
            if !reader.read_record(&mut record).map_err(unreadable)? {
                break;
            }
            let line: Line = record.deserialize(Some(&headers)).map_err(unreadable)?;
            let refuse = |rule: String| format!("the flow of {} to {}: {rule}", line.src, line.dst);
            if line.src.is_ipv4() != line.dst.is_ipv4() {
                return Err(refuse("one address is IPv4, the other IPv6".to_owned()));
            }
            if line.label.is_empty() {
                return Err(refuse("has no label".to_owned()));
            }
            let protocol: Protocol = line.proto.parse().map_err(&refuse)?;
            let entry = Entry {
                from: moment(line.from.as_deref(), Moment::Date(0)).map_err(&refuse)?,
                until: moment(line.until.as_deref(), Moment::Date(u64::MAX)).map_err(&refuse)?,
                label: names.id(&line.label),
                capture: match line.capture.as_deref().filter(|pattern| !pattern.is_empty()) {
                    Some(pattern) => Some(Pattern::new(pattern).map_err(|error| refuse(error.to_string()))?),
                    None => None,
                },
            };
            let outer = Outer {
                vlans: 0,
                version: if line.src.is_ipv4() { 4 } else { 6 },
                source: outer::address(line.src),
                destination: outer::address(line.dst),
                protocol: protocol.0,
                fragment: false,
                source_port: line.sport.unwrap_or(0),
                destination_port: line.dport.unwrap_or(0),
                tcp_flags: 0,
                icmp_type: 0,
            };
            flows.entry(outer.conversation()).or_default().push(entry);
        }
        Ok(Self { flows, otherwise, names })
    }

    pub fn names(&self) -> Vec<String> {
        self.names.list.clone()
    }

    pub fn of_capture(&self, capture: &Path) -> FlowLabeller<'_> {
        let name = capture.file_name().unwrap_or_default().to_string_lossy().into_owned();
        FlowLabeller { list: self, name, first_ns: None }
    }
}

/// Seconds since 1970 too, as flow exporters write them.
fn moment(text: Option<&str>, missing: Moment) -> std::result::Result<Moment, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(missing) };
    if text != "0"
        && let (whole, fraction) = text.split_once('.').unwrap_or((text, ""))
        && fraction.len() <= 9
        && let Ok(seconds) = whole.parse::<u64>()
        && let Ok(ns) = format!("{fraction:0<9}").parse::<u64>()
    {
        let time = seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(ns));
        return time.map(Moment::Date).ok_or_else(|| format!("'{text}' is a time after the year 2554"));
    }
    text.parse().map_err(|rule| format!("{rule}, or seconds since 1970"))
}

pub struct FlowLabeller<'a> {
    list: &'a FlowList,
    name: String,
    first_ns: Option<u64>,
}

impl FlowLabeller<'_> {
    pub fn label(&mut self, seen: &Seen<'_>) -> LabelId {
        let first_ns = *self.first_ns.get_or_insert(seen.time_ns);
        let flows = seen.outer.and_then(|outer| self.list.flows.get(&outer.conversation()));
        let holds = |entry: &&Entry| {
            (entry.from.at(first_ns)..entry.until.at(first_ns)).contains(&seen.time_ns)
                && entry.capture.as_ref().is_none_or(|pattern| pattern.matches(&self.name))
        };
        flows.into_iter().flatten().find(holds).map_or(self.list.otherwise, |entry| entry.label)
    }
}
