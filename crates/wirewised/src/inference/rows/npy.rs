// SPDX-License-Identifier: Apache-2.0
//! A NumPy array of int64, row by row (numpy.lib.format, versions 1 to 3).

use std::io::{ErrorKind, Read};

use super::{CHUNK, Source};

pub const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy writes 118 bytes; more says something else than shape and type.
const MAX_HEADER: usize = 1 << 14;
const AS: &str = "save it with np.save(FILE, np.ascontiguousarray(rows, np.int64))";

pub struct Npy {
    source: Source,
    width: usize,
    /// Rows that the header says are still to come.
    left: u64,
    row: u64,
}

impl Npy {
    pub fn open(mut source: Source, width: usize) -> Result<Self, String> {
        let mut start = [0; 8];
        read(&mut source, &mut start)?;
        let mut size = [0; 4];
        let bytes = if start[6] == 1 { 2 } else { 4 };
        read(&mut source, &mut size[..bytes])?;
        let size = u32::from_le_bytes(size) as usize;
        if !(1..=3).contains(&start[6]) || size > MAX_HEADER {
            return Err(format!("is no array of NumPy's that is known here; {AS}"));
        }
        let mut header = vec![0; size];
        read(&mut source, &mut header)?;
        let header = String::from_utf8_lossy(&header);
        let value = |key: &str| value(&header, key).ok_or_else(|| format!("its header has no {key}; {AS}"));
        let kind = value("descr")?.trim_matches(['\'', '"']);
        if kind != "<i8" {
            return Err(format!("is an array of {kind:?}, not of int64; {AS}"));
        }
        if value("fortran_order")? != "False" {
            return Err(format!("is an array in Fortran order; {AS}"));
        }
        let shape: Result<Vec<u64>, _> = value("shape")?
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect();
        match shape.as_deref() {
            Ok([rows, columns]) if *columns == width as u64 => {
                Ok(Self { source, width, left: *rows, row: 0 })
            }
            Ok(shape) => Err(format!("is of shape {shape:?}, and the model wants (rows, {width} features)")),
            Err(_) => Err(format!("has an invalid shape in its .npy header; {AS}")),
        }
    }

    pub fn next(&mut self, rows: &mut Vec<i64>) -> Result<(), String> {
        let count = self.left.min(CHUNK as u64) as usize;
        rows.resize(count * self.width, 0);
        let bytes = bytemuck::cast_slice_mut(rows.as_mut_slice());
        self.source.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                format!("breaks off after row {}: {} more were announced", self.row, self.left)
            }
            _ => format!("cannot be read: {error}"),
        })?;
        rows.iter_mut().for_each(|number| *number = i64::from_le(*number));
        self.left -= count as u64;
        self.row += count as u64;
        Ok(())
    }
}

fn read(source: &mut Source, bytes: &mut [u8]) -> Result<(), String> {
    source.read_exact(bytes).map_err(|error| format!("its header cannot be read: {error}; {AS}"))
}

/// Of a dictionary as Python prints it: `{'descr': '<i8', 'fortran_order': False, 'shape': (3, 4), }`.
fn value<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    let rest = rest.trim_start();
    match rest.strip_prefix('(') {
        Some(tuple) => tuple.split_once(')').map(|(inside, _)| inside),
        None => rest.split([',', '}']).next().map(str::trim),
    }
}
