// SPDX-License-Identifier: Apache-2.0
//! The wished state, as a file says it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use glob::Pattern;
use serde::{Deserialize, Deserializer, Serialize};
use wirewised::abi::Mode;
use wirewised::attachment::{Attachment, Whereabouts};
use wirewised::commands::by_service::USUAL_SOCKET;
use wirewised::error::{Error, Result};
use wirewised::files::yaml::from_yaml;
use wirewised::plane::{Drops, Plane};

use crate::evidence::Evidence;
use crate::follower::Source;
use crate::ipfix::Export;
use crate::limits::Rates;
#[cfg(feature = "otlp")]
use crate::otlp;
use crate::outputs::Outputs;
use crate::outputs::records::Often;
use crate::tls;

pub const DEFAULT_FILE: &str = "/etc/wirewise/wirewised.yaml";
/// Configurations are written by people.
const LARGEST: u64 = 1 << 20;
const VERSION: u32 = 1;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    version: u32,
    /// In their order: the first whose name or pattern an interface has is its own.
    #[serde(default)]
    pub interfaces: Vec<Wish>,
    /// Where HTTP is answered beside the control socket; without `tls` on loopback only.
    pub listen: Option<SocketAddr>,
    /// What `listen` is encrypted by.
    pub tls: Option<tls::Files>,
    /// Limits of each address at `listen`.
    #[serde(default)]
    pub limits: Rates,
    #[serde(default)]
    pub socket: Socket,
    #[serde(default)]
    pub tokens: Vec<Token>,
    /// Where events go.
    #[serde(default)]
    pub events: Outputs,
    /// Where the packets of alerts are written.
    pub evidence: Option<Evidence>,
    /// Whether the kernel measures the time in programs, which costs each run some.
    #[serde(default)]
    pub program_times: bool,
    /// How often outputs get records beside events.
    #[serde(default)]
    pub records: Often,
    /// Where flows go.
    pub ipfix: Option<Export>,
    /// Where the numbers of `/metrics` go.
    #[cfg(feature = "otlp")]
    pub otlp: Option<otlp::Export>,
    /// Whose decisions the deny lists follow.
    pub crowdsec: Option<Source>,
}

/// What is to run on an interface, or on each that a pattern names. Paths are relative to the configuration until `Config::read` has
/// made them absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// A name, or a pattern such as `eth*`.
    interface: String,
    /// A name under /run/netns; without it, the service's own network namespace.
    netns: Option<String>,
    /// A bundle's file, or a ready model, such as `@flood`.
    pub bundle: PathBuf,
    pub policy: Option<PathBuf>,
    #[serde(default = "native")]
    pub plane: Plane,
    #[serde(default = "observe", deserialize_with = "mode")]
    pub mode: Mode,
    /// What the host sends is judged too.
    #[serde(default)]
    pub outgoing: bool,
    /// Where a plane in user space sends what passes.
    pub to: Option<String>,
    /// Threads of a plane in user space.
    pub workers: Option<u32>,
    /// Flows that fit, for each CPU where it has a table of its own; without it, as many as the bundle says.
    pub flow_table_size: Option<u32>,
    /// Whether what merges packets before the program is switched off while it runs.
    #[serde(default)]
    pub offloads_off: bool,
    /// Whether a bundle whose features need another flow state may begin with empty flow tables.
    #[serde(default)]
    pub reset_flows: bool,
    /// Whether packets of its alerts are written, where the configuration has `evidence`.
    #[serde(default = "yes")]
    pub evidence: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socket {
    #[serde(default = "usual_socket")]
    pub path: PathBuf,
    /// Whose members may read by it; root alone otherwise.
    pub group: Option<String>,
}

/// Who may ask by `listen`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// For the log.
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token's characters, in hexadecimal digits.
    pub sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Read,
    Operate,
}

/// Where a program is to run.
#[derive(
    Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct Place {
    pub netns: Option<String>,
    pub interface: String,
}

