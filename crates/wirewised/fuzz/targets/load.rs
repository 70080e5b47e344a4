// SPDX-License-Identifier: Apache-2.0
//! Any bytes as the object of a bundle, all the way into the kernel: what the agent reads is written anew, opened by libbpf and loaded.
//! Nothing is pinned or attached, so the kernel frees all of it after each input. Needs root.
#![no_main]
#![allow(clippy::panic, clippy::expect_used, reason = "a finding ends the process")]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wirewise_engine::Linked;
use wirewised::abi::HASH_SEEDS;
use wirewised::bundle::inspection;
use wirewised::bundle::manifest::Manifest;
use wirewised::error::Result;
use wirewised::object::{Opened, Settings};

#[path = "../one_line.rs"]
mod one_line;

/// What the seeds are compiled for; it bounds the maps.
static MANIFEST: LazyLock<Manifest> = LazyLock::new(|| {
    Manifest::parse(include_bytes!("../seeds/bundle/manifest.json")).expect("a seed is a manifest")
});

fuzz_target!(|data: &[u8]| {
    let Ok(program) = inspection::check(data, &MANIFEST.flow) else { return };
    let object = program.encode();
    if let Err(error) = load(&object) {
        one_line::assert_one_line(&error.to_string());
    }
});

/// The kernel may refuse it; what it takes is what was read.
fn load(object: &[u8]) -> Result<()> {
    let read = Linked::from_elf(object).expect("the engine reads what the agent writes");
    let mut prepared = Opened::open("fuzzed", object).expect("libbpf opens what the agent writes");
    prepared.prepare_to_verify(&Settings::on_cpu(0, [1; HASH_SEEDS]))?;
    match Opened::open("fuzzed", object)?.try_load()? {
        Ok(loaded) => {
            let kernel = Linked::from_loaded(&loaded.object).expect("the engine reads what libbpf has loaded");
            assert_eq!(kernel.programs(), read.programs());
        }
        Err(refusal) => {
            one_line::assert_one_line(&refusal.clone().into_error("fuzzed").to_string());
            fs::remove_file(refusal.log_file).expect("the verifier's log was kept");
        }
    }
    Ok(())
}
