// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a file of a key, public or private.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::keys;

fuzz_target!(|data: &[u8]| {
    keys::public_key(data);
    keys::private_key(data);
});
