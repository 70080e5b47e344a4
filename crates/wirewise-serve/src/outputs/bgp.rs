// SPDX-License-Identifier: Apache-2.0
//! Bans as BGP routes, by a GoBGP daemon and its `gobgp`: blackhole routes (RFC 7999) or flow specifications (RFC 8955). What is announced
//! follows the bans in force, not events: these only say that it is worth looking. So a route goes when its ban ends, however it ends.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::runtime::Runtime;
use wirewised::attachment::pins::Root;
use wirewised::error::{Error, Result};
use wirewised::harmless::harmless;
use wirewised::kernel;
use wirewised::object::bans::Ban;
use wirewised::policy::Prefix;

use super::{Routes, Sent, Sink};
use crate::bans::Bans;
use crate::keeper::Board;
use crate::kept::replace;
use crate::seldom::Seldom;

const PROGRAM: &str = "gobgp";
const VERSION: u32 = 1;
/// How soon a ban that has ended is noticed.
const PULSE: Duration = Duration::from_secs(1);
/// How often to check that the daemon still has the routes: after a restart it has none.
const ASKED: Duration = Duration::from_secs(5);
/// How long one command may take.
const COMMAND: Duration = Duration::from_secs(5);
/// How long taking back all routes may take when the service ends.
pub const TO_END: Duration = Duration::from_secs(20);
/// What a command may print.
const MAX_ANSWER: u64 = 16 << 20;
const MAX_MESSAGE: usize = 200;
/// Bans of more addresses are not announced.
const SHORTEST4: u8 = 24;
const SHORTEST6: u8 = 48;
pub const MOST: usize = 1000;

/// Where the daemon listens: this machine, because its API knows no passwords.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// The kind of route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Routers drop what goes to the prefix, and with a check of sources (RFC 5635) what comes from it.
    Blackhole,
    /// Routers drop what comes from the prefix.
    Flowspec,
}

/// What the configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub target: Target,
    pub form: Form,
    pub most: usize,
    pub never: Vec<Prefix>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Route {
    target: Target,
    form: Form,
    #[serde(serialize_with = "as_text")]
    source: Prefix,
    /// Only what goes there.
    destination: Option<IpAddr>,
}

/// What is known of a route that was announced, or may have been.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// When its ban ends, by CLOCK_MONOTONIC.
    until_ns: u64,
    /// Whether the daemon has it.
    sure: bool,
}

/// The file that outlives the service, so that the next one takes back what this one announced.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    routes: Vec<Route>,
}

pub struct Announcer {
    wish: Wish,
    root: Root,
    board: Board,
    file: PathBuf,
    known: BTreeMap<Route, Known>,
    refused: u64,
    asked: Instant,
    trouble: Seldom,
    runtime: Runtime,
}

fn as_text<S: serde::Serializer>(prefix: &Prefix, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(prefix)
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let tcp = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
        tcp.map(Self::Tcp).ok_or_else(|| {
            format!(
                "'{text}' is not where gobgpd listens on this machine; write unix:///PATH or 127.0.0.1:50051"
            )
        })
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Target {
    fn options(&self) -> Vec<String> {
        match self {
            Self::Unix(_) => vec!["--target".to_string(), self.to_string()],
            Self::Tcp(address) => ["-u", &address.ip().to_string(), "-p", &address.port().to_string()]
                .map(str::to_string)
                .into(),
        }
    }
}

impl Route {
    fn family(&self) -> &'static str {
        match (self.form, self.source.address.is_ipv4()) {
            (Form::Blackhole, true) => "ipv4",
            (Form::Blackhole, false) => "ipv6",
            (Form::Flowspec, true) => "ipv4-flowspec",
            (Form::Flowspec, false) => "ipv6-flowspec",
        }
    }

    /// The words that name it.
    fn what(&self) -> Vec<String> {
        let source = self.source.to_string();
        if self.form == Form::Blackhole {
            return vec![source];
        }
        let mut words = vec!["match".to_string(), "source".to_string(), source];
        if let Some(destination) = self.destination {
            words.extend(["destination".to_string(), Prefix::from(destination).to_string()]);
        }
        words
    }

    /// The words of `gobgp global rib` that announce it, or take it back. Neither fails if it was done before.
    fn command(&self, announce: bool) -> Vec<String> {
        let mut words = vec![if announce { "add" } else { "del" }.to_string()];
        words.extend(["-a", self.family()].map(str::to_string));
        words.extend(self.what());
        if announce {
            let then = match self.form {
                Form::Blackhole => ["community", "65535:666"],
                Form::Flowspec => ["then", "discard"],
            };
            words.extend(then.map(str::to_string));
        }
        words
    }

    /// The words that ask for it.
    fn question(&self) -> Vec<String> {
        let mut words = ["-j", "-a", self.family()].map(str::to_string).to_vec();
        // Flow specifications are answered all together.
        words.extend((self.form == Form::Blackhole).then(|| self.source.to_string()));
        words
    }

    /// Whether an answer has it.
    fn is_in(&self, answer: &Value) -> bool {
        let source = format!("[source: {}", self.source);
        answer.as_object().is_some_and(|routes| {
            routes.iter().any(|(name, paths)| {
                let is_it = match self.form {
                    Form::Blackhole => name.parse() == Ok(self.source),
                    Form::Flowspec => name.contains(&source),
                };
                // A neighbour may announce the same.
                let is_own = |path: &Value| path["neighbor-ip"].is_null();
                is_it && paths.as_array().is_some_and(|paths| paths.iter().any(is_own))
            })
        })
    }
}

