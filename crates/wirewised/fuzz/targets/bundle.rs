// SPDX-License-Identifier: Apache-2.0
//! The bundle reader on any bytes: as they are, with a right seal (else nothing behind the seal is ever reached), and
//! as a manifest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::bundle::Bundle;
use readers::manifest::Manifest;
use sha2::{Digest, Sha256};

const SEAL: usize = 64;

fuzz_target!(|data: &[u8]| {
    check(Bundle::from_bytes(data).map(drop));
    check(Manifest::parse(data).map(drop));
    if data.len() >= SEAL {
        let body = &data[..data.len() - SEAL];
        let seal: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        check(Bundle::from_bytes(&[body, seal.as_bytes()].concat()).map(drop));
    }
});

fn check(result: Result<(), String>) {
    if let Err(message) = result {
        readers::assert_one_line(&message);
    }
}