impl Place {
    /// Where an attachment is.
    pub fn of(attachment: &Attachment) -> Self {
        let netns = (attachment.whereabouts == Whereabouts::Elsewhere).then(|| {
            let directory =
                || attachment.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            attachment.namespace().map_or_else(directory, |other| other.name)
        });
        Self { netns, interface: attachment.interface.clone() }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.netns {
            Some(netns) => write!(f, "{} in network namespace {netns}", self.interface),
            None => f.write_str(&self.interface),
        }
    }
}

/// Whether it names a network namespace under /run/netns and nothing else, as a path would.
pub fn check_netns(netns: &str) -> std::result::Result<(), String> {
    if netns.is_empty() || netns.contains('/') || netns.starts_with('.') {
        return Err(format!("`netns` is a name under /run/netns, not '{netns}'"));
    }
    Ok(())
}

fn native() -> Plane {
    Plane::XDP_NATIVE
}

fn observe() -> Mode {
    Mode::Observe
}

fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Mode, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = Mode::ALL.iter().find(|mode| mode.name() == name);
    known.copied().ok_or_else(|| {
        serde::de::Error::custom(format!("no mode is called '{name}'; there are: observe, enforce"))
    })
}

fn yes() -> bool {
    true
}

fn usual_socket() -> PathBuf {
    PathBuf::from(USUAL_SOCKET)
}

impl Default for Socket {
    fn default() -> Self {
        Self { path: usual_socket(), group: None }
    }
}

impl Wish {
    /// Whether a process of the service carries the packets.
    pub fn is_carried(&self) -> bool {
        self.plane.carried().is_some()
    }

    /// Whether one can take the other's place by a swap and a change of mode.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.plane, self.outgoing, &self.to, self.workers, self.flow_table_size)
            == (other.plane, other.outgoing, &other.to, other.workers, other.flow_table_size)
    }

    fn check(&self) -> Result<()> {
        let said = |why: String| Err(Error::input(format!("interface '{}': {why}", self.interface)));
        if let Err(error) = Pattern::new(&self.interface) {
            return said(error.to_string());
        }
        if self.interface.is_empty() || self.interface.contains('/') {
            return said("is no name of an interface, nor a pattern of one".to_string());
        }
        if let Some(Err(why)) = self.netns.as_deref().map(check_netns) {
            return said(why);
        }
        if !self.is_carried() && (self.to.is_some() || self.workers.is_some()) {
            return said(format!("`to` and `workers` are for planes in user space, not for {}", self.plane));
        }
        Ok(())
    }
}

