// SPDX-License-Identifier: Apache-2.0
//! The stream of decisions of CrowdSec's local API: asked for, read, and kept in mind. What it says is checked like any input.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Client, StatusCode, Url};
use serde::{Deserialize, Deserializer};
use wirewised::abi;
use wirewised::error::{Error, Result};
use wirewised::harmless::harmless;
use wirewised::kernel;
use wirewised::object::prefixes::Until;
use wirewised::policy::Prefix;
use wirewised::text::units::format_bytes;

use crate::requests::{self, because, secret};

/// About two million decisions.
const MAX_ANSWER: usize = 256 << 20;
/// For a whole answer: a local API with SQLite takes ten seconds for 100,000 decisions.
const ANSWER: Duration = Duration::from_secs(120);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// The origin of what is denied because CrowdSec decided so.
pub const ORIGIN: &str = "crowdsec";

/// The wait after a failure. failures : in a row before it.
pub fn pause(failures: u32) -> Duration {
    LAST_RETRY.min(FIRST_RETRY * 2u32.saturating_pow(failures))
}

/// Where the decisions come from.
#[derive(Debug)]
pub struct LocalApi {
    client: Client,
    url: Url,
    key_file: String,
}

impl LocalApi {
    /// url : such as `http://127.0.0.1:8080`, under the name that its user knows. ca_file : who signed its certificate, if the system does not
    /// know.
    pub fn new((name, url): (&str, &Url), key_file: &Path, ca_file: Option<&Path>) -> Result<Self> {
        let url = stream_of(name, url)?;
        let mut headers = HeaderMap::new();
        let key = secret(
            key_file,
            "",
            "holds no key: one line, as `cscli bouncers add wirewise --output raw` prints it",
        );
        headers.insert(HeaderName::from_static("x-api-key"), key?);
        let user_agent = concat!("wirewise-bouncer/v", env!("CARGO_PKG_VERSION"));
        let builder = requests::client(user_agent, ANSWER).default_headers(headers);
        let client =
            requests::trusting(builder, ca_file)?.build().map_err(|error| Error::other(because(&error)))?;
        Ok(Self { client, url, key_file: key_file.display().to_string() })
    }

    /// The decisions, or how they changed since the last call. all : those that hold, whatever was said before.
    pub async fn ask(&self, all: bool) -> Result<Vec<u8>> {
        let failed = |error: reqwest::Error| self.says(because(&error));
        let request = self.client.get(self.url.clone()).query(&[("startup", all)]);
        let answer = request.send().await.map_err(failed)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(Error::input(format!(
                    "{}: refuses the key in {}; `cscli bouncers add wirewise` makes one: write it into that file",
                    self.url, self.key_file
                )));
            }
            status => return Err(self.says(format!("answers {status}, not with decisions"))),
        }
        let bytes = requests::body(answer, MAX_ANSWER).await.map_err(failed)?;
        bytes.ok_or_else(|| {
            let limit = format_bytes(MAX_ANSWER as u64);
            self.says(format!("answers with more than {limit}, which is too much"))
        })
    }

    /// An error that names who it is about.
    pub fn says(&self, what: impl std::fmt::Display) -> Error {
        Error::other(format!("{}: {what}", self.url))
    }
}

fn stream_of(name: &str, url: &Url) -> Result<Url> {
    let refuse = |why| Err(Error::input(format!("{name}: {why}; write such as http://127.0.0.1:8080")));
    requests::check(url).or_else(refuse)?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        refuse("has a name, a password or a query; the key is in a file of its own")?;
    }
    let mut stream = url.clone();
    stream.set_path(&format!("{}/v1/decisions/stream", url.path().trim_end_matches('/')));
    // All decisions about an address, not only the longest: each is taken back by itself.
    stream.set_query(Some("scopes=ip,range&dedup=false"));
    Ok(stream)
}

/// What the local API answers.
#[derive(Debug, Deserialize)]
struct Answer<'a> {
    #[serde(borrow, deserialize_with = "listed")]
    new: Vec<Decision<'a>>,
    #[serde(borrow, deserialize_with = "listed")]
    deleted: Vec<Decision<'a>>,
}

#[derive(Debug, Deserialize)]
struct Decision<'a> {
    id: u64,
    #[serde(borrow, default)]
    duration: Cow<'a, str>,
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    origin: Cow<'a, str>,
}

/// A list, which is `null` if it is empty, but never missing.
fn listed<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Decision<'a>>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The bans that hold.
#[derive(Debug, Default)]
pub struct Bans {
    /// By the number of the decision. Several may be about one prefix.
    held: HashMap<u64, (Prefix, Until)>,
    /// Origins whose decisions are left alone, because whoever follows has made them.
    own: Vec<String>,
}

/// Decisions that are not followed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Left {
    /// With another type, such as captcha, or another scope.
    pub other: usize,
    /// Made by whoever follows.
    pub own: usize,
    /// Without an address or a time that can be read.
    pub unreadable: usize,
    #[serde(skip)]
    pub example: Option<String>,
}

