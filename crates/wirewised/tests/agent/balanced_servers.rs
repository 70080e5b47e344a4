// SPDX-License-Identifier: Apache-2.0
//! Real servers behind a balancer, and real connections: a client, the balancer, a bridge, and servers that answer the client directly.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::{Foreground, INTERFACE, Lab, Namespace};
use crate::quiet::PATIENCE;
use crate::steering::{Beyond, OUT};

/// The address of the service, which every server has on its loopback interface.
const SERVICE: &str = "10.9.0.100";
/// So many connections that a server with a third of them is left out once in 10^10.
const MANY: usize = 60;

/// Answers each connection with its number, then with what it gets.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(namespace: &Namespace, host: u8) -> Self {
        let listener = namespace.enter(|| TcpListener::bind("0.0.0.0:80").unwrap());
        listener.set_nonblocking(true).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(std::thread::spawn(move || serve(stream, host))),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            // Closing it might not be enough: a process that another test starts has it too, until it runs its program.
            // SAFETY: ends the listening of a socket that is open.
            let code = unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
            assert_eq!(code, 0, "shutdown: {}", std::io::Error::last_os_error());
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(mut stream: TcpStream, host: u8) {
    let mut bytes = [0; 4096];
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(&[host]);
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
}

struct Street {
    lab: Lab,
    beyond: Beyond,
    servers: Vec<(Namespace, Option<Server>)>,
}

impl Street {
    fn new(lab: Lab) -> Self {
        lab.whole_packets();
        let beyond = Beyond::new(&lab);
        let switch = &beyond.namespace;
        switch.sh("ip link add br0 type bridge");
        switch.sh("ip link set far0 master br0");
        switch.sh("ip link set br0 up");
        lab.sh(&format!("ip addr add 10.8.0.1/24 dev {OUT}"));
        lab.sh("sysctl -qw net.ipv4.ip_forward=1");
        lab.sender_sh(&format!("ip neigh add {SERVICE} lladdr 02:00:00:00:00:02 dev ww1"));
        let name = lab.namespaces()[1];
        let mut servers = Vec::new();
        for host in 1..=3u8 {
            let namespace = Namespace::new(name.replace("ww-r-", &format!("ww-v{host}-")));
            let there = switch.path();
            namespace.sh(&format!("ip link add eth0 type veth peer name port{host} netns {there}"));
            switch.sh(&format!("ip link set port{host} master br0 up"));
            namespace.sh(&format!("ip addr add 10.8.0.1{host}/24 dev eth0"));
            // Direct return: the servers have the service's address and do not say so to anybody.
            namespace.sh(&format!("ip addr add {SERVICE}/32 dev lo"));
            namespace.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
            namespace.sh("ethtool -K eth0 tx off");
            namespace.sh("ip link set eth0 up");
            namespace.sh("ip route add default via 10.8.0.1");
            let server = Server::start(&namespace, host);
            servers.push((namespace, Some(server)));
        }
        Self { lab, beyond, servers }
    }

    fn policy(&self, backends: &[&str]) {
        let backends = backends.iter().map(|backend| format!("{{address: 10.8.0.1{backend}}}"));
        self.lab.policy(&format!(
            "classes: {{attack: {{backend: web}}, benign: {{backend: web}}}}\npools: {{web: {{interface: {OUT}, \
             health: {{tcp: 80, interval: 100ms, timeout: 100ms, fall: 2, rise: 2}}, backends: [{}]}}}}",
            backends.collect::<Vec<_>>().join(", ")
        ));
    }

