// SPDX-License-Identifier: Apache-2.0
//! What each packet of a capture is: from a label file, a list of flows (of any length, if it is sorted), or the manifest of a collection
//! of captures. docs/labels.md describes them; the toolkit reads the same files to the same meaning.

mod file;
mod flows;
mod manifest;
mod moment;
mod rule;
mod sorted;
mod values;

use std::collections::HashMap;
use std::path::Path;

pub use sorted::Joined;

use crate::error::{Error, Result};
use crate::packets::outer::Outer;

/// A packet as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub time_ns: u64,
    /// Ethernet.
    pub frame: &'a [u8],
    /// `None`: not IP, or broken.
    pub outer: Option<&'a Outer>,
}

/// Number of a label in `Labels::names`.
pub type LabelId = u32;
/// "": the packet has no label.
pub const UNLABELLED: LabelId = 0;

/// Where labels come from.
pub enum Labels {
    None,
    /// Every packet is this.
    All(String),
    File(file::LabelFile),
    Flows(flows::FlowList),
    Sorted(sorted::SortedFlows),
    Folder(manifest::Folder),
}

impl Labels {
    /// By the file's name: a list of flows, a manifest, or a label file. otherwise : of a list of flows.
    pub fn open(path: &Path, otherwise: Option<&str>) -> Result<Self> {
        let is = |suffix: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(suffix));
        if is("csv") {
            return Self::from_flows(path, otherwise);
        }
        if is("flows") {
            return Self::from_sorted(path, otherwise);
        }
        if otherwise.is_some() {
            let name = path.display();
            return Err(Error::input(format!(
                "--otherwise: is for a list of flows (.csv, .flows), and {name} is none; a label file has the key `otherwise`"
            )));
        }
        if path.is_dir() || is("json") { Self::from_manifest(path) } else { Self::from_file(path) }
    }

    /// A YAML label file.
    pub fn from_file(path: &Path) -> Result<Self> {
        file::LabelFile::read(path).map(Self::File)
    }

    /// A CSV list of flows; the packets of no flow in it are `otherwise`.
    pub fn from_flows(path: &Path, otherwise: Option<&str>) -> Result<Self> {
        flows::FlowList::read(path, otherwise).map(Self::Flows)
    }

    /// A sorted list of flows, which is read along with the captures.
    pub fn from_sorted(path: &Path, otherwise: Option<&str>) -> Result<Self> {
        sorted::SortedFlows::read(path, otherwise).map(Self::Sorted)
    }

    /// A folder with a `manifest.json`, or that file.
    pub fn from_manifest(path: &Path) -> Result<Self> {
        manifest::Folder::read(path).map(Self::Folder)
    }

    /// Every label there can be; the first is "".
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::None => vec![String::new()],
            Self::All(label) => vec![String::new(), label.clone()],
            Self::File(file) => file.names(),
            Self::Flows(list) => list.names(),
            Self::Sorted(list) => list.names(),
            Self::Folder(folder) => folder.names(),
        }
    }

    /// The labeller of one capture.
    pub fn of_capture(&self, capture: &Path) -> Result<Labeller<'_>> {
        Ok(match self {
            Self::None => Labeller::All(UNLABELLED),
            Self::All(_) => Labeller::All(UNLABELLED + 1),
            Self::File(file) => Labeller::File(file.of_capture(capture)),
            Self::Flows(list) => Labeller::Flows(list.of_capture(capture)),
            Self::Sorted(list) => Labeller::Sorted(Box::new(list.of_capture())),
            Self::Folder(folder) => Labeller::Folder(folder.of_capture(capture)?),
        })
    }
}

/// Labels the packets of one capture, in their order: its first packet is where relative times start.
pub enum Labeller<'a> {
    /// Every packet is this.
    All(LabelId),
    File(file::FileLabeller<'a>),
    Flows(flows::FlowLabeller<'a>),
    Sorted(Box<sorted::SortedLabeller<'a>>),
    Folder(manifest::EntryLabeller<'a>),
}

impl Labeller<'_> {
    #[inline]
    pub fn label(&mut self, seen: &Seen<'_>) -> Result<LabelId> {
        Ok(match self {
            Self::All(label) => *label,
            Self::File(labeller) => labeller.label(seen),
            Self::Flows(labeller) => labeller.label(seen),
            Self::Sorted(labeller) => labeller.label(seen)?,
            Self::Folder(labeller) => labeller.label(seen),
        })
    }

    /// What became of a sorted list of flows so far.
    pub fn joined(&self) -> Option<Joined> {
        match self {
            Self::Sorted(labeller) => Some(labeller.joined()),
            _ => None,
        }
    }
}

/// Label names with their numbers.
#[derive(Debug)]
struct Names {
    list: Vec<String>,
    ids: HashMap<String, LabelId>,
}

impl Names {
    fn new() -> Self {
        let mut names = Self { list: Vec::new(), ids: HashMap::new() };
        names.id("");
        names
    }

    fn id(&mut self, name: &str) -> LabelId {
        if let Some(known) = self.ids.get(name) {
            return *known;
        }
        let id = self.list.len() as LabelId;
        self.list.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }
}
