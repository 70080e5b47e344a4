// SPDX-License-Identifier: Apache-2.0
//! Text in records, of which none may fill the memory: lines, and in CSV lines with breaks inside quotes.

use std::io::{self, Read};

/// Far more than a row of any table.
const MAX_RECORD: usize = 1 << 20;

/// Refuses to go on in a record that is too long. It is told where each begins.
pub struct Records<R> {
    source: R,
    /// Bytes read since the last record began.
    length: usize,
}

impl<R> Records<R> {
    pub fn of(source: R) -> Self {
        Self { source, length: 0 }
    }

    /// The last record is complete.
    pub fn begin(&mut self) {
        self.length = 0;
    }
}

impl<R: Read> Read for Records<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.length > MAX_RECORD {
            return Err(io::Error::other(format!("it has a line of more than {MAX_RECORD} bytes")));
        }
        let count = self.source.read(buffer)?;
        self.length += count;
        Ok(count)
    }
}