    fn connect(&self) -> (TcpStream, u8) {
        let mut stream = self.lab.enter_sender(|| {
            TcpStream::connect_timeout(&format!("{SERVICE}:80").parse().unwrap(), PATIENCE).unwrap()
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut host = [0];
        stream.read_exact(&mut host).unwrap();
        (stream, host[0])
    }

    fn hosts(&self, connections: usize) -> BTreeSet<u8> {
        (0..connections).map(|_| self.connect().1).collect()
    }

    /// Waits until a backend is said to be in a state.
    fn wait_for(&self, host: u8, state: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let pools = self.lab.json("backends");
            let backends = pools["pools"][0]["backends"].as_array().unwrap().clone();
            let found = backends.iter().find(|it| it["address"] == format!("10.8.0.1{host}")).unwrap();
            if found["state"] == state {
                return;
            }
            assert!(Instant::now() < end, "{pools}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What is sent comes back.
fn echoes((stream, host): &mut (TcpStream, u8)) -> bool {
    let sent = vec![*host; 3000];
    let mut back = vec![0; sent.len()];
    stream.write_all(&sent).is_ok() && stream.read_exact(&mut back).is_ok() && back == sent
}

#[test]
fn connections_outlive_changes_of_the_pool_and_servers_are_taken_out_and_put_back() {
    let Some(lab) = Lab::new() else { return };
    let mut street = Street::new(lab);
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        street.policy(&["1", "2", "3"]);
        street.lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        let mut open: Vec<_> = (0..MANY).map(|_| street.connect()).collect();
        let of: BTreeSet<u8> = open.iter().map(|(_, host)| *host).collect();
        assert_eq!(of, BTreeSet::from([1, 2, 3]), "{plane}");
        // One drains.
        street.policy(&["1", "2, drain: true", "3, weight: 2"]);
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
        street.lab.json(&run);
        assert!(open.iter_mut().all(echoes), "{plane}");
        assert_eq!(street.hosts(MANY), BTreeSet::from([1, 3]), "{plane}");
        let pools = street.lab.json("backends");
        assert_eq!(pools["pools"][0]["backends"][1]["state"], "draining");
        assert!(pools["pools"][0]["backends"][1]["packets"].as_u64().unwrap() > 8, "{pools}");
        let text = street.lab.ok("backends");
        assert!(text.contains("web on ww0: dsr by out0, check tcp"), "{text}");
        // One dies, and comes back.
        let mut command = street.lab.command("backends --check --json");
        let mut checker = Foreground(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        street.servers[2].1 = None;
        street.wait_for(3, "down");
        assert_eq!(street.hosts(8), BTreeSet::from([1]), "{plane}");
        street.servers[2].1 = Some(Server::start(&street.servers[2].0, 3));
        street.wait_for(3, "up");
        assert!(street.hosts(MANY).contains(&3), "{plane}");
        // A change of the policy leaves who is down as it is.
        checker.signal(libc::SIGINT);
        assert!(checker.0.wait().unwrap().success());
        let mut said = String::new();
        checker.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let turns: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(turns.iter().map(|turn| turn["up"].clone()).collect::<Vec<_>>(), [false, true], "{said}");
        assert!(turns.iter().all(|turn| turn["backend"] == "10.8.0.13" && turn["pool"] == "web"), "{said}");
        street.servers[0].1 = None;
        let once = street.lab.ok("backends --check --once");
        assert!(once.contains("10.8.0.11 is down: "), "{once}");
        street.policy(&["1", "2", "3"]);
        street.lab.json(&run);
        street.wait_for(1, "down");
        assert_eq!(street.hosts(MANY), BTreeSet::from([2, 3]), "{plane}");
        street.servers[0].1 = Some(Server::start(&street.servers[0].0, 1));
        assert!(street.lab.ok("backends --check --once").contains("10.8.0.11 is back"));
        assert!(street.hosts(MANY).contains(&1), "{plane}");
        drop(open);
        street.lab.ok(&format!("detach --interface {INTERFACE}"));
        street.beyond.wire.clear();
    }
    let error = street.lab.error("backends", 2);
    assert!(error.contains("nothing is attached"), "{error}");
    street.lab.policy("classes: {attack: drop}");
    street.lab.attach("--policy p.yaml");
    assert!(street.lab.error("backends --check", 2).contains("the policy in force has no pools"));
}
