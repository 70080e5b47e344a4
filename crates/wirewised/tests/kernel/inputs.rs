// SPDX-License-Identifier: Apache-2.0
//! What is not a file where one is expected is refused at once; what becomes large costs no memory.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{bundle_with, manifest, members, reseal, seal};
use crate::fixture::{Place, object, pcap, udp};

/// Seconds after which a command hangs.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Ended {
    pub code: i32,
    pub stderr: String,
}

/// Runs the agent; a run that waits for something fails the test.
fn ended(place: &Place, arguments: &[&str]) -> Ended {
    ended_within(place, arguments, libc::RLIM_INFINITY)
}

/// As `ended`, with so many bytes of memory; the agent dies if it wants more.
pub fn ended_within(place: &Place, arguments: &[&str], memory: u64) -> Ended {
    let stderr = place.path("stderr");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wirewised"));
    command.args(arguments).current_dir(place.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&stderr).unwrap());
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: memory, rlim_max: memory };
        // SAFETY: the structure is ours, and the call may be made between fork and exec.
        match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: it calls nothing but setrlimit.
    let mut child = unsafe { command.pre_exec(limit) }.spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stderr = fs::read_to_string(stderr).unwrap();
    let code = status.code().unwrap_or_else(|| panic!("{arguments:?} died: {status}, {stderr}"));
    Ended { code, stderr }
}

