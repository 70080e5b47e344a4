// SPDX-License-Identifier: Apache-2.0
//! Rows as text: a line with the names of the columns, then whole numbers.

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::{CHUNK, Source};
use crate::files::records::Records;

/// Of a row: what no table of features comes near.
const MAX_COLUMNS: usize = 1 << 12;

pub struct Csv {
    reader: Reader<Records<Source>>,
    record: ByteRecord,
    names: Vec<String>,
    /// Where each feature stands that the model reads.
    columns: Vec<Option<usize>>,
}

impl Csv {
    pub fn open(source: Source, names: &[String], needed: &[bool]) -> Result<Self, String> {
        let mut reader = ReaderBuilder::new().trim(csv::Trim::All).from_reader(Records::of(source));
        let heading = reader.byte_headers().map_err(|error| broken(&error))?;
        if heading.len() > MAX_COLUMNS {
            return Err(format!("has {} columns, more than {MAX_COLUMNS}", heading.len()));
        }
        let mut columns = Vec::with_capacity(names.len());
        for (name, needed) in names.iter().zip(needed) {
            let column = heading.iter().position(|column| column == name.as_bytes());
            if *needed && column.is_none() {
                return Err(format!(
                    "has no column {name:?}, which the model reads; its first line must name the features, or give a NumPy array (.npy)"
                ));
            }
            columns.push(column.filter(|_| *needed));
        }
        Ok(Self { reader, record: ByteRecord::new(), names: names.to_vec(), columns })
    }

    pub fn next(&mut self, rows: &mut Vec<i64>) -> Result<(), String> {
        rows.clear();
        for _ in 0..CHUNK {
            self.reader.get_mut().begin();
            if !self.reader.read_byte_record(&mut self.record).map_err(|error| broken(&error))? {
                break;
            }
            for (name, column) in self.names.iter().zip(&self.columns) {
                let text = column.and_then(|column| self.record.get(column)).unwrap_or(b"0");
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                rows.push(number.ok_or_else(|| {
                    let line = self.record.position().map_or(0, csv::Position::line);
                    let shown: String = String::from_utf8_lossy(text).chars().take(40).collect();
                    format!("line {line}: {name} is {shown:?}, not a whole number of 64 bits; leave out rows without features")
                })?);
            }
        }
        Ok(())
    }
}

fn broken(error: &csv::Error) -> String {
    format!("is neither a NumPy array nor CSV: {error}")
}
