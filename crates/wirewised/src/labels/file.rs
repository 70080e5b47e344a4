// SPDX-License-Identifier: Apache-2.0
//! Label files: rules for one's own captures, the first that holds decides.

use std::path::Path;

use glob::Pattern;
use serde::Deserialize;

use super::rule::{Ready, Rule};
use super::{LabelId, Names, Seen};
use crate::error::{Error, Result};
use crate::files;
use crate::files::yaml;

/// A person writes it: more than this is something else.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    otherwise: String,
}

#[derive(Debug)]
pub struct LabelFile {
    rules: Vec<(LabelId, Option<Pattern>, Rule)>,
    otherwise: LabelId,
    names: Names,
}

impl LabelFile {
    pub fn read(path: &Path) -> Result<Self> {
        let refuse = |rule: String| Error::input(format!("{}: {rule}; see docs/labels.md", path.display()));
        let bytes = files::read(path, MAX_BYTES)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| refuse("is not UTF-8 text".to_owned()))?;
        Self::parse(text).map_err(refuse)
    }

    /// The error is one line without the file's name.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let document: Document = yaml::from_yaml(text)?;
        if document.version != 1 {
            return Err(format!(
                "version {} is not supported; this wirewised reads version 1",
                document.version
            ));
        }
        let mut names = Names::new();
        let mut rules = Vec::with_capacity(document.rules.len());
        for (number, rule) in (1..).zip(document.rules) {
            let label = rule.label.as_deref().filter(|label| !label.is_empty());
            let label = label.ok_or_else(|| format!("rule {number} has no label"))?;
            rule.check_parts().map_err(|broken| format!("rule {number}: {broken}"))?;
            let pattern = rule.capture.as_deref().map(Pattern::new).transpose();
            let pattern = pattern.map_err(|error| format!("rule {number}: capture: {error}"))?;
            rules.push((names.id(label), pattern, rule));
        }
        let otherwise = names.id(&document.otherwise);
        Ok(Self { rules, otherwise, names })
    }

    pub fn names(&self) -> Vec<String> {
        self.names.list.clone()
    }

    pub fn of_capture(&self, capture: &Path) -> FileLabeller<'_> {
        let name = capture.file_name().unwrap_or_default().to_string_lossy();
        let about = |pattern: &Option<Pattern>| pattern.as_ref().is_none_or(|pattern| pattern.matches(&name));
        let rules = self.rules.iter().filter(|(_, pattern, _)| about(pattern));
        FileLabeller {
            rules: rules.map(|(label, _, rule)| (*label, rule)).collect(),
            ready: None,
            otherwise: self.otherwise,
        }
    }
}

pub struct FileLabeller<'a> {
    rules: Vec<(LabelId, &'a Rule)>,
    ready: Option<Vec<(LabelId, Ready<'a>)>>,
    otherwise: LabelId,
}

impl FileLabeller<'_> {
    pub fn label(&mut self, seen: &Seen<'_>) -> LabelId {
        let ready = self.ready.get_or_insert_with(|| {
            self.rules.iter().map(|(label, rule)| (*label, Ready::new(rule, seen.time_ns))).collect()
        });
        ready.iter().find(|(_, rule)| rule.holds(seen)).map_or(self.otherwise, |(label, _)| *label)
    }
}