impl Bans {
    /// own : origins whose decisions are left alone.
    pub fn except(own: Vec<String>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Follows an answer. all : it has all that hold. now_s : CLOCK_BOOTTIME. An answer that cannot be read changes nothing.
    pub fn follow(&mut self, answer: &[u8], all: bool, now_s: u32) -> std::result::Result<Left, String> {
        let answer: Answer<'_> = serde_json::from_slice(answer)
            .map_err(|error| format!("does not answer as CrowdSec's local API does: {error}"))?;
        if all {
            self.held.clear();
        }
        self.held.retain(|_, (_, until)| *until > now_s);
        for gone in &answer.deleted {
            self.held.remove(&gone.id);
        }
        let mut left = Left::default();
        for new in &answer.new {
            let of_addresses = ["ip", "range"].iter().any(|scope| new.scope.eq_ignore_ascii_case(scope));
            if self.own.iter().any(|own| *own == new.origin) {
                left.own += 1;
                continue;
            }
            if !of_addresses || !new.kind.eq_ignore_ascii_case("ban") {
                left.other += 1;
                continue;
            }
            match prefix_of(&new.value).zip(seconds_of(&new.duration)) {
                // Expired on its way here.
                Some((_, seconds)) if seconds <= 0.0 => {
                    self.held.remove(&new.id);
                }
                Some((prefix, seconds)) => {
                    self.held.insert(new.id, (prefix, until(seconds, now_s)));
                }
                None => {
                    left.unreadable += 1;
                    left.example.get_or_insert_with(|| {
                        let text = format!("{} for {}", new.value, new.duration);
                        harmless(&text.chars().take(100).collect::<String>()).into_owned()
                    });
                }
            }
        }
        Ok(left)
    }

    /// Each prefix, until the last decision about it ends.
    pub fn prefixes(&self) -> BTreeMap<Prefix, Until> {
        let mut prefixes = BTreeMap::new();
        for (prefix, until) in self.held.values() {
            let last = prefixes.entry(*prefix).or_insert(*until);
            *last = (*last).max(*until);
        }
        prefixes
    }

    pub fn len(&self) -> usize {
        self.held.len()
    }
}

/// Keeps up with the decisions of a local API.
pub struct Followed {
    pub api: LocalApi,
    pub bans: Bans,
    /// Whether the next answer has to have all decisions: at the start, and after one that may have been lost.
    all: bool,
}

impl Followed {
    /// own : origins whose decisions are left alone.
    pub fn new(api: LocalApi, own: Vec<String>) -> Self {
        Self { api, bans: Bans::except(own), all: true }
    }

