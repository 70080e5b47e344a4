// SPDX-License-Identifier: Apache-2.0
//! Two namespaces joined by a veth pair, a BPF file system of their own, and bundles. All of it goes with the `Lab`,
//! however a test ends.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use test_needs::{Need, skip};
use wirewised::plane;

use crate::common::{bundle_with, manifest, members};
use crate::compiled::compile;
use crate::quiet::{self, Sending};

pub const SENDER: &str = "10.9.0.1";
pub const RECEIVER: &str = "10.9.0.2";
/// The interface under test, in the receiver's namespace.
pub const INTERFACE: &str = "ww0";
/// UDP payloads whose IP lengths the test model takes for benign and for attack.
pub const BENIGN: usize = 50;
pub const ATTACK: usize = 500;

/// A second interface beside the one under test, to another network, between which the namespace routes; its other end's address, and its own.
pub const SECOND: &str = "ww2";
pub const FAR: &str = "10.8.0.1";
const OWN: &str = "10.8.0.2";

/// The data path of this repository with the model of fixtures/datapath.
pub fn data_path() -> Option<&'static [u8]> {
    static OBJECT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("../../bpf/main.bpf.c", &[])).as_deref()
}

/// The same with another border between the classes (`BORDER=length`), or with a larger flow state (`WIDE`).
pub fn variant(define: &str) -> Vec<u8> {
    compile("../../bpf/main.bpf.c", &[define]).unwrap()
}

/// The small data path of the other tests; `BROKEN`: the verifier refuses it.
pub fn small_path(defines: &[&str]) -> Option<Vec<u8>> {
    compile("tests/fixtures/fixture.bpf.c", defines)
}

/// A program of somebody else's: fixtures/foreign.bpf.c.
pub fn foreign(defines: &[&str]) -> Vec<u8> {
    compile("tests/fixtures/foreign.bpf.c", defines).unwrap()
}

/// Takes off a program of somebody else's. Closing its link might not be enough: a process that another test starts has the
/// descriptor too, until it runs its program.
pub fn take_off(link: OwnedFd) {
    plane::link::detach(link.as_fd()).unwrap();
}

/// A bundle called `name` around an object of the model of fixtures/datapath.
pub fn bundle(name: &str, object: &[u8]) -> Vec<u8> {
    changed_bundle(name, object, |_| ())
}

/// As `bundle`, with something else in its manifest.
pub fn changed_bundle(name: &str, object: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let members = members(object);
    let mut manifest = manifest(&members);
    manifest["name"] = json!(name);
    manifest["feature_names"] = json!(["length", "sum_length"]);
    manifest["features"] = json!([]);
    manifest["flow"]["features"] = json!([
        {"name": "total", "unit": "bytes", "fraction_bits": 0, "how": "value", "variable": "sum_length", "samples": "packets"},
        {"name": "mean", "unit": "bytes", "fraction_bits": 16, "how": "ratio", "variable": "sum_length", "samples": "packets",
         "shift": 16},
    ]);
    manifest["model"]["n_features"] = json!(2);
    change(&mut manifest);
    bundle_with(&manifest, &members)
}

/// A bundle whose model has the classes in this order.
pub fn bundle_of_classes(name: &str, object: &[u8], classes: &[&str]) -> Vec<u8> {
    changed_bundle(name, object, |manifest| {
        manifest["classes"] = json!(classes);
        manifest["model"]["n_classes"] = json!(classes.len());
    })
}

/// A network namespace.
pub struct Namespace(String);

impl Namespace {
    pub fn new(name: String) -> Self {
        sh(&format!("ip netns add {name}"));
        let namespace = Self(name);
        // Neighbour discovery would add packets that nobody sent.
        namespace.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
        namespace.sh("ip link set lo up");
        namespace
    }

    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    pub fn sh(&self, command: &str) -> String {
        sh(&format!("nsenter --net={} {command}", self.path()))
    }

