// SPDX-License-Identifier: Apache-2.0
//! The actor that the agent carries, and actors in bundles that were compiled without them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ::object as object_file;
use ::object::{Object as _, ObjectSection as _};
use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, ProgramInput};
use test_needs::{Need, skip};
use wirewised::abi::maps::{POLICY, in_object};
use wirewised::abi::{self, Action, Mode};
use wirewised::bundle::Bundle;
use wirewised::bundle::inspection;
use wirewised::bundle::program::{Program, Reference};
use wirewised::object::{self, Opened, Settings, bytes_of_cpus, seed_from};

use crate::common::bundle;
use crate::fixture::{data_path, toy_actor};

/// The compiler of scripts/actor.sh.
const CLANG: &str = "clang-19";
/// What the kernel rounds a function's stack up to.
const FRAME_UNIT: i32 = 32;

#[test]
fn the_agent_carries_what_the_sources_give() {
    if Command::new(CLANG).arg("--version").output().is_err() {
        return skip(Need::Clang, format_args!("no {CLANG}, which makes the agent's actor"));
    }
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(Command::new(root.join("scripts/actor.sh")).arg(folder.path()).status().unwrap().success());
    let made = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let actor = inspection::read_actor(&made("act.o")).unwrap();
    assert!(actor == inspection::read_actor(object::link::OBJECT).unwrap(), "run `make act`");
    for name in ["dispatcher-2.bpf.o", "dispatcher-3.bpf.o", "component.bpf.o"] {
        let carried = std::fs::read(root.join("bpf/dispatch").join(name)).unwrap();
        assert!(loaded_parts(&made(name)) == loaded_parts(&carried), "{name}: run `make act`");
    }
}

/// The sections that come to the kernel. Those for debuggers name the build of the compiler.
fn loaded_parts(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let object = object_file::File::parse(bytes).unwrap();
    let sections = object.sections().filter_map(|section| {
        let name = section.name().unwrap().to_owned();
        ["xdp", ".text", ".rodata", ".maps", ".BTF", "license", "xdp_metadata"]
            .contains(&name.as_str())
            .then(|| (name, section.data().unwrap().to_vec()))
    });
    sections.collect()
}

/// Bytes of the stack of a function and of all that it calls.
fn stack(program: &Program, function: usize, known: &mut BTreeMap<usize, i32>) -> i32 {
    const MOVE: u8 = 0xbf;
    const ADD: u8 = 0x07;
    const STACK: u8 = 10;
    if let Some(known) = known.get(&function) {
        return *known;
    }
    let it = &program.functions[function];
    let mut own = 0;
    for pair in it.slots.windows(2) {
        let [code, registers, low, high, ..] = pair[0];
        let (to, from) = (registers & 15, registers >> 4);
        let offset = i32::from(i16::from_le_bytes([low, high]));
        // Loads and stores, and addresses that are made for others.
        if matches!(code & 7, 1) && from == STACK || matches!(code & 7, 2 | 3) && to == STACK {
            own = own.max(-offset);
        }
        if code == MOVE && from == STACK && pair[1][0] == ADD && pair[1][1] & 15 == to {
            own = own.max(-i32::from_le_bytes(pair[1][4..].try_into().unwrap()));
        }
    }
    let callees = it.references.values().filter_map(|reference| match reference {
        Reference::Function(callee) => Some(*callee),
        _ => None,
    });
    let deepest = callees.map(|callee| stack(program, callee, known)).max().unwrap_or(0);
    let sum = (own + FRAME_UNIT - 1) / FRAME_UNIT * FRAME_UNIT + deepest;
    known.insert(function, sum);
    sum
}