impl Wish {
    /// The route of a ban, or why there is none.
    fn route(
        &self,
        source: Prefix,
        destination: Option<IpAddr>,
        allowed: &[Prefix],
    ) -> std::result::Result<Route, &'static str> {
        let shortest = if source.address.is_ipv4() { SHORTEST4 } else { SHORTEST6 };
        if source.length < shortest {
            return Err("it is wider than /24 or, of IPv6, /48");
        }
        if destination.is_some() && self.form == Form::Blackhole {
            return Err("it is about one receiver (`by: pair`), which takes `routes: flowspec`");
        }
        let meets = |other: &Prefix| source.contains(other.address) || other.contains(source.address);
        if allowed.iter().chain(&self.never).any(meets) {
            return Err("an allow list or `never` has addresses of it");
        }
        let Self { target, form, .. } = self;
        Ok(Route { target: target.clone(), form: *form, source, destination })
    }
}

impl Announcer {
    /// root : of the attachments. board : which of their interfaces the service keeps. file : what is announced, for the next service.
    pub fn new(wish: Wish, root: Root, board: Board, file: PathBuf) -> Result<Self> {
        // What an earlier service announced is taken back or announced again, as the bans are now.
        let unsure = Known { until_ns: 0, sure: false };
        let known = read(&file)?.into_iter().map(|route| (route, unsure)).collect();
        let runtime = super::runtime()?;
        let (asked, trouble) = (Instant::now(), Seldom::default());
        Ok(Self { wish, root, board, file, known, refused: 0, asked, trouble, runtime })
    }

    /// Brings routes into line with the bans.
    fn round(&mut self) -> io::Result<()> {
        // Before that nobody knows whose bans count.
        let Some(interfaces) = self.board.interfaces() else { return Ok(()) };
        let bans = Bans::read(&self.root, &interfaces).map_err(io::Error::other)?;
        let now = kernel::monotonic_ns();
        let mut wanted: BTreeMap<Route, u64> = BTreeMap::new();
        let mut refused: Vec<(&Ban, &str)> = Vec::new();
        for ban in &bans.bans {
            match self.wish.route(ban.source, ban.destination, &bans.allowed) {
                Ok(route) => {
                    let until = wanted.entry(route).or_default();
                    *until = (*until).max(ban.until_ns);
                }
                Err(why) => refused.push((ban, why)),
            }
        }
        for (route, known) in &mut self.known {
            if let Some(until) = wanted.get(route) {
                known.until_ns = *until;
            }
        }
        // An attachment that cannot be read may still ban whom it banned.
        let is_over = |route: &Route, known: &Known| {
            !wanted.contains_key(route) && (bans.complete || known.until_ns <= now)
        };
        let over: Vec<_> = self
            .known
            .iter()
            .filter(|(route, known)| is_over(route, known))
            .map(|(route, _)| route.clone())
            .collect();
        let taken_back = self.take_back(over);
        let mut beyond = 0;
        for (route, until_ns) in wanted {
            if self.known.contains_key(&route) {
                continue;
            }
            if self.known.len() >= self.wish.most {
                beyond += 1;
                continue;
            }
            self.known.insert(route, Known { until_ns, sure: false });
        }
        self.refused = refused.len() as u64 + beyond;
        if self.refused > 0 && self.trouble.is_due() {
            let why = refused.first().map_or_else(
                || format!("`most` allows {} routes", self.wish.most),
                |(ban, why)| format!("one is of {}: {why}", ban.source),
            );
            tracing::warn!("events: bgp {}: bans without a route: {}; {why}", self.wish.target, self.refused);
        }
        let announced = self.check_daemon().and_then(|()| self.announce());
        taken_back.and(announced)
    }

