// SPDX-License-Identifier: Apache-2.0
//! What a check found, with its remedy.

use serde::Serialize;

use crate::error::{Error, Kind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Works, but not as well as it could.
    Note,
    /// Something may be wrong, or could not be told.
    Warning,
    /// `run` would fail.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    #[serde(skip)]
    kind: Kind,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), remedy: None, kind: Kind::Missing }
    }

    pub fn note(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::warning(check, found, remedy) }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, remedy: Some(remedy.into()), ..Self::ok(check, found) }
    }

    pub fn error(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::warning(check, found, remedy) }
    }

    /// What an error says, with the way out after its first semicolon.
    pub fn refusal(check: &'static str, error: &Error) -> Self {
        let message = error.to_string();
        let (found, remedy) = message.split_once("; ").unwrap_or((&message, ""));
        Self::error(check, found, remedy)
    }

    /// Ends a command as an error of this kind would.
    pub fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The finding as the error that ends `run`.
    pub fn to_error(&self) -> Error {
        let remedy = self.remedy.as_deref().unwrap_or_default();
        let message = format!("{}; {remedy}", self.found);
        match self.kind {
            Kind::Input => Error::input(message),
            Kind::Missing | Kind::Refused => Error::missing(message),
            _ => Error::other(message),
        }
    }
}

/// The first error as the error to end with.
pub fn require(findings: &[Finding]) -> Result<()> {
    findings
        .iter()
        .find(|finding| finding.level == Level::Error)
        .map_or(Ok(()), |finding| Err(finding.to_error()))
}

/// Says the warnings.
pub fn warn(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.level == Level::Warning) {
        eprintln!(
            "warning: {}: {}; {}",
            finding.check,
            finding.found,
            finding.remedy.as_deref().unwrap_or_default()
        );
    }
}