impl Config {
    /// Reads a configuration, whole or not at all. Other files that it names are looked at when it is applied.
    pub fn read(path: &Path) -> Result<Self> {
        let said = |why: String| Error::input(format!("{}: {why}", path.display()));
        let size = fs::metadata(path).map_err(|error| said(error.to_string()))?.len();
        if size > LARGEST {
            return Err(said(format!("has {size} bytes, and a configuration has at most {LARGEST}")));
        }
        let text = fs::read_to_string(path).map_err(|error| said(error.to_string()))?;
        let mut config: Self = from_yaml(&text).map_err(said)?;
        let folder = std::path::absolute(path).map_err(|error| said(error.to_string()))?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        for wish in &mut config.interfaces {
            if !is_ready_model(&wish.bundle) {
                wish.bundle = folder.join(&wish.bundle);
            }
            wish.policy = wish.policy.take().map(|policy| folder.join(policy));
        }
        config.events.relative_to(folder);
        if let Some(evidence) = &mut config.evidence {
            evidence.relative_to(folder);
        }
        if let Some(crowdsec) = &mut config.crowdsec {
            crowdsec.relative_to(folder);
        }
        #[cfg(feature = "otlp")]
        if let Some(otlp) = &mut config.otlp {
            otlp.relative_to(folder);
        }
        if let Some(tls) = &mut config.tls {
            tls.relative_to(folder);
        }
        config.check().map_err(|error| said(error.to_string()))?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        if self.version != VERSION {
            return Err(Error::input(format!(
                "`version: {}` is not known; this program reads version {VERSION}",
                self.version
            )));
        }
        let mut named = BTreeSet::new();
        for wish in &self.interfaces {
            wish.check()?;
            if !named.insert((&wish.netns, &wish.interface)) {
                return Err(Error::input(format!(
                    "interface '{}' is there twice; the second would never be used",
                    wish.interface
                )));
            }
        }
        if let Some(listen) = self.listen
            && self.tls.is_none()
            && !is_loopback(listen.ip())
        {
            return Err(Error::input(format!(
                "`listen: {listen}` can be reached from other hosts, and nothing there is encrypted; name a certificate \
                 and its key under `tls`, or use 127.0.0.1 or [::1]"
            )));
        }
        if self.tls.is_some() && self.listen.is_none() {
            return Err(Error::input(
                "`tls` without `listen`: nothing is encrypted; add `listen: ADDRESS:PORT`",
            ));
        }
        self.events.check()?;
        self.check_evidence()?;
        self.crowdsec.as_ref().map_or(Ok(()), Source::check)?;
        let mut names = BTreeSet::new();
        for token in &self.tokens {
            if token.sha256.len() != 64 || !token.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(Error::input(format!(
                    "token '{}': `sha256` must be 64 hexadecimal digits; `wirewised serve --new-token` makes one",
                    token.name
                )));
            }
            if !names.insert(&token.name) {
                return Err(Error::input(format!("token '{}' is there twice", token.name)));
            }
        }
        if self.listen.is_some() && self.tokens.is_empty() {
            return Err(Error::input(
                "`listen` without `tokens`: nobody could ask; `wirewised serve --new-token` makes one",
            ));
        }
        Ok(())
    }

    fn check_evidence(&self) -> Result<()> {
        if self.evidence.is_none() {
            return Ok(());
        }
        if self.events.count() == 0 {
            return Err(Error::input(
                "`evidence` without `events`: no alert would name its capture; add `events: {file: FILE}`",
            ));
        }
        for wish in &self.interfaces {
            if wish.evidence && wish.is_carried() && wish.plane.abilities().drops == Drops::Always {
                return Err(Error::input(format!(
                    "interface '{}': `evidence` cannot have the packets of plane {}, which leave the kernel before a raw socket \
                     sees them; write `evidence: false` for this interface, or choose another plane, such as `plane: tc-ingress`",
                    wish.interface, wish.plane
                )));
            }
        }
        Ok(())
    }

    /// Whether it takes CAP_SYS_ADMIN: to enter network namespaces, or to ask for the times of programs.
    pub fn needs_admin(&self) -> bool {
        self.program_times || self.interfaces.iter().any(|wish| wish.netns.is_some())
    }

    /// The network namespaces that it names; `None` is the service's own.
    pub fn namespaces(&self) -> BTreeSet<Option<String>> {
        self.interfaces.iter().map(|wish| wish.netns.clone()).collect()
    }

    /// What is to run where. present : the interfaces of each namespace that exists.
    pub fn wished(&self, present: &BTreeMap<Option<String>, Vec<String>>) -> BTreeMap<Place, Wish> {
        let mut wished = BTreeMap::new();
        for (netns, interfaces) in present {
            for interface in interfaces {
                let fits = |wish: &&Wish| {
                    &wish.netns == netns
                        && Pattern::new(&wish.interface).is_ok_and(|pattern| pattern.matches(interface))
                };
                if let Some(wish) = self.interfaces.iter().find(fits) {
                    let place = Place { netns: netns.clone(), interface: interface.clone() };
                    wished.insert(place, wish.clone());
                }
            }
        }
        wished
    }

    /// Those that are named, not drawn by a pattern, and are not there.
    pub fn missing(&self, present: &BTreeMap<Option<String>, Vec<String>>) -> Vec<Place> {
        let is_name = |name: &str| !name.contains(['*', '?', '[']);
        let is_there = |wish: &&Wish| {
            present.get(&wish.netns).is_some_and(|interfaces| interfaces.contains(&wish.interface))
        };
        let missing = self.interfaces.iter().filter(|wish| is_name(&wish.interface) && !is_there(wish));
        missing.map(|wish| Place { netns: wish.netns.clone(), interface: wish.interface.clone() }).collect()
    }
}

