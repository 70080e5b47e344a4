// SPDX-License-Identifier: Apache-2.0
//! Rows of features from a file or a pipe: a NumPy array (.npy), or CSV with names. Which of the two it is, its first bytes say.

use std::io::{BufRead, BufReader, Read};

mod csv_text;
mod npy;

/// What is read of a source at once: as much as stays in a processor's cache.
pub const CHUNK: usize = 4096;
/// Longest line of CSV: of the largest feature set, with long names.
const BUFFER: usize = 1 << 16;

/// A source of rows, read chunk by chunk.
pub enum Rows {
    Npy(npy::Npy),
    Csv(csv_text::Csv),
}

pub type Source = BufReader<Box<dyn Read + Send>>;

impl Rows {
    /// names : of the features, in the order in which they are wanted. needed : which CSV must have; the others are
    /// 0, whatever it holds. The error is one line without the source's name.
    pub fn open(source: Box<dyn Read + Send>, names: &[String], needed: &[bool]) -> Result<Self, String> {
        let mut source = BufReader::with_capacity(BUFFER, source);
        let start = source.fill_buf().map_err(|error| format!("cannot be read: {error}"))?;
        if start.starts_with(npy::MAGIC) {
            return npy::Npy::open(source, names.len()).map(Self::Npy);
        }
        csv_text::Csv::open(source, names, needed).map(Self::Csv)
    }

    /// Replaces `rows` by the next ones, row by row; there are none at the end.
    pub fn next(&mut self, rows: &mut Vec<i64>) -> Result<(), String> {
        match self {
            Self::Npy(npy) => npy.next(rows),
            Self::Csv(csv) => csv.next(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::npy::MAGIC;
    use super::*;

    /// Reads all of it: rows, or why not.
    fn read(bytes: Vec<u8>, needed: &[bool]) -> Result<Vec<i64>, String> {
        let names = ["a", "b,c"].map(str::to_owned);
        let mut source = Rows::open(Box::new(Cursor::new(bytes)), &names, needed)?;
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        loop {
            source.next(&mut rows)?;
            if rows.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&rows);
        }
    }

    fn npy(rows: &[i64]) -> Vec<u8> {
        let header =
            format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({}, 2), }}\n", rows.len() / 2);
        let size = (header.len() as u16).to_le_bytes();
        let bytes = rows.iter().flat_map(|number| number.to_le_bytes());
        [MAGIC, &[1, 0], &size, header.as_bytes()].concat().into_iter().chain(bytes).collect()
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let rows: Vec<i64> = (0..2 * (CHUNK as i64 + 3)).map(|index| index * index - 5).collect();
        assert_eq!(read(npy(&rows), &[true, true]), Ok(rows));
        assert_eq!(read(npy(&[]), &[true, true]), Ok(vec![]));
        let csv = "x,\"b,c\", a \n?, -1 ,9223372036854775807\n?,+2,-9223372036854775808\n";
        assert_eq!(read(csv.into(), &[true, true]), Ok(vec![i64::MAX, -1, i64::MIN, 2]));
        assert_eq!(read("b,c,a\n7,?,5".into(), &[false, false]), Ok(vec![0, 0]));
        assert_eq!(read("a\n5".into(), &[true, false]), Ok(vec![5, 0]));
        assert!(read("a\n5".into(), &[true, true]).is_err_and(|error| error.contains("b,c")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_refused(
            start in proptest::sample::select(vec![npy(&[1, 2, 3, 4]), MAGIC.to_vec(), b"a,\"b,c\"\n".to_vec(), Vec::new()]),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
            end in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = [start, end].concat();
            for (place, byte) in changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            if let Err(error) = read(bytes, &[true, true]) {
                prop_assert!(!error.is_empty());
            }
        }
    }
}
