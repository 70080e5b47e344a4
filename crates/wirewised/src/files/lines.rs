// SPDX-License-Identifier: Apache-2.0
//! Text in lines, of which none may fill the memory.

use std::io::{self, Read};

/// Far more than a row of any table.
const MAX_LINE: usize = 1 << 20;

/// Refuses a line that is too long.
pub struct Lines<R> {
    source: R,
    length: usize,
}

impl<R> Lines<R> {
    pub fn of(source: R) -> Self {
        Self { source, length: 0 }
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.length = match buffer[..count].iter().rposition(|byte| *byte == b'\n') {
            Some(end) => count - end - 1,
            None => self.length + count,
        };
        if self.length > MAX_LINE {
            return Err(io::Error::other(format!("it has a line of more than {MAX_LINE} bytes")));
        }
        Ok(count)
    }
}