    fn announce(&mut self) -> io::Result<()> {
        let target = &self.wish.target;
        let new = self.known.iter().filter(|(route, known)| !known.sure && route.target == *target);
        let new: Vec<_> = new.map(|(route, _)| route.clone()).collect();
        if new.is_empty() {
            return Ok(());
        }
        // First the file: whoever comes after a death in between has to know.
        self.write()?;
        for route in new {
            self.gobgp(&route.target, route.command(true))?;
            if let Some(known) = self.known.get_mut(&route) {
                known.sure = true;
            }
        }
        Ok(())
    }

    /// Goes on with the routes of other targets if one fails.
    fn take_back(&mut self, routes: Vec<Route>) -> io::Result<()> {
        if routes.is_empty() {
            return Ok(());
        }
        let mut failed: BTreeMap<Target, io::Error> = BTreeMap::new();
        for route in routes.into_iter() {
            if failed.contains_key(&route.target) {
                continue;
            }
            match self.gobgp(&route.target, route.command(false)) {
                Ok(_) => _ = self.known.remove(&route),
                Err(error) => _ = failed.insert(route.target, error),
            }
        }
        self.write()?;
        failed.into_values().next().map_or(Ok(()), Err)
    }

    /// Asks now and then for one of the routes. A daemon that has lost it was started again, and has none.
    fn check_daemon(&mut self) -> io::Result<()> {
        let target = &self.wish.target;
        let known = self.known.iter().find(|(route, known)| known.sure && route.target == *target);
        let Some((route, _)) = known.filter(|_| self.asked.elapsed() > ASKED) else { return Ok(()) };
        let answer = self.gobgp(&route.target, route.question())?;
        self.asked = Instant::now();
        let answer = serde_json::from_slice(&answer)
            .map_err(|error| io::Error::other(format!("{PROGRAM} does not answer with JSON: {error}")))?;
        if !route.is_in(&answer) {
            tracing::warn!("events: bgp {target}: gobgpd has lost its routes; announcing them again");
            self.known.values_mut().for_each(|known| known.sure = false);
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let kept = Kept { version: VERSION, routes: self.known.keys().cloned().collect() };
        let text = serde_json::to_vec_pretty(&kept).map_err(io::Error::other)?;
        replace(&self.file, &text).map_err(io::Error::other)
    }

    /// Runs `gobgp global rib`, and returns what it printed.
    fn gobgp(&self, target: &Target, words: Vec<String>) -> io::Result<Vec<u8>> {
        let mut command = Command::new(PROGRAM);
        command.args(target.options()).args(["global", "rib"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        self.runtime.block_on(async {
            let done = tokio::time::timeout(COMMAND, output(&mut command)).await;
            done.unwrap_or_else(|_| Err(io::Error::other(format!("{PROGRAM} does not end in time"))))
        })
    }
}

async fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let mut child = command
        .spawn()
        .map_err(|error| io::Error::other(format!("{PROGRAM}: {error}; install GoBGP (Debian: gobgpd)")))?;
    let (printed, complaints) = tokio::join!(all(child.stdout.take()), all(child.stderr.take()));
    let (printed, complaints) = (printed?, complaints?);
    let status = child.wait().await?;
    if status.success() {
        return Ok(printed);
    }
    // It explains its usage behind the reason.
    let said =
        String::from_utf8_lossy(if complaints.is_empty() { &printed } else { &complaints }).into_owned();
    let reason: String = said.lines().next().unwrap_or_default().chars().take(MAX_MESSAGE).collect();
    Err(io::Error::other(match &*reason {
        "context deadline exceeded" => {
            "gobgpd does not answer there; start it, or name where it listens".to_string()
        }
        reason => format!("{PROGRAM} ends with {status}: {}", harmless(reason)),
    }))
}

async fn all(from: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_ANSWER + 1).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > MAX_ANSWER {
        return Err(io::Error::other(format!("{PROGRAM} prints more than {MAX_ANSWER} bytes")));
    }
    Ok(bytes)
}

/// The routes that an earlier service announced; empty without a file.
fn read(file: &std::path::Path) -> Result<Vec<Route>> {
    let said = |why: String| {
        Error::other(format!(
            "{}: {why}; it says which routes an earlier service announced. Take them back by hand with `gobgp global rib del`, then delete \
             the file",
            file.display()
        ))
    };
    let text = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| said(error.to_string()))?,
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| said(error.to_string()))?;
    if kept.version != VERSION {
        return Err(said(format!("version {} is not known here", kept.version)));
    }
    Ok(kept.routes)
}

