// SPDX-License-Identifier: Apache-2.0
//! Bans as alerts at CrowdSec's local API, each with a decision, by which CrowdSec's other bouncers block the same sender.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use wirewised::attachment::pins::Root;
use wirewised::error::Result;
use wirewised::kernel;
use wirewised::object::bans::Ban;
use wirewised::reading::events::Event;

use super::post::{self, Poster};
use super::{Sent, Sink};
use crate::bans;
use crate::requests::{secret_line, sensitive};

/// A login's answer: a token, and until when it is good.
const MAX_LOGIN: usize = 64 << 10;
const NAME: usize = 64;

/// How a machine logs in at the local API, as `cscli machines add` made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub url: Url,
    pub name: String,
    pub password_file: PathBuf,
    pub ca_file: Option<PathBuf>,
}

impl Machine {
    pub fn check(&self) -> std::result::Result<(), String> {
        post::check(&self.url, "password_file", true)?;
        if self.url.query().is_some() {
            return Err("has a query; write such as http://127.0.0.1:8080".to_string());
        }
        if self.name.is_empty()
            || self.name.len() > NAME
            || !self.name.bytes().all(|it| it.is_ascii_graphic())
        {
            return Err(format!(
                "`machine` has 1 to {NAME} printable characters, as `cscli machines list` shows it"
            ));
        }
        Ok(())
    }

    /// The origin of its decisions. Each machine has its own, so that our other machines follow them.
    pub fn origin(&self) -> String {
        format!("wirewise/{}", self.name)
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        url
    }
}

pub struct Alerts {
    machine: Machine,
    password: String,
    /// That of the last login, until it is refused.
    token: Option<HeaderValue>,
    poster: Poster,
    root: Root,
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

impl Alerts {
    /// root : of the attachments whose bans are told.
    pub fn new(machine: Machine, root: Root) -> Result<Self> {
        let otherwise = "holds no password: one line of printable characters";
        let password = secret_line(&machine.password_file, otherwise)?;
        let poster = Poster::new(machine.ca_file.as_deref())?;
        Ok(Self { machine, password, token: None, poster, root })
    }

    fn log_in(&self) -> io::Result<HeaderValue> {
        let who = json!({"machine_id": self.machine.name, "password": self.password, "scenarios": []});
        let answer = self.poster.post(&self.machine.at("/v1/watchers/login"), None, who.to_string())?;
        let status = answer.status();
        if !status.is_success() {
            // May pass: somebody may yet add the machine.
            return Err(io::Error::other(format!(
                "refuses to log in machine '{}' ({status}); `cscli machines add {0} --password ...` makes it",
                self.machine.name
            )));
        }
        let body = self.poster.body(answer, MAX_LOGIN)?;
        let token = serde_json::from_slice(&body)
            .ok()
            .and_then(|Login { token }| sensitive(&format!("Bearer {token}")));
        token.ok_or_else(|| io::Error::other("does not answer as CrowdSec's local API does: no token"))
    }

    fn post(&mut self, alerts: &Value) -> io::Result<StatusCode> {
        let token = match self.token.take() {
            Some(token) => token,
            None => self.log_in()?,
        };
        let answer = self.poster.post(&self.machine.at("/v1/alerts"), Some(&token), alerts.to_string())?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            self.token = Some(token);
        }
        Ok(answer.status())
    }
}

impl Sink for Alerts {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        let Some(event) = &sent.event else { return Ok(()) };
        let ends: Vec<_> = [event.flow.src_ip, event.flow.dest_ip].into_iter().flatten().collect();
        let ban = bans::latest(&self.root, &event.in_iface, &ends).map_err(io::Error::other)?;
        let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let Some(ban) = ban else { return refuse("the ban ended before it was reported") };
        if ban.destination.is_some() {
            return refuse("a ban by pair is about one receiver, and a decision would be about all");
        }
        let alerts = alerts(event, &ban, &self.machine.origin(), kernel::monotonic_ns());
        let mut status = self.post(&alerts)?;
        if status == StatusCode::UNAUTHORIZED {
            // The token has expired.
            status = self.post(&alerts)?;
        }
        match status {
            StatusCode::UNAUTHORIZED => Err(io::Error::other("refuses the token that it has just given")),
            status => post::taken(status),
        }
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        post::may_pass(error)
    }

    fn pause(&self, tries: u32) -> Duration {
        post::pause(tries)
    }
}

/// The alert of a ban, as the local API takes it. now_ns : CLOCK_MONOTONIC.
fn alerts(event: &Event, ban: &Ban, origin: &str, now_ns: u64) -> Value {
    let address = ban.source.address;
    let is_one = ban.source.length == if address.is_ipv4() { 32 } else { 128 };
    let (scope, value) = if is_one { ("Ip", address.to_string()) } else { ("Range", ban.source.to_string()) };
    let scenario = format!("wirewise/{}", event.wirewise.class);
    // RFC 3339 has a colon in the zone, EVE has none.
    let time = event.timestamp.replace("+0000", "+00:00");
    let left_ms = ban.until_ns.saturating_sub(now_ns).div_ceil(1_000_000);
    json!([{
        "scenario": scenario,
        "scenario_hash": "",
        "scenario_version": "",
        "message": format!("{} banned {} on {}: {}", origin, value, event.in_iface, event.wirewise.class),
        "events": [],
        "events_count": event.wirewise.packets,
        "capacity": 0,
        "leakspeed": "0",
        "simulated": false,
        "start_at": time,
        "stop_at": time,
        "source": {"scope": scope, "value": value, "ip": if is_one { Some(address) } else { None }},
        "decisions": [{
            "origin": origin,
            "scenario": scenario,
            "type": "ban",
            "scope": scope,
            "value": value,
            "duration": format!("{left_ms}ms"),
        }],
    }])
}