    /// Asks once. An error changes nothing in what is held.
    pub async fn pull(&mut self) -> Result<Left> {
        let all = std::mem::replace(&mut self.all, true);
        let answer = self.api.ask(all).await?;
        let left = self.bans.follow(&answer, all, kernel::boot_s()).map_err(|why| self.api.says(why))?;
        // From here on nothing of the answer is lost.
        self.all = false;
        if let Some(example) = &left.example {
            tracing::warn!("{} decisions cannot be read, such as: {example}", left.unreadable);
        }
        Ok(left)
    }
}

/// In whole seconds, and none is denied for less than was decided.
fn until(seconds: f64, now_s: u32) -> Until {
    (seconds.ceil() as u32).saturating_add(now_s).saturating_add(1).min(abi::LIST_FOREVER - 1)
}

/// An address, or a range, which CrowdSec keeps as it was typed: bits behind the prefix say nothing.
fn prefix_of(value: &str) -> Option<Prefix> {
    let (address, length) = value.split_once('/').map_or((value, None), |(it, length)| (it, Some(length)));
    let address: IpAddr = address.parse().ok()?;
    let Some(length) = length else { return Some(address.to_canonical().into()) };
    let length: u8 = length.parse().ok()?;
    Prefix::around(address, length)
}

/// A duration as Go writes it: `3h59m57.5s`, `-36.6ms`.
fn seconds_of(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    if rest == "0" {
        return Some(0.0);
    }
    let mut sum = None;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let number = rest.find(|c| !is_number(c))?;
        let end = rest[number..].find(is_number).map_or(rest.len(), |end| number + end);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == &rest[number..end])?;
        *sum.get_or_insert(0.0) += rest[..number].parse::<f64>().ok()? * scale;
        rest = &rest[end..];
    }
    sum.map(|sum| sign * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1000;

    fn decision(id: u64, value: &str, duration: &str) -> String {
        format!(
            r#"{{"id":{id},"duration":"{duration}","scope":"Ip","value":"{value}","type":"ban","origin":"cscli"}}"#
        )
    }

    fn answer(new: &[String], deleted: &[String]) -> String {
        let list = |all: &[String]| {
            if all.is_empty() { "null".to_string() } else { format!("[{}]", all.join(",")) }
        };
        format!(r#"{{"new":{},"deleted":{}}}"#, list(new), list(deleted))
    }

    fn held(bans: &Bans) -> Vec<(String, Until)> {
        bans.prefixes().into_iter().map(|(prefix, until)| (prefix.to_string(), until)).collect()
    }

    #[test]
    fn a_prefix_is_banned_until_the_last_decision_about_it() {
        let mut bans = Bans::default();
        let two = [decision(1, "192.0.2.7", "1m"), decision(2, "192.0.2.7", "1h0m0.5s")];
        bans.follow(answer(&two, &[]).as_bytes(), true, NOW).unwrap();
        assert_eq!(held(&bans), [("192.0.2.7/32".to_string(), NOW + 3602)]);
        bans.follow(answer(&[], &[decision(2, "192.0.2.7", "-3ms")]).as_bytes(), false, NOW).unwrap();
        assert_eq!(held(&bans), [("192.0.2.7/32".to_string(), NOW + 61)]);
        bans.follow(answer(&[], &[]).as_bytes(), false, NOW + 61).unwrap();
        assert_eq!(bans.len(), 0);
    }

    #[test]
    fn all_that_hold_take_the_place_of_those_before() {
        let mut bans = Bans::default();
        bans.follow(answer(&[decision(1, "192.0.2.7", "1m")], &[]).as_bytes(), true, NOW).unwrap();
        bans.follow(answer(&[decision(9, "2001:db8::1/32", "1m")], &[]).as_bytes(), true, NOW).unwrap();
        assert_eq!(held(&bans), [("2001:db8::/32".to_string(), NOW + 61)]);
    }

    #[test]
    fn what_cannot_be_followed_is_counted() {
        let mut bans = Bans::default();
        let captcha = decision(3, "192.0.2.9", "1h").replace("ban", "captcha");
        let country = decision(4, "FR", "1h").replace("Ip", "Country");
        let mut wrong: Vec<_> = ["", "10.0.0.0/33", "10.0.0.0/-1", "here", "::1/129", "1.2.3.4/8/9"]
            .map(|value| decision(5, value, "1h"))
            .into();
        wrong.extend(
            ["", "h", "1", "1.2.3s", "1e9h", "infs", "NaNs", "1 h", "-"].map(|it| decision(6, "::1", it)),
        );
        let expired = decision(7, "192.0.2.1", "-2s");
        let all: Vec<_> = [captcha, country, expired].into_iter().chain(wrong.clone()).collect();
        let left = bans.follow(answer(&all, &[]).as_bytes(), true, NOW).unwrap();
        assert_eq!((left.other, left.unreadable, bans.len()), (2, wrong.len(), 0));
    }

    #[test]
    fn own_decisions_are_left_alone() {
        let mut bans = Bans::except(vec!["wirewise/here".to_string()]);
        let by = |id, origin: &str| decision(id, "192.0.2.7", "1h").replace("cscli", origin);
        let two = [by(1, "wirewise/here"), by(2, "wirewise/there")];
        let left = bans.follow(answer(&two, &[]).as_bytes(), true, NOW).unwrap();
        assert_eq!((left.own, bans.len()), (1, 1));
        bans.follow(answer(&[], &[by(1, "wirewise/here")]).as_bytes(), false, NOW).unwrap();
        assert_eq!(bans.len(), 1);
    }

    #[test]
    fn an_answer_that_is_none_changes_nothing() {
        let mut bans = Bans::default();
        bans.follow(answer(&[decision(1, "192.0.2.7", "1m")], &[]).as_bytes(), true, NOW).unwrap();
        for wrong in ["", "{}", "[]", "null", r#"{"new":null}"#, r#"{"new":[1],"deleted":null}"#, "\u{0}{"] {
            assert!(bans.follow(wrong.as_bytes(), true, NOW).is_err(), "{wrong}");
            assert_eq!(bans.len(), 1);
        }
        let long = answer(&[decision(2, "::1", &format!("{}h", "9".repeat(400)))], &[]);
        bans.follow(long.as_bytes(), false, NOW).unwrap();
        assert_eq!(held(&bans)[1].1, abi::LIST_FOREVER - 1);
    }

    #[test]
    fn a_key_goes_to_one_address_and_is_not_in_it() {
        let url = |text: &str| stream_of("--crowdsec", &text.parse().unwrap()).map(|url| url.to_string());
        let query = "/v1/decisions/stream?scopes=ip,range&dedup=false";
        assert_eq!(url("http://[::1]:8080").unwrap(), format!("http://[::1]:8080{query}"));
        assert_eq!(url("https://h/crowdsec/").unwrap(), format!("https://h/crowdsec{query}"));
        for wrong in ["ftp://h", "http://a:b@h", "http://h/?key=1", "file:///etc/passwd"] {
            assert!(url(wrong).unwrap_err().to_string().contains("--crowdsec"), "{wrong}");
        }
    }
}
