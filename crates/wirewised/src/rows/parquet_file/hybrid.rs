// SPDX-License-Identifier: Apache-2.0
//! The hybrid of run lengths and bit packing (the Parquet format, "Encodings": RLE) that holds definition levels and indices
//! into dictionaries.

use super::bits::{LOT, append_packed, append_varint, width};

/// Bits of an index into a dictionary; at least one, for some readers know no narrower.
pub fn index_width(entries: u32) -> usize {
    width(entries.saturating_sub(1).into()).max(1)
}

/// Appends the values, none of them wider than `width` bits: runs as runs, all else packed.
pub fn append(values: &[u32], width: usize, out: &mut Vec<u8>) {
    let mut rest = values;
    while let Some(first) = rest.first() {
        let run = rest.iter().take_while(|value| *value == first).count();
        if run >= LOT || run == rest.len() {
            append_run(*first, run, width, out);
            rest = &rest[run..];
        } else {
            let lots = rest.chunks(LOT).take_while(|lot| lot.len() < LOT || !is_uniform(lot)).count();
            let (packed, behind) = rest.split_at(rest.len().min(lots * LOT));
            append_literals(packed, width, out);
            rest = behind;
        }
    }
}

fn is_uniform(lot: &[u32]) -> bool {
    lot.iter().fold(0, |differing, value| differing | (value ^ lot[0])) == 0
}

/// Appends one value `count` times.
pub fn append_run(value: u32, count: usize, width: usize, out: &mut Vec<u8>) {
    append_varint((count as u64) << 1, out);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8)]);
}

/// In groups of eight; the last is filled up with zeros.
fn append_literals(values: &[u32], width: usize, out: &mut Vec<u8>) {
    append_varint((values.len().div_ceil(8) as u64) << 1 | 1, out);
    let end = out.len() + values.len().div_ceil(8) * width;
    append_bits(values, width, out);
    out.truncate(end);
}

/// Appends the values, `width` bits each, filled up to a whole lot.
pub fn append_bits(values: &[u32], width: usize, out: &mut Vec<u8>) {
    for values in values.chunks(LOT) {
        let mut lot = [0; LOT];
        lot.iter_mut().zip(values).for_each(|(place, value)| *place = u64::from(*value));
        append_packed(&lot, width, out);
    }
}
