// SPDX-License-Identifier: Apache-2.0
//! Any bytes as rows of features: a NumPy array, or CSV.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use readers::inference::rows::Rows;

fuzz_target!(|data: &[u8]| {
    if let Err(message) = read(data.to_vec()) {
        readers::assert_one_line(message);
    }
});

fn read(bytes: Vec<u8>) -> Result<(), String> {
    let names = ["a", "b,c"].map(str::to_owned);
    let mut source = Rows::open(Box::new(Cursor::new(bytes)), &names, &[true, false])?;
    let mut rows = Vec::new();
    loop {
        source.next(&mut rows)?;
        if rows.is_empty() {
            return Ok(());
        }
        assert!(rows.len().is_multiple_of(2));
    }
}
