// SPDX-License-Identifier: Apache-2.0
//! Any bytes as the object of a bundle: what is accepted is written as an object that is read as the same program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use readers::bundle::inspection;

fuzz_target!(|data: &[u8]| match inspection::read(data) {
    Ok(program) => assert_eq!(inspection::read(&program.encode()), Ok(program)),
    Err(message) => readers::assert_one_line(message),
});
