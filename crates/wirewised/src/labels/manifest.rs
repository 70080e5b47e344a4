// SPDX-License-Identifier: Apache-2.0
//! A collection of captures with a `manifest.json` that says what each file and each packet is.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::rule::{Ready, Rule};
use super::{LabelId, Names, Seen, UNLABELLED};
use crate::error::{Error, Result};
use crate::files;
use crate::files::json::{self, Limits};

const MAX_BYTES: u64 = 64 << 20;
/// A file has some thirty values.
const LIMITS: Limits = Limits { bytes: MAX_BYTES as usize, depth: 16, elements: 1 << 20 };
const BENIGN: &str = "benign";

/// What the manifest says of one file; what we do not need is ignored.
#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "class")]
    group: String,
    label: Kind,
    attack_rule: Option<Rule>,
    reply_rule: Option<Rule>,
    rest: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Attack,
    Mixed,
    Benign,
    Odd,
}

#[derive(Debug)]
pub struct Folder {
    manifest: PathBuf,
    /// By the file's real path; with the label of its attack packets.
    entries: HashMap<PathBuf, (LabelId, Entry)>,
    benign: LabelId,
    names: Names,
}

impl Folder {
    /// path : the folder, or its `manifest.json`.
    pub fn read(path: &Path) -> Result<Self> {
        let manifest = if path.is_dir() { path.join("manifest.json") } else { path.to_owned() };
        let refuse =
            |rule: String| Error::input(format!("{}: {rule}; see docs/labels.md", manifest.display()));
        let bytes = files::read(&manifest, MAX_BYTES)?;
        let list: Vec<Entry> = json::from_slice(&bytes, &LIMITS)
            .map_err(|rule| refuse(format!("is no manifest of captures: it {rule}")))?;
        let folder = manifest.parent().unwrap_or(Path::new("."));
        let mut names = Names::new();
        let benign = names.id(BENIGN);
        let mut entries = HashMap::new();
        for entry in list {
            for rule in entry.attack_rule.iter().chain(&entry.reply_rule) {
                rule.check_conditions().map_err(|broken| refuse(format!("{}: {broken}", entry.path)))?;
            }
            let path = real(&folder.join(&entry.path));
            entries.insert(path, (names.id(&entry.group.replace('_', "-")), entry));
        }
        Ok(Self { manifest, entries, benign, names })
    }

    pub fn names(&self) -> Vec<String> {
        self.names.list.clone()
    }

    pub fn of_capture(&self, capture: &Path) -> Result<EntryLabeller<'_>> {
        let (label, entry) = self.entries.get(&real(capture)).ok_or_else(|| {
            Error::input(format!(
                "{}: is not in {}: label it with a label file (--labels)",
                capture.display(),
                self.manifest.display()
            ))
        })?;
        let (attack, rest) = match (entry.label, &entry.attack_rule) {
            (Kind::Benign, _) => (None, self.benign),
            (_, Some(rule)) if entry.rest.as_deref() == Some(BENIGN) => (Some(rule), self.benign),
            (_, rule) => (rule.as_ref(), UNLABELLED),
        };
        Ok(EntryLabeller {
            attack: attack.map(|rule| Ready::new(rule, 0)),
            reply: entry.reply_rule.as_ref().map(|rule| Ready::new(rule, 0)),
            label: *label,
            rest,
        })
    }
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

pub struct EntryLabeller<'a> {
    attack: Option<Ready<'a>>,
    reply: Option<Ready<'a>>,
    label: LabelId,
    rest: LabelId,
}

impl EntryLabeller<'_> {
    pub fn label(&self, seen: &Seen<'_>) -> LabelId {
        let Some(attack) = &self.attack else { return self.rest };
        if attack.holds(seen) {
            return self.label;
        }
        if self.reply.as_ref().is_some_and(|reply| reply.holds(seen)) { UNLABELLED } else { self.rest }
    }
}
