// SPDX-License-Identifier: Apache-2.0
//! The numbers of `/metrics`, sent to a collector by OTLP over HTTP (OpenTelemetry protocol 1, in its JSON form), for networks where nobody can scrape. Numbers are
//! read for each export, and none is kept: one that fails is not repeated, as the next has the same counts, grown.

mod message;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use wirewised::attachment::pins::Root;
use wirewised::error::{Error, Result};
use wirewised::kernel;
use wirewised::text::units::Nanoseconds;

use crate::keeper::Board;
use crate::metrics;
use crate::outputs::post::{self, Poster};
use crate::passes;
use crate::requests;
use crate::seldom::Seldom;

/// An answer has a count and a sentence.
const MOST_ANSWERED: usize = 1 << 16;

/// The `otlp` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Export {
    url: Url,
    every: Nanoseconds,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Where the collector takes metrics: `http://ADDRESS:4318/v1/metrics`.
    url: String,
    /// Time from one export to the next.
    every: Option<String>,
    /// What goes behind `Bearer`.
    token_file: Option<PathBuf>,
    /// Certificates to trust beside those of the system.
    ca_file: Option<PathBuf>,
}

impl TryFrom<Written> for Export {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        let said = |key: &str, why: String| format!("`otlp`: `{key}`: {why}");
        let url: Url = written.url.parse().map_err(|why| said("url", format!("{why}")))?;
        post::check(&url, "token_file", written.token_file.is_some()).map_err(|why| said("url", why))?;
        let every =
            passes::period("every", written.every, passes::MINUTE).map_err(|why| format!("`otlp`: {why}"))?;
        Ok(Self { url, every, token_file: written.token_file, ca_file: written.ca_file })
    }
}

/// What became of the exports.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct PushHealth {
    pub to: String,
    /// Taken by the collector.
    pub taken: u64,
    /// Not sent, or refused in whole or in part.
    pub failed: u64,
    /// Why the latest failed; null once one was taken.
    pub error: Option<String>,
}

impl Export {
    pub fn relative_to(&mut self, folder: &Path) {
        for path in [&mut self.token_file, &mut self.ca_file].into_iter().flatten() {
            *path = folder.join(&path);
        }
    }

    /// Exports until what is returned is dropped.
    pub fn run(&self, root: Root, board: &Board) -> Result<Sender<()>> {
        let read = |file: &PathBuf| {
            requests::secret(file, "Bearer ", "holds no token: one line of printable characters")
        };
        let exporter = Exporter {
            root,
            board: board.clone(),
            url: self.url.clone(),
            token: self.token_file.as_ref().map(read).transpose()?,
            poster: Poster::new(self.ca_file.as_deref())?,
            trouble: Seldom::default(),
        };
        let to = requests::shown(&self.url);
        board.lock().otlp = Some(PushHealth { to, ..PushHealth::default() });
        let every = Duration::from_nanos(self.every.0);
        let (stop, stopped) = channel();
        thread::spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                exporter.note(&exporter.export());
            }
        });
        Ok(stop)
    }
}

struct Exporter {
    root: Root,
    board: Board,
    url: Url,
    token: Option<HeaderValue>,
    poster: Poster,
    trouble: Seldom,
}

impl Exporter {
    /// All numbers as they are now.
    fn export(&self) -> Result<()> {
        let text = metrics::text(&self.root, &self.board)
            .map_err(|error| Error::other(format!("metrics: {error}")))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = kernel::host_name().unwrap_or_default();
        let json = message::of_text(&text, &host, now.as_nanos()).to_string();
        let answer = self.poster.post(&self.url, self.token.as_ref(), json).map_err(Error::other)?;
        post::taken(answer.status()).map_err(Error::other)?;
        let body = self.poster.body(answer, MOST_ANSWERED).map_err(Error::other)?;
        message::refused(&body).map_or(Ok(()), |why| Err(Error::other(why)))
    }

    fn note(&self, result: &Result<()>) {
        let mut health = self.board.lock();
        let Some(health) = &mut health.otlp else { return };
        health.error = result.as_ref().err().map(Error::to_string);
        let Some(why) = &health.error else {
            health.taken += 1;
            return;
        };
        health.failed += 1;
        if self.trouble.is_due() {
            tracing::error!("otlp: {}: {why}", health.to);
        }
    }
}