/// Makes in the place what is not a file; returns its name and what it is called.
fn not_files(place: &Place) -> [(&'static str, &'static str); 4] {
    let fifo = CString::new(place.path("fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: a text that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    drop(UnixListener::bind(place.path("socket")).unwrap());
    fs::create_dir(place.path("folder")).unwrap();
    [
        ("fifo", "is a pipe"),
        ("socket", "is a socket"),
        ("folder", "is a folder"),
        ("/dev/zero", "is a device"),
    ]
}

#[test]
fn what_is_not_a_file_is_refused_and_never_waited_for() {
    let Some(place) = object(&[]).map(|object| Place::new(&object)) else { return };
    place.write("x.pcap", &pcap(&[udp(1, 60)]));
    place.stdout("keygen k.key");
    place.write("features.json", br#"{"features": ["length"]}"#);
    place.write("tunnels.yaml", b"version: 1\nclasses: {}\ntunnels: odd\n");
    let commands = [
        "verify --no-load --bundle odd",
        "verify --object odd",
        "sign odd --key k.key",
        "sign b.wirewise --key odd",
        "replay x.pcap --caged --bundle odd",
        "replay x.pcap --caged --bundle b.wirewise --policy odd",
        "replay x.pcap --caged --bundle b.wirewise --policy tunnels.yaml",
        "features x.pcap --caged --bundle b.wirewise -o t.jsonl --labels odd.yaml",
        "features x.pcap --caged --bundle b.wirewise -o t.jsonl --labels odd.json",
        "features x.pcap --caged --bundle b.wirewise -o t.jsonl --labels odd.flows",
        "features x.pcap --caged --object odd -f features.json -o t.jsonl",
        "features x.pcap --caged --object x.bpf.o -f odd -o t.jsonl",
        "explain x.pcap --packet 1 --plane engine --bundle odd",
        "trace x.pcap --plane engine --bundle odd",
        "infer x.pcap --bundle odd",
    ];
    for (target, called) in not_files(&place) {
        for name in ["odd", "odd.yaml", "odd.json", "odd.flows"] {
            let _ = fs::remove_file(place.path(name));
            symlink(target, place.path(name)).unwrap();
        }
        for command in commands {
            // A folder is looked for a manifest.
            if target == "folder" && command.contains("--labels") {
                continue;
            }
            let Ended { code, stderr } = ended(&place, &command.split(' ').collect::<Vec<_>>());
            assert!(code == 2 && stderr.contains(called), "{command}, {target}: {code}, {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    // Captures and rows may come through a pipe, but neither from a device nor from a socket.
    for target in ["socket", "/dev/zero", "folder"] {
        for command in [
            "trace odd --plane engine --bundle b.wirewise",
            "explain odd --packet 1 --plane engine --bundle b.wirewise",
            "replay odd --caged --bundle b.wirewise",
            "features odd --caged --bundle b.wirewise -o t.jsonl",
            "features x.pcap --caged --bundle b.wirewise -o t.jsonl --labels odd.csv",
        ] {
            let _ = fs::remove_file(place.path("odd"));
            let _ = fs::remove_file(place.path("odd.csv"));
            symlink(target, place.path("odd")).unwrap();
            symlink(target, place.path("odd.csv")).unwrap();
            let Ended { code, stderr } = ended(&place, &command.split(' ').collect::<Vec<_>>());
            assert!(code == 2, "{command}, {target}: {code}, {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

#[test]
fn keys_that_are_not_files_are_refused() {
    let Some(place) = object(&[]).map(|object| Place::new(&object)) else { return };
    place.stdout("keygen k.key");
    place.stdout("sign b.wirewise --key k.key");
    fs::create_dir(place.path("keys")).unwrap();
    fs::set_permissions(place.path("keys"), fs::Permissions::from_mode(0o755)).unwrap();
    for (target, called) in not_files(&place) {
        let target = if target.starts_with('/') { target.to_owned() } else { format!("../{target}") };
        symlink(target, place.path("keys/a.pub")).unwrap();
        let command = "verify --bundle b.wirewise --no-load --require-signature --trusted-keys keys";
        let Ended { code, stderr } = ended(&place, &command.split(' ').collect::<Vec<_>>());
        assert!(code == 2 && stderr.contains("a.pub") && stderr.contains(called), "{code}, {stderr}");
        fs::remove_file(place.path("keys/a.pub")).unwrap();
    }
}

#[test]
fn captures_and_rows_are_read_from_pipes() {
    let Some(place) = object(&[]).map(|object| Place::new(&object)) else { return };
    place.write("x.pcap", &pcap(&[udp(1, 60), udp(2, 300)]));
    let agent = env!("CARGO_BIN_EXE_wirewised");
    for source in ["-", "/dev/stdin", "<(cat x.pcap)", "fifo"] {
        let script = format!(
            "set -e; rm -f fifo; mkfifo fifo; [ {source} != fifo ] || cat x.pcap > fifo & \
             cat x.pcap | {agent} replay --caged --bundle b.wirewise --json {source}; wait"
        );
        let script = script.replace("[ <(cat x.pcap) != fifo ]", "true");
        let script = if source == "fifo" { script } else { script.replace("|| cat x.pcap > fifo", "") };
        let output = Command::new("bash").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{source}: {stderr}"));
        assert_eq!(report["packets"], 2, "{source}");
    }
}

/// `depth` lists in each other.
fn deep(depth: usize) -> Vec<u8> {
    ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes()
}

/// A list of as many equal parts as take `bytes`.
fn long(part: &str, bytes: usize) -> String {
    let count = bytes / (part.len() + 1);
    format!("[{}]", vec![part; count.max(1)].join(","))
}

#[test]
fn what_a_bundle_becomes_is_bounded_before_it_is_built() {
    let Some(object) = object(&[]) else { return };
    let place = Place::new(&object);
    let good = fs::read(place.path("b.wirewise")).unwrap();
    let base = members(&object);
    let with = |name: &str, content: Vec<u8>| {
        let mut members = base.clone();
        members.insert(name.to_owned(), content);
        bundle_with(&manifest(&members), &members)
    };
    let with_manifest = |key: &str, text: String| {
        // As text: the value would take the memory here.
        let document = manifest(&base).to_string();
        let start = document.strip_suffix('}').unwrap();
        let document = format!("{start},\"{key}\":{text}}}");
        let mut all = vec![("manifest.json", document.as_bytes())];
        all.extend(base.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
        seal(&all)
    };
    const MUCH: usize = 15 << 20;
    let tree = r#"{"feature":[-1],"threshold":[0],"left":[-1],"right":[-1],"value":[[0]],"output":null}"#;
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("as it is".into(), good),
        ("model of zeros".into(), with("model.json", long("0", MUCH).into_bytes())),
        ("model of lists".into(), with("model.json", long("[]", MUCH).into_bytes())),
        ("model of objects".into(), with("model.json", long("{}", MUCH).into_bytes())),
        ("deep model".into(), with("model.json", deep(MUCH / 2))),
        (
            "model that is one text".into(),
            with("model.json", format!("\"{}\"", "a".repeat(MUCH)).into_bytes()),
        ),
        ("model that is one number".into(), with("model.json", "1".repeat(MUCH).into_bytes())),
        (
            "trees".into(),
            with(
                "model.json",
                format!(r#"{{"family":"tree-ensemble","trees":{}}}"#, long(tree, MUCH)).into_bytes(),
            ),
        ),
        (
            "unknown family".into(),
            with(
                "model.json",
                format!(r#"{{"family":"rules","rules":{}}}"#, long("[0]", 6 << 20)).into_bytes(),
            ),
        ),
        ("features of zeros".into(), with("features.json", long("0", MUCH).into_bytes())),
        ("features of objects".into(), with("features.json", long("{\"a\":{}}", 1 << 20).into_bytes())),
        ("large object".into(), with("program.bpf.o", vec![0; MUCH])),
        ("large source".into(), with("sources/ww_model.h", vec![b' '; MUCH])),
        ("large card".into(), with("card.md", vec![b' '; MUCH])),
        ("more than there may be".into(), with("card.md", vec![b' '; 300 << 20])),
        ("manifest of zeros".into(), with_manifest("training", format!("{{\"a\":{}}}", long("0", MUCH)))),
        (
            "manifest of lists".into(),
            with_manifest("training", format!("{{\"a\":{}}}", long("[0]", 1 << 20))),
        ),
        (
            "manifest of objects".into(),
            with_manifest("training", format!("{{\"a\":{}}}", long("{\"a\":0}", 1 << 20))),
        ),
        ("deep manifest".into(), with_manifest("training", String::from_utf8(deep(1 << 20)).unwrap())),
    ];
    let many: Vec<_> = (0..60_000).map(|number| format!("sources/{number}")).collect();
    cases.push((
        "many members".into(),
        seal(&many.iter().map(|name| (name.as_str(), &b""[..])).collect::<Vec<_>>()),
    ));
    // The end of the archive, where its number of members is.
    let mut lying = cases[cases.len() - 1].1.clone();
    let end = lying.len() - 64 - 22;
    lying[end + 8..end + 12].copy_from_slice(&[6, 0, 6, 0]);
    cases.push(("many members, said to be six".into(), reseal(lying)));
    for (name, bytes) in cases {
        fs::write(place.path("h.wirewise"), &bytes).unwrap();
        let most = (64 << 20) + 10 * bytes.len() as u64;
        let arguments = ["verify", "--no-load", "--bundle", "h.wirewise"];
        println!("{name}: {} bytes", bytes.len());
        let Ended { code, stderr } = ended_within(&place, &arguments, most);
        println!("  {code} {stderr}");
        assert!(code == 0 || code == 2, "{name}: {code}, {stderr}");
        assert_eq!(stderr.lines().count(), usize::from(code == 2), "{name}: {stderr}");
    }
}

/// No key of a bundle's documents may be missing, or hold something else, without one line that says so.
#[test]
fn every_key_that_is_missing_or_of_another_kind_is_read_or_refused_in_one_line() {
    let Some(object) = object(&[]) else { return };
    let place = Place::new(&object);
    let base = members(&object);
    let mut pointers = Vec::new();
    paths(&manifest(&base), &mut String::new(), &mut pointers);
    assert!(pointers.len() > 40, "{pointers:?}");
    let others = [
        None,
        Some(Value::Null),
        Some(json!([])),
        Some(json!({})),
        Some(json!("x")),
        Some(json!(-1)),
        Some(json!(1e300)),
    ];
    for pointer in &pointers {
        for other in &others {
            let mut edited = manifest(&base);
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let parent = edited.pointer_mut(parent).unwrap();
            match (parent, other) {
                (Value::Object(map), None) => drop(map.shift_remove(key)),
                (Value::Object(map), Some(value)) => drop(map.insert(key.to_owned(), value.clone())),
                (Value::Array(list), None) => drop(list.remove(key.parse().unwrap())),
                (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value.clone(),
                _ => unreachable!(),
            }
            fs::write(place.path("h.wirewise"), bundle_with(&edited, &base)).unwrap();
            for command in
                ["verify --no-load --bundle h.wirewise", "verify --rebuild --no-load --bundle h.wirewise"]
            {
                let Ended { code, stderr } = ended(&place, &command.split(' ').collect::<Vec<_>>());
                let lines = usize::from(code != 0);
                assert!([0, 2, 3].contains(&code), "{pointer} {other:?}: {code}, {stderr}");
                assert_eq!(stderr.lines().count(), lines, "{pointer} {other:?}: {stderr}");
            }
        }
    }
}

/// Where each part of a document is.
fn paths(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (key, value) in parts {
        // Digests have names of files.
        if at == "/digests" {
            continue;
        }
        let length = at.len();
        at.push('/');
        at.push_str(&key);
        found.push(at.clone());
        paths(value, at, found);
        at.truncate(length);
    }
}

#[test]
fn signing_a_link_signs_what_it_leads_to() {
    let Some(place) = object(&[]).map(|object| Place::new(&object)) else { return };
    place.stdout("keygen k.key");
    fs::create_dir(place.path("real")).unwrap();
    fs::rename(place.path("b.wirewise"), place.path("real/b.wirewise")).unwrap();
    symlink("real/b.wirewise", place.path("one")).unwrap();
    symlink("one", place.path("b.wirewise")).unwrap();
    place.stdout("sign b.wirewise --key k.key");
    let is_link = |path: &Path| path.symlink_metadata().unwrap().is_symlink();
    assert!(is_link(&place.path("b.wirewise")) && is_link(&place.path("one")));
    assert!(place.stdout("verify --no-load --bundle real/b.wirewise").contains("which is not trusted here"));
}

/// Deep, long, and with a header that lies: labels, feature sets and policies take no more than this.
#[test]
fn other_files_cost_no_memory_before_they_are_refused() {
    let Some(place) = object(&[]).map(|object| Place::new(&object)) else { return };
    place.write("x.pcap", &pcap(&[udp(1, 60)]));
    let aliases: String =
        (1..9).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(","))).collect();
    let yaml = |text: &str| format!("version: 1\nrules: {text}\n").into_bytes();
    let flows = |count: u64, names: u64| {
        let head = [u64::from_le_bytes(*b"WWFLOWS1"), count, 1, names];
        let mut bytes: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.resize(64, 0);
        bytes
    };
    let labels = "features x.pcap --caged --bundle b.wirewise -o t.jsonl --labels";
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        (labels, "deep.yaml", yaml(&"[".repeat(1 << 20))),
        (labels, "long.yaml", yaml(&long("a", 8 << 20))),
        (labels, "objects.yaml", yaml(&long("{a: b}", 8 << 20))),
        (labels, "aliases.yaml", format!("a0: &a0 [x]\n{aliases}").into_bytes()),
        (labels, "text.yaml", yaml(&format!("'{}'", "a".repeat(8 << 20)))),
        (labels, "deep.json", deep(20 << 20)),
        (labels, "long.json", long("0", 40 << 20).into_bytes()),
        (labels, "objects.json", long("{}", 40 << 20).into_bytes()),
        (labels, "line.csv", vec![b'a'; 64 << 20]),
        (labels, "columns.csv", long("a", 64 << 20).into_bytes()),
        (labels, "count.flows", flows(1 << 57, 0)),
        (labels, "names.flows", flows(0, u64::MAX)),
        (
            "features x.pcap --caged --object x.bpf.o -o t.jsonl -f",
            "long.json",
            long("0", 1 << 20).into_bytes(),
        ),
        ("features x.pcap --caged --object x.bpf.o -o t.jsonl -f", "deep.json", deep(1 << 19)),
        ("replay x.pcap --caged --bundle b.wirewise --policy", "long.yaml", long("a", 1 << 19).into_bytes()),
        ("replay x.pcap --caged --bundle b.wirewise --policy", "deep.yaml", deep(1 << 18)),
    ];
    for (command, name, bytes) in cases {
        fs::write(place.path(name), &bytes).unwrap();
        let command = format!("{command} {name}");
        let Ended { code, stderr } = ended_within(&place, &command.split(' ').collect::<Vec<_>>(), 256 << 20);
        assert!(code == 2 && stderr.lines().count() == 1, "{command}: {code}, {stderr}");
        assert!(stderr.contains(name), "{command}: {stderr}");
    }
    // A sparse file of the size that its header claims.
    let file = fs::File::create(place.path("sparse.flows")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &flows(1 << 36, 0), 0).unwrap();
    if file.set_len(64 + (64 << 36)).is_ok() {
        let command = format!("{labels} sparse.flows");
        let Ended { code, stderr } = ended_within(&place, &command.split(' ').collect::<Vec<_>>(), 256 << 20);
        assert!(code == 2 && stderr.lines().count() == 1, "{code}, {stderr}");
    }
}
