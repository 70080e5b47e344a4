// SPDX-License-Identifier: Apache-2.0
//! DELTA_BINARY_PACKED (the Parquet format, "Encodings"): differences of neighbours, each lot of 32 with as many bits as it needs.

use super::bits::{LOT, append_packed, append_varint, append_zigzag, width};

const LOTS: usize = 4;
const BLOCK: usize = LOTS * LOT;

/// Numbers of a column, whose differences wrap at their own width.
pub trait Number: Copy {
    fn wide(self) -> i64;
    fn minus(self, before: Self) -> i64;
}

impl Number for i64 {
    fn wide(self) -> i64 {
        self
    }

    fn minus(self, before: Self) -> i64 {
        self.wrapping_sub(before)
    }
}

impl Number for i32 {
    fn wide(self) -> i64 {
        self.into()
    }

    fn minus(self, before: Self) -> i64 {
        self.wrapping_sub(before).into()
    }
}

/// Appends the values.
pub fn append<T: Number>(values: &[T], out: &mut Vec<u8>) {
    append_varint(BLOCK as u64, out);
    append_varint(LOTS as u64, out);
    append_varint(values.len() as u64, out);
    append_zigzag(values.first().map_or(0, |first| first.wide()), out);
    let befores = values.chunks(BLOCK);
    let afters = values.get(1..).unwrap_or_default().chunks(BLOCK);
    for (before, after) in befores.zip(afters) {
        append_block(before, after, out);
    }
}

#[inline]
fn append_block<T: Number>(before: &[T], after: &[T], out: &mut Vec<u8>) {
    let mut deltas = [0i64; BLOCK];
    for ((delta, before), after) in deltas.iter_mut().zip(before).zip(after) {
        *delta = after.minus(*before);
    }
    let least = deltas[..after.len()].iter().fold(i64::MAX, |least, delta| least.min(*delta));
    // What lies behind the last value takes no bits.
    deltas[after.len()..].fill(least);
    append_zigzag(least, out);
    let mut lots = [[0u64; LOT]; LOTS];
    let mut widths = [0; LOTS];
    for ((lot, width_of), deltas) in lots.iter_mut().zip(&mut widths).zip(deltas.chunks_exact(LOT)) {
        let mut joined = 0;
        for (over, delta) in lot.iter_mut().zip(deltas) {
            *over = delta.wrapping_sub(least) as u64;
            joined |= *over;
        }
        *width_of = width(joined);
    }
    out.extend(widths.map(|width| width as u8));
    for (lot, width) in lots.iter().zip(widths) {
        if width != 0 {
            append_packed(lot, width, out);
        }
    }
}