/// Whether a bundle names a ready model instead of a file.
pub fn is_ready_model(bundle: &Path) -> bool {
    bundle.as_os_str().as_encoded_bytes().starts_with(b"@")
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wirewised.yaml");
        fs::write(&file, text).unwrap();
        let said = Config::read(&file);
        said.map_err(|error| error.to_string().replace(&file.display().to_string(), "FILE"))
    }

    #[test]
    fn the_first_that_fits_counts() {
        let config = read(
            "version: 1\ninterfaces:\n- {interface: eth0, bundle: a, mode: enforce}\n- {interface: 'eth*', bundle: b}\n\
             - {interface: in, netns: blue, bundle: '@flood'}\n",
        )
        .unwrap();
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let present = BTreeMap::from([
            (None, names(&["lo", "eth0", "eth1", "in"])),
            (Some("blue".to_string()), names(&["lo", "in", "eth7"])),
        ]);
        let wished = config.wished(&present);
        let said: Vec<_> = wished
            .iter()
            .map(|(place, wish)| {
                let file = wish.bundle.file_name().unwrap().to_string_lossy().into_owned();
                (place.to_string(), file, wish.mode.name())
            })
            .collect();
        let expected = [
            ("eth0", "a", "enforce"),
            ("eth1", "b", "observe"),
            ("in in network namespace blue", "@flood", "observe"),
        ];
        assert_eq!(said, expected.map(|(a, b, c)| (a.to_string(), b.to_string(), c)));
        assert!(config.missing(&present).is_empty());
        let alone = BTreeMap::from([(None, names(&["lo"]))]);
        let missing: Vec<_> = config.missing(&alone).iter().map(Place::to_string).collect();
        assert_eq!(missing, ["eth0", "in in network namespace blue"]);
    }

    #[test]
    fn what_breaks_a_rule_is_said() {
        let cases = [
            ("version: 2\n", "version 1"),
            ("version: 1\nintefaces: []\n", "did you mean 'interfaces'"),
            ("version: 1\ninterfaces: [{interface: eth0, bundle: a, plane: xpd}]\n", "xpd"),
            ("version: 1\ninterfaces: [{interface: eth0, bundle: a, mode: drop}]\n", "observe"),
            ("version: 1\ninterfaces: [{interface: eth0, bundle: a, to: eth1}]\n", "planes in user space"),
            ("version: 1\ninterfaces: [{interface: a/b, bundle: a}]\n", "no name of an interface"),
            ("version: 1\ninterfaces: [{interface: a, netns: ../x, bundle: a}]\n", "name under /run/netns"),
            (
                "version: 1\ninterfaces: [{interface: a, bundle: a}, {interface: a, bundle: b}]\n",
                "there twice",
            ),
            ("version: 1\nlisten: 0.0.0.0:80\n", "name a certificate"),
            ("version: 1\nlisten: '[::]:80'\n", "name a certificate"),
            ("version: 1\nlisten: '[::ffff:192.0.2.1]:80'\n", "name a certificate"),
            ("version: 1\nlisten: 0.0.0.0:80\ntls: {certificate: a}\n", "key"),
            (
                "version: 1\nlisten: 0.0.0.0:80\ntls: {certificate: a, key: b, client-ca: c}\n",
                "did you mean 'client_ca'",
            ),
            ("version: 1\ntls: {certificate: a, key: b}\n", "`tls` without `listen`"),
            ("version: 1\nlimits: {requests_per_second: 0}\n", "nonzero"),
            ("version: 1\nlimits: {requests_per_minute: 1}\n", "requests_per_second"),
            ("version: 1\nevents: {file: a, rotate_bytes: 10}\n", "rotate_bytes"),
            ("version: 1\nevents: {flie: a}\n", "did you mean 'file'"),
            ("version: 1\nevents: {file: a, syslog: b}\n", "has file and syslog; several outputs are a list"),
            ("version: 1\nevents: [{keep: 3}]\n", "an output has one of `file`"),
            ("version: 1\nevents: [{journald: a, facility: local0}]\n", "`facility` is for `syslog`"),
            ("version: 1\nevents: {syslog: a, facility: local8}\n", "no facility is called 'local8'"),
            ("version: 1\nevents: {syslog: 'tls://192.0.2.1:1'}\n", "udp://ADDRESS:PORT"),
            ("version: 1\nevents: {syslog: 'udp://loghost:514'}\n", "not an address with a port"),
            ("version: 1\nevents: [{file: a}, {file: a}]\n", "there twice"),
            ("version: 1\nevents: eve.json\n", "a list of outputs"),
            ("version: 1\nevents: {webhook: example.org}\n", "write such as https://HOST/PATH"),
            ("version: 1\nevents: {webhook: 'ftp://192.0.2.1/'}\n", "neither http:// nor https://"),
            ("version: 1\nevents: {webhook: 'http://192.0.2.1/', token_file: a}\n", "write https://"),
            ("version: 1\nevents: {webhook: 'http://192.0.2.1/', only: [bann]}\n", "did you mean 'ban'"),
            ("version: 1\nevents: {crowdsec: 'http://127.0.0.1:8080'}\n", "cscli machines add"),
            (
                "version: 1\nevents: {crowdsec: 'http://192.0.2.1:8080', machine: a, password_file: b}\n",
                "write https://",
            ),
            ("version: 1\nevents: {file: a, machine: b}\n", "`machine` is for `crowdsec`, not for `file`"),
            ("version: 1\nevents: {bgp: '192.0.2.1:50051'}\n", "on this machine"),
            ("version: 1\nevents: {bgp: '127.0.0.1:1', routes: blackhol}\n", "did you mean 'blackhole'"),
            (
                "version: 1\nevents: {bgp: '127.0.0.1:1', never: [192.0.2.1/24]}\n",
                "did you mean 192.0.2.0/24",
            ),
            ("version: 1\nevents: [{bgp: '127.0.0.1:1'}, {bgp: '127.0.0.1:2'}]\n", "one is possible"),
            ("version: 1\ncrowdsec: {url: 'http://127.0.0.1:8080'}\n", "key_file"),
            ("version: 1\ncrowdsec: {url: 'http://127.0.0.1:8080', key_file: a, interval: 1ms}\n", "100ms"),
            ("version: 1\nevents: {file: a, only: [ban]}\n", "`only` is for `webhook`, not for `file`"),
            ("version: 1\nipfix: {}\n", "collector"),
            ("version: 1\nipfix: {colector: a}\n", "did you mean 'collector'"),
            (
                "version: 1\nipfix: {collector: /run/socket}\n",
                "write udp://ADDRESS:PORT or tcp://ADDRESS:PORT",
            ),
            ("version: 1\nipfix: {collector: 'udp://collector:4739'}\n", "not an address with a port"),
            ("version: 1\nipfix: {collector: 'sctp://192.0.2.1:4739'}\n", "'sctp://' is not known"),
            ("version: 1\nipfix: {collector: 'udp://192.0.2.1:4739', idle: 60}\n", "is not a duration"),
            (
                "version: 1\nipfix: {collector: 'udp://192.0.2.1:4739', idle: 10ms}\n",
                "`idle`: 10ms is out of range; 1s to 24h",
            ),
            (
                "version: 1\nipfix: {collector: 'udp://192.0.2.1:4739', active: 25h}\n",
                "`active`: 25h is out of range",
            ),
            ("version: 1\nipfix: {collector: 'udp://192.0.2.1:4739', enterprise: 0}\n", "nonzero"),
            ("version: 1\nlisten: 127.0.0.1:80\n", "nobody could ask"),
            ("version: 1\ntokens: [{name: a, role: read, sha256: 12}]\n", "64 hexadecimal digits"),
            ("version: 1\ntokens: [{name: a, role: admin, sha256: 12}]\n", "read"),
        ];
        for (text, why) in cases {
            let said = read(text).unwrap_err();
            assert!(said.starts_with("FILE: ") && said.contains(why), "{text}: {said}");
        }
    }
}
