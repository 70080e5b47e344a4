// SPDX-License-Identifier: Apache-2.0
//! `crowdsec` in the configuration: the deny lists of what the service keeps follow the decisions of CrowdSec's local API.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize};
use wirewised::attachment::deny::replace_on;
use wirewised::attachment::pins::Root;
use wirewised::error::{Error, Result};
use wirewised::reading::events::timestamp;
use wirewised::text::units::Nanoseconds;

use crate::decisions::{Followed, LocalApi, ORIGIN, pause};
use crate::keeper::Board;
use crate::requests::is_in_clear;
use crate::seldom::Seldom;

const USUAL_INTERVAL: Nanoseconds = Nanoseconds(10_000_000_000);
/// How often it is looked whether the service has begun.
const LOOK: Duration = Duration::from_millis(100);
const SHORTEST_INTERVAL: Nanoseconds = Nanoseconds(100_000_000);

/// Where decisions come from, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    #[serde(deserialize_with = "from_text")]
    url: Url,
    /// The bouncer's key.
    key_file: PathBuf,
    /// Certificates that sign the local API's, beside those that the system trusts.
    ca_file: Option<PathBuf>,
    #[serde(default = "usual_interval", deserialize_with = "from_text")]
    interval: Nanoseconds,
}

fn usual_interval() -> Nanoseconds {
    USUAL_INTERVAL
}

fn from_text<'de, D, T>(deserializer: D) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// How following goes.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct FollowHealth {
    pub from: String,
    /// Bans of addresses that hold, without those that this service reported itself.
    pub decisions: u64,
    /// When the local API last answered; null before the first time.
    pub pulled: Option<String>,
    /// Interfaces whose deny list was brought into line then.
    pub interfaces: Vec<String>,
    /// Times that it did not answer, or that a list could not be changed.
    pub failures: u64,
    /// The latest of them; null once all went well.
    pub error: Option<String>,
}

impl Source {
    /// Makes its paths absolute.
    pub fn relative_to(&mut self, folder: &Path) {
        self.key_file = folder.join(&self.key_file);
        self.ca_file = self.ca_file.take().map(|file| folder.join(file));
    }

    pub fn check(&self) -> Result<()> {
        if self.interval < SHORTEST_INTERVAL {
            return Err(Error::input(format!(
                "`crowdsec`: `interval: {}` is too short; {SHORTEST_INTERVAL} or more",
                self.interval
            )));
        }
        Ok(())
    }

    /// own : origins whose decisions are left alone.
    pub fn open(&self, own: Vec<String>) -> Result<Followed> {
        let api = LocalApi::new(("`crowdsec`", &self.url), &self.key_file, self.ca_file.as_deref())?;
        Ok(Followed::new(api, own))
    }

    /// Follows for as long as the service runs. Failures are logged and retried.
    pub async fn follow(self, mut followed: Followed, root: Root, board: Board) {
        board.lock().crowdsec = Some(FollowHealth { from: self.url.to_string(), ..FollowHealth::default() });
        if is_in_clear(&self.url) {
            tracing::warn!(
                "{}: without https, others on the way can read the key and change decisions",
                self.url
            );
        }
        // Before that it has no deny lists.
        while board.interfaces().is_none() {
            tokio::time::sleep(LOOK).await;
        }
        let trouble = Seldom::default();
        let mut failures = 0;
        loop {
            let wait = match round(&mut followed, &root, &board).await {
                Ok(()) => {
                    failures = 0;
                    Duration::from_nanos(self.interval.0)
                }
                Err(error) => {
                    note(&board, |health| {
                        health.failures += 1;
                        health.error = Some(error.to_string());
                    });
                    if trouble.is_due() {
                        tracing::error!("crowdsec: {error}; what is denied stays so until it expires");
                    }
                    failures += 1;
                    pause(failures - 1)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }
}

/// Asks once, and brings every list into line, also if nothing changed: a program may have been attached anew.
async fn round(followed: &mut Followed, root: &Root, board: &Board) -> Result<()> {
    followed.pull().await?;
    let (root, wanted) = (root.clone(), followed.bans.prefixes());
    let interfaces = board.interfaces().unwrap_or_default();
    let work = move || replace_on(&interfaces, &root, ORIGIN, &wanted);
    let changes = tokio::task::spawn_blocking(work).await;
    let changes = changes.map_err(|_| Error::other("the deny lists: an error of this program"))?;
    note(board, |health| {
        health.decisions = followed.bans.len() as u64;
        health.pulled = Some(timestamp(SystemTime::now()));
    });
    let mut interfaces = Vec::new();
    let mut failed = Vec::new();
    for (interface, change) in changes? {
        match change {
            Ok(change) => {
                if !change.is_empty() {
                    let counts = change.counts;
                    tracing::info!(
                        "{interface}: {ORIGIN}: {} added, {} changed, {} removed",
                        counts.added,
                        counts.changed,
                        counts.removed
                    );
                }
                interfaces.push(interface);
            }
            Err(error) => failed.push(format!("{interface}: {error}")),
        }
    }
    note(board, |health| health.interfaces = interfaces);
    if !failed.is_empty() {
        return Err(Error::other(failed.join("; ")));
    }
    note(board, |health| health.error = None);
    Ok(())
}

fn note(board: &Board, change: impl FnOnce(&mut FollowHealth)) {
    if let Some(health) = &mut board.lock().crowdsec {
        change(health);
    }
}