    /// Runs `work` in a thread that is in this namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.path()).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: moves only this thread, which ends with `work`; the descriptor is open.
                let code = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(code, 0, "setns: {}", io::Error::last_os_error());
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

/// A BPF file system.
struct BpfFs(PathBuf);

impl BpfFs {
    fn mount(path: PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        sh(&format!("mount -t bpf bpf {}", path.display()));
        Self(path)
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

pub struct Lab {
    // In the order they are dropped: pins first, so that no program outlives its test.
    bpf: BpfFs,
    sender: Namespace,
    receiver: Namespace,
    folder: tempfile::TempDir,
    /// Who runs the agent; empty: root.
    pub runner: Vec<String>,
}

impl Lab {
    /// `None`, the test being skipped, where programs cannot be compiled or attached.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the call has no arguments and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            skip(Need::Root, "network namespaces need root");
            return None;
        }
        let object = data_path()?;
        let unique = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::Builder::new().prefix("été-").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let lab = Self {
            bpf: BpfFs::mount(folder.path().join("bpf")),
            sender: Namespace::new(format!("ww-s-{unique}")),
            receiver: Namespace::new(format!("ww-r-{unique}")),
            folder,
            runner: Vec::new(),
        };
        quiet::wait_for_agents_in(lab.folder.path());
        lab.join();
        lab.write("b.wirewise", &bundle("first", object));
        Some(lab)
    }

    /// Joins the namespaces, which they are from the beginning, until one of the two interfaces is deleted.
    pub fn join(&self) {
        self.join_with("");
    }

    /// As `join`; queues : `numrxqueues 2 numtxqueues 2`, of the interface under test.
    pub fn join_with(&self, queues: &str) {
        let (sender, receiver) = (&self.sender.0, &self.receiver.0);
        sh(&format!(
            "ip link add ww1 netns {sender} address 02:00:00:00:00:01 type veth \
             peer name {INTERFACE} {queues} netns {receiver} address 02:00:00:00:00:02"
        ));
        self.sender.sh(&format!("ip addr add {SENDER}/24 dev ww1"));
        self.receiver.sh(&format!("ip addr add {RECEIVER}/24 dev {INTERFACE}"));
        self.sender.sh("ip link set ww1 up");
        self.receiver.sh(&format!("ip link set {INTERFACE} up"));
        self.sender.sh(&format!("ip neigh add {RECEIVER} lladdr 02:00:00:00:00:02 dev ww1"));
    }

    /// veth leaves checksums to a card that is not there, and a program at XDP sees them undone; a real card sends whole packets.
    pub fn whole_packets(&self) {
        self.sender_sh("ethtool -K ww1 tx off");
    }

    /// Puts the agent where those may run it who may not look into the checkout. Another process copies: a file that this one has open
    /// for writing is busy for as long as any child that was started meanwhile has not executed yet.
    pub fn copy_agent(&self) {
        sh(&format!("cp {} {}", env!("CARGO_BIN_EXE_wirewised"), self.path("wirewised").display()));
    }

