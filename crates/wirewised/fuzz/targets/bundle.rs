// SPDX-License-Identifier: Apache-2.0
//! The bundle reader on any bytes: as they are, with a right seal (else nothing behind the seal is ever reached), as a
//! manifest, as a signature, and as the object of a bundle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::bundle::Bundle;
use readers::bundle::inspection;
use readers::bundle::manifest::{ClockName, Flow, Manifest, Sharing, StateField, StateType};
use readers::bundle::signature;
use sha2::{Digest, Sha256};

const SEAL: usize = 64;

/// What the seeds' objects are compiled for.
fn flow() -> Flow {
    let state = vec![StateField { name: "sum_length".to_string(), kind: StateType::U64, offset: 0 }];
    Flow {
        key: "five-tuple".to_string(),
        table_size: 1024,
        sharing: Sharing::PerCpu,
        claim: None,
        features: Vec::new(),
        aggregates: Vec::new(),
        idle_timeout_ns: 60_000_000_000,
        grace_ns: 10_000_000_000,
        proven_packets: 4,
        clock: ClockName::Coarse,
        entry4_size: 64,
        entry6_size: 64,
        layout_digest: String::new(),
        state,
    }
}

fuzz_target!(|data: &[u8]| {
    check(inspection::check(data, &flow()).map(drop));
    check(signature::check(data, "").map(drop));
    check(read(data));
    check(Manifest::parse(data).map(drop));
    if data.len() >= SEAL {
        let body = &data[..data.len() - SEAL];
        let seal: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        check(read(&[body, seal.as_bytes()].concat()));
    }
});

fn read(data: &[u8]) -> Result<(), String> {
    Bundle::from_bytes(data)?.check_program()
}

fn check(result: Result<(), String>) {
    if let Err(message) = result {
        readers::assert_one_line(message);
    }
}