impl Sink for Announcer {
    fn send(&mut self, _sent: &Sent) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.round()
    }

    fn may_pass(&self, _error: &io::Error) -> bool {
        false
    }

    fn pulse(&self) -> Option<Duration> {
        Some(PULSE)
    }

    fn routes(&self) -> Option<Routes> {
        let announced = self.known.values().filter(|known| known.sure).count() as u64;
        Some(Routes { announced, refused: self.refused })
    }

    /// Nobody would take them back when their bans end.
    fn end(&mut self) -> io::Result<()> {
        let all = self.known.keys().cloned().collect();
        self.take_back(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(form: Form, source: &str, destination: Option<&str>) -> Route {
        Route {
            target: "127.0.0.1:50051".parse().unwrap(),
            form,
            source: source.parse().unwrap(),
            destination: destination.map(|it| it.parse().unwrap()),
        }
    }

    #[test]
    fn routes_are_written_as_gobgp_reads_them() {
        let words = |route: &Route, announce| route.command(announce).join(" ");
        let one = route(Form::Blackhole, "192.0.2.7", None);
        assert_eq!(words(&one, true), "add -a ipv4 192.0.2.7/32 community 65535:666");
        assert_eq!(words(&one, false), "del -a ipv4 192.0.2.7/32");
        let pair = route(Form::Flowspec, "2001:db8::/64", Some("2001:db8:1::1"));
        let what = "-a ipv6-flowspec match source 2001:db8::/64 destination 2001:db8:1::1/128";
        assert_eq!(words(&pair, true), format!("add {what} then discard"));
        assert_eq!(words(&pair, false), format!("del {what}"));
    }

    #[test]
    fn what_must_not_be_announced_is_refused() {
        let wish = |form| Wish {
            target: "127.0.0.1:50051".parse().unwrap(),
            form,
            most: MOST,
            never: vec!["198.51.100.0/24".parse().unwrap()],
        };
        let allowed = ["192.0.2.9".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let refused = |form, source: &str, destination: Option<&str>| {
            let destination = destination.map(|it| it.parse().unwrap());
            wish(form).route(source.parse().unwrap(), destination, &allowed).is_err()
        };
        let wrong = [
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/23",
            "2001:db9::/47",
            "192.0.2.0/24",
            "192.0.2.9",
            "2001:db8:1::/48",
            "198.51.100.7",
        ];
        for source in wrong {
            assert!(
                refused(Form::Blackhole, source, None) && refused(Form::Flowspec, source, None),
                "{source}"
            );
        }
        for source in ["192.0.2.7", "10.0.0.0/24", "2001:db9::/48"] {
            assert!(
                !refused(Form::Blackhole, source, None) && !refused(Form::Flowspec, source, None),
                "{source}"
            );
        }
        assert!(refused(Form::Blackhole, "192.0.2.7", Some("192.0.2.1")));
        assert!(!refused(Form::Flowspec, "192.0.2.7", Some("192.0.2.1")));
    }

    #[test]
    fn routes_are_found_in_answers() {
        let one = route(Form::Blackhole, "192.0.2.7", None);
        assert!(one.is_in(&serde_json::json!({"192.0.2.7/32": [{"age": 1}]})));
        assert!(!one.is_in(&serde_json::json!({"192.0.2.7/32": [{"neighbor-ip": "192.0.2.1"}]})));
        assert!(!one.is_in(&serde_json::json!({"192.0.2.0/24": [{}]})) && !one.is_in(&serde_json::json!([])));
        let flow = route(Form::Flowspec, "2001:db8::/64", None);
        assert!(flow.is_in(&serde_json::json!({"[source: 2001:db8::/64/0]": [{}]})));
    }

    #[test]
    fn what_is_announced_outlives_the_service() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bgp.json");
        assert!(read(&file).unwrap().is_empty());
        let routes =
            vec![route(Form::Blackhole, "192.0.2.7", None), route(Form::Flowspec, "::1", Some("::2"))];
        let kept = Kept { version: VERSION, routes: routes.clone() };
        replace(&file, &serde_json::to_vec(&kept).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), routes);
        for wrong in ["", "{}", r#"{"version":2,"routes":[]}"#, r#"{"version":1,"routes":[{"target":"-x"}]}"#]
        {
            fs::write(&file, wrong).unwrap();
            assert!(read(&file).unwrap_err().to_string().contains("gobgp global rib del"), "{wrong}");
        }
    }

    #[test]
    fn only_a_daemon_of_this_machine_is_told() {
        for text in ["unix:///run/gobgpd/api.sock", "127.0.0.1:50051", "[::1]:50051"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["192.0.2.1:50051", "unix://relative", "localhost:50051", "--target", ""] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