    /// Has the agent run by other words before it.
    pub fn run_by(&mut self, words: &[&str]) {
        let agent = self.path("wirewised");
        if !agent.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wirewised"), agent).unwrap();
        }
        self.runner = words.iter().map(|word| (*word).to_string()).collect();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
        // Also for an agent that is not root, where the umask is strict.
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o644)).unwrap();
    }

    pub fn policy(&self, text: &str) {
        self.write("p.yaml", format!("version: 1\n{text}\n").as_bytes());
    }

    /// The network namespace of the interface under test.
    pub fn receiver_path(&self) -> String {
        self.receiver.path()
    }

    /// In the namespace of the interface under test.
    pub fn sh(&self, command: &str) -> String {
        self.receiver.sh(command)
    }

    pub fn sender_sh(&self, command: &str) -> String {
        self.sender.sh(command)
    }

    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.receiver.enter(work)
    }

    pub fn enter_sender<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.sender.enter(work)
    }

    /// The agent, in the namespace of the interface under test, in the folder of this lab.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.receiver.path())).args(&self.runner);
        command.arg(if self.runner.is_empty() {
            env!("CARGO_BIN_EXE_wirewised").into()
        } else {
            self.path("wirewised")
        });
        command.args(arguments.split_whitespace());
        if !arguments.contains("--pin-root") && !arguments.starts_with("verify") {
            command.arg("--pin-root").arg(self.pins());
        }
        command.current_dir(self.folder.path()).env("TMPDIR", self.folder.path());
        command
    }

    /// A command of the agent that touches no interface.
    pub fn agent(&self, arguments: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirewised"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).output().unwrap()
    }

    pub fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{arguments} --json"))).unwrap()
    }

    /// The one line of a run that must fail with this exit code.
    pub fn error(&self, arguments: &str, exit_code: i32) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit_code), "{arguments}: {stderr}");
        let errors: Vec<_> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
        let [error] = errors[..] else { panic!("{arguments}: not one line: {stderr}") };
        assert!(error.starts_with("error: "), "{stderr}");
        error.to_owned()
    }

    /// Attaches in the foreground; the agent is killed with the guard.
    pub fn foreground(&self, arguments: &str) -> Foreground {
        let mut command = self.command(&format!(
            "run --bundle b.wirewise --interface {INTERFACE} {arguments} --yes --foreground"
        ));
        Foreground(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Attaches, then returns the status.
    pub fn attach(&self, arguments: &str) -> Value {
        let answer = self.json(&format!("run --bundle b.wirewise --interface {INTERFACE} {arguments} --yes"));
        answer["status"].clone()
    }

    pub fn status(&self) -> Value {
        self.json(&format!("status --interface {INTERFACE}"))["attachments"][0].clone()
    }

    pub fn stats(&self) -> Value {
        self.json("stats")
    }

    pub fn pins(&self) -> PathBuf {
        self.bpf.0.join("wirewise")
    }

    /// Names under the pin directory, in order.
    pub fn pinned(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.pins()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                names.push(path.strip_prefix(&self.bpf.0).unwrap().display().to_string());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }

    /// What `ip` says about XDP on an interface of the receiver's namespace.
    pub fn xdp(&self, interface: &str) -> Option<(u64, u64)> {
        xdp_of(&self.receiver.0, interface)
    }

    /// The names of both namespaces: the sender's, and that of the interface under test.
    pub fn namespaces(&self) -> [&str; 2] {
        [&self.sender.0, &self.receiver.0]
    }

    /// Nothing is attached and nothing pinned: not even an empty directory.
    pub fn assert_untouched(&self) {
        assert_eq!(self.xdp(INTERFACE), None);
        assert_eq!(self.pinned(), [""; 0]);
        assert!(!self.pins().exists());
    }

    /// Sends UDP packets to a port of the receiver, and returns how many arrived.
    pub fn send(&self, port: u16, payload: usize, count: usize) -> usize {
        self.flow(port).send(payload, count)
    }

    /// As `send`, from a port of the sender.
    pub fn send_between(&self, from: u16, to: u16, payload: usize, count: usize) -> usize {
        self.flow_between(from, to).send(payload, count)
    }

    /// A flow to a port of the receiver.
    pub fn flow(&self, port: u16) -> Flow {
        self.flow_between(0, port)
    }

    /// from : 0: any.
    fn flow_between(&self, from: u16, port: u16) -> Flow {
        let receiver = self.receiver.enter(|| bind(RECEIVER, port));
        let (sender, interface) = self.sender.enter(|| (bind(SENDER, from), Sending::on("ww1")));
        sender.connect((RECEIVER, port)).unwrap();
        Flow { sender, interface, receiver }
    }

    /// Sends so many benign packets, each of a flow of its own.
    pub fn spread(&self, flows: usize) {
        // Nobody is to answer each of them: the mask is of what is limited, here that nobody listens.
        self.receiver.sh(
            "sysctl -qw net.ipv4.icmp_ratemask=8 net.ipv4.icmp_msgs_per_sec=1 net.ipv4.icmp_msgs_burst=1",
        );
        let sockets: Vec<_> = (0..flows.div_ceil(60_000))
            .map(|_| self.sender.enter(|| UdpSocket::bind((SENDER, 0)).unwrap()))
            .collect();
        self.sender.enter(|| Sending::on("ww1")).each(flows, |flow| {
            sockets[flow / 60_000].send_to(&[0; BENIGN], (RECEIVER, 1 + (flow % 60_000) as u16)).unwrap();
        });
    }

    /// Packets that came to the interface under test, as its driver counts them.
    pub fn received(&self) -> u64 {
        let links: Value =
            serde_json::from_str(&self.sh(&format!("ip -j -s link show {INTERFACE}"))).unwrap();
        links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    }
}

/// The namespace at the other end of the second interface, for as long as it is kept.
pub fn second(lab: &Lab) -> Namespace {
    let [_, receiver] = lab.namespaces();
    let far = Namespace::new(receiver.replace("ww-r-", "ww-f-"));
    far.sh(&format!(
        "ip link add far0 address 02:00:00:00:08:01 type veth peer name {SECOND} netns {receiver}"
    ));
    far.sh(&format!("ip addr add {FAR}/24 dev far0"));
    far.sh("ip link set far0 up");
    far.sh(&format!("ip route add default via {OWN}"));
    lab.sh(&format!("ip addr add {OWN}/24 dev {SECOND}"));
    lab.sh(&format!("ip link set {SECOND} up"));
    lab.sh("sysctl -qw net.ipv4.ip_forward=1");
    lab.sender_sh("ip route add default via 10.9.0.2");
    far
}

/// The packets between two sockets.
pub struct Flow {
    sender: UdpSocket,
    interface: Sending,
    receiver: UdpSocket,
}

impl Flow {
    /// Sends UDP packets, and returns how many arrived.
    pub fn send(&self, payload: usize, count: usize) -> usize {
        self.interface.each(count, |_| {
            self.sender.send(&vec![0; payload]).unwrap();
        });
        quiet::arrivals(&self.receiver, count)
    }

    /// Sends without a pause for as long as the work takes, so that the one never ends before the other. The packets have to be dropped.
    pub fn send_during(&self, payload: usize, work: impl FnOnce()) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    self.sender.send(&vec![0; payload]).unwrap();
                }
            });
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, Ordering::Relaxed);
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert_eq!(
            quiet::arrivals(&self.receiver, 1),
            0,
            "a packet passed that every one of the programs drops"
        );
    }
}

/// A socket with room for all that a test sends. A test that starts a process at this moment may still have the socket of the call before,
/// until it executes.
pub fn bind(address: &str, port: u16) -> UdpSocket {
    for _ in 0..1000 {
        match UdpSocket::bind((address, port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(15));
            }
            other => {
                let socket = other.unwrap();
                quiet::make_room(&socket);
                return socket;
            }
        }
    }
    panic!("port {port} of {address} stays in use");
}

/// An agent in the foreground.
pub struct Foreground(pub Child);

impl Foreground {
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child was not waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `ip` says about XDP on an interface: `None`, or mode (1 native, 2 generic) and program.
pub fn xdp_of(namespace: &str, interface: &str) -> Option<(u64, u64)> {
    let links: Value =
        serde_json::from_str(&sh(&format!("ip -n {namespace} -j link show {interface}"))).unwrap();
    let xdp = &links[0]["xdp"];
    Some((xdp["mode"].as_u64()?, xdp["prog"]["id"].as_u64()?))
}

/// Runs a command that must succeed; returns its standard output.
pub fn sh(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