#[test]
fn the_actor_takes_no_more_stack_than_bundles_leave_it() {
    let actor = inspection::read_actor(object::link::OBJECT).unwrap();
    let room = [
        ("ww_act", abi::ACT_STACK),
        ("ww_describe", abi::ACT_STACK),
        ("ww_denied4", abi::DENY_STACK),
        ("ww_denied6", abi::DENY_STACK),
        ("ww_ban", abi::DENY_STACK),
        ("ww_weigh4", abi::DENY_STACK),
        ("ww_weigh6", abi::DENY_STACK),
        ("ww_told", abi::TELL_STACK),
    ];
    for (name, room) in room {
        let entry = actor.functions.iter().position(|function| function.name == name).unwrap();
        let taken = stack(&actor, entry, &mut BTreeMap::new());
        assert!((1..=room as i32).contains(&taken), "{name}: {taken}");
    }
}

/// Whose frame would be below the actor's, even if the call is dead code by the constants of the load.
#[test]
fn the_path_of_ipv6_holds_no_call_of_the_actor() {
    let Some(bundle) = data_path() else { return };
    let program = inspection::read(&bundle).unwrap();
    let named = |name: &str| program.functions.iter().position(|function| function.name == name).unwrap();
    let calls = |name: &str| {
        let mut references = program.functions[named(name)].references.values();
        references.any(|it| matches!(it, Reference::Function(callee) if *callee == named("ww_act")))
    };
    assert!(calls("ww_act_ipv6") && !calls("ww_process_ipv6"));
}

#[test]
fn an_action_of_later_works_with_a_bundle_of_before() {
    let (Some(bundle), Some(toy)) = (data_path(), toy_actor()) else { return };
    let toy = inspection::read_actor(&toy).unwrap();
    let linked = inspection::read(&bundle).unwrap().link(&toy).unwrap().encode();
    let opened = Opened::open("toy", &linked).unwrap();
    let config = opened.configure(&Settings { acts: 1, ..Settings::on_cpu(0, seed_from(1)) }).unwrap();
    let mut open = ObjectBuilder::default().name("wirewise").unwrap().open_memory(&linked).unwrap();
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(bytes) = object::constants(&name, &config) {
            map.set_initial_value(&bytes).unwrap();
        } else if let Some(bytes) = bytes_of_cpus(&name, &config) {
            map.set_value_size(bytes).unwrap();
        } else if let Some(entries) = object::max_entries(&name, &config).unwrap() {
            map.set_max_entries(entries).unwrap();
        }
    }
    let loaded = open.load().unwrap();
    let map = |name: &str| loaded.maps().find(|map| map.name() == name).unwrap();
    let mut policy = abi::Policy { mode: Mode::Enforce.code(), ..abi::Policy::zeroed() };
    policy.class_policy.iter_mut().for_each(|class| class.action = Action::Act.code());
    map(&in_object(POLICY)).update(&[0; 4], bytes_of(&policy), MapFlags::ANY).unwrap();
    wirewised::kernel::pin_to(0).unwrap();
    let frame = wirewised::offline::test_run::default_frame();
    let entry = loaded.progs_mut().find(|program| program.name() == object::ENTRY).unwrap();
    let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
    assert_eq!(entry.test_run(input).unwrap().return_value, libbpf_sys::XDP_DROP);
    assert_eq!(map("ww_toy").lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap(), 1u64.to_ne_bytes());
}

#[test]
fn a_bundle_may_hold_nothing_of_an_actor() {
    let (Some(object), Some(toy)) = (data_path(), toy_actor()) else { return };
    let program = inspection::read(&object).unwrap();
    let actors = [toy, object::link::OBJECT.to_vec()].map(|actor| inspection::read_actor(&actor).unwrap());
    for actor in &actors {
        let linked = program.clone().link(actor).unwrap().encode();
        let refused = Bundle::from_bytes(&bundle(&linked)).unwrap().program().unwrap_err();
        assert!(refused.contains("holds the") || refused.contains("calls helper"), "{refused}");
    }
    let twice = program.link(&actors[1]).unwrap().link(&actors[1]).unwrap_err();
    assert!(twice.contains("which is the agent's"), "{twice}");
}
