// SPDX-License-Identifier: Apache-2.0
//! A ready model has learned from other networks. It may take packets away here once there is evidence from here: an evaluation, or a
//! week in which the flows were like those it learned from.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::abi::{self, Mode};
use crate::attachment::Attachment;
use crate::attachment::lockout::LockOutArgs;
use crate::bundle::Bundle;
use crate::bundle::ready_model;
use crate::error::{Error, Result};
use crate::files;
use crate::files::json::{self, Limits};
use crate::reading::drift::Level;

const REPORT: Limits = Limits { bytes: 64 << 20, depth: 32, elements: 4_000_000 };
const LONG_ENOUGH: Duration = Duration::from_secs(7 * 24 * 3600);

/// The classes, by name, whose packets a policy may drop or send elsewhere.
pub fn taken(policy: &abi::Element, classes: &[String]) -> Vec<String> {
    let numbered = classes.iter().enumerate().take(abi::MAX_CLASSES);
    numbered.filter(|(class, _)| policy.takes_away(*class)).map(|(_, name)| name.clone()).collect()
}

/// Refuses to let a ready model take packets away without evidence. mode, taken : of the policy that comes into force. attached : where
/// this very bundle runs already.
pub fn require(
    bundle: &Bundle,
    mode: Mode,
    taken: &[String],
    attached: Option<&Attachment>,
    args: &LockOutArgs,
) -> Result<()> {
    let Some(name) = ready_model::name(&bundle.manifest) else { return Ok(()) };
    if mode != Mode::Enforce || taken.is_empty() || args.yes {
        return Ok(());
    }
    if let Some(report) = &args.evaluation {
        return check(report, &bundle.manifest.model.digest, taken);
    }
    let lacking = match attached.map(tried).transpose()? {
        None => "it has not run here".to_string(),
        Some(Ok(())) => return Ok(()),
        Some(Err(lacking)) => lacking,
    };
    Err(Error::input(format!(
        "{name}: has learned from other networks, and nothing says what it would drop on this one ({lacking}); let it observe for a week, \
         or judge it by captures of yours: `wirewise evaluate {name} CAPTURES -l LABELS --report report.html`, then --evaluation report.json; \
         --yes enforces all the same"
    )))
}

/// What is lacking where it runs.
fn tried(attached: &Attachment) -> Result<std::result::Result<(), String>> {
    let since = attached.meta.as_ref().map(|meta| meta.since.as_str()).unwrap_or_default();
    lacking(since, SystemTime::now(), || Ok(attached.drift()?.verdict))
}

/// Whether it has run long enough, on flows like those it learned from; else what lacks.
fn lacking(
    since: &str,
    now: SystemTime,
    drift: impl FnOnce() -> Result<Option<Level>>,
) -> Result<std::result::Result<(), String>> {
    let age = humantime::parse_rfc3339(since).ok().and_then(|since| now.duration_since(since).ok());
    if age.is_none_or(|age| age < LONG_ENOUGH) {
        return Ok(Err(format!("it has run here since {since}, which is less than a week")));
    }
    let lack = match drift()? {
        Some(Level::OutOfDepth) => "its flows here are not like those it learned from",
        Some(_) => return Ok(Ok(())),
        None => "there are too few flows to compare with those it learned from",
    };
    Ok(Err(format!("{lack}: `wirewised stats --drift`")))
}

/// Whether a report of `wirewise evaluate` lets this model take packets of these classes away.
fn check(file: &Path, model: &str, taken: &[String]) -> Result<()> {
    let named = |rule: String| Error::input(format!("{}: {rule}", file.display()));
    let text = files::read(file, REPORT.bytes as u64)?;
    let report: Value = json::from_slice(&text, &REPORT).map_err(|rule| {
        named(format!("{rule}; give the .json that `wirewise evaluate --report` writes beside the page"))
    })?;
    let models = report["models"].as_array().map_or(std::slice::from_ref(&report), Vec::as_slice);
    let Some(found) = models.iter().find(|one| one["about"]["model_digest"] == model) else {
        return Err(named("is not an evaluation of this model; evaluate the bundle that runs".to_string()));
    };
    let allowed: Vec<_> =
        found["verdict"]["may_drop"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let more: Vec<_> = taken.iter().filter(|class| !allowed.contains(&class.as_str())).cloned().collect();
    if more.is_empty() {
        return Ok(());
    }
    let allowed = if allowed.is_empty() { "none".to_string() } else { allowed.join(", ") };
    Err(named(format!(
        "does not say that {} may be dropped, but: {allowed}; `wirewise evaluate --policy FILE` writes a policy that drops only these, and \
         --yes enforces all the same",
        more.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_of_flows_like_trainings_is_evidence() {
        let week_later = humantime::parse_rfc3339("2026-11-08T12:00:00Z").unwrap();
        let what = |since: &str, drift| lacking(since, week_later, || Ok(drift)).unwrap();
        for level in [Level::LikeTraining, Level::Watch] {
            assert_eq!(what("2026-11-01T12:00:00Z", Some(level)), Ok(()));
        }
        for (since, drift, why) in [
            ("2026-11-01T12:00:01Z", Some(Level::LikeTraining), "less than a week"),
            ("2026-11-01T12:00:00Z", Some(Level::OutOfDepth), "not like those"),
            ("2026-11-01T12:00:00Z", None, "too few flows"),
            ("2026-12-01T12:00:00Z", Some(Level::LikeTraining), "less than a week"),
            ("", Some(Level::LikeTraining), "less than a week"),
        ] {
            assert!(what(since, drift).unwrap_err().contains(why), "{since} {drift:?}");
        }
    }
}
