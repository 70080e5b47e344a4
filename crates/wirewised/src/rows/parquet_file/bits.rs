// SPDX-License-Identifier: Apache-2.0
//! Bit packing: 32 numbers of 0 to 64 bits each, the first in the lowest bits.

/// Numbers that are packed at once: a miniblock of the delta encoding, four groups of the hybrid one.
pub const LOT: usize = 32;

type Packer = fn(&[u64; LOT], &mut [u64; LOT]);

/// One for each width, in which all shifts are constants.
#[rustfmt::skip]
const PACKERS: [Packer; 65] = [
    pack::<0>, pack::<1>, pack::<2>, pack::<3>, pack::<4>, pack::<5>, pack::<6>, pack::<7>,
    pack::<8>, pack::<9>, pack::<10>, pack::<11>, pack::<12>, pack::<13>, pack::<14>, pack::<15>,
    pack::<16>, pack::<17>, pack::<18>, pack::<19>, pack::<20>, pack::<21>, pack::<22>, pack::<23>,
    pack::<24>, pack::<25>, pack::<26>, pack::<27>, pack::<28>, pack::<29>, pack::<30>, pack::<31>,
    pack::<32>, pack::<33>, pack::<34>, pack::<35>, pack::<36>, pack::<37>, pack::<38>, pack::<39>,
    pack::<40>, pack::<41>, pack::<42>, pack::<43>, pack::<44>, pack::<45>, pack::<46>, pack::<47>,
    pack::<48>, pack::<49>, pack::<50>, pack::<51>, pack::<52>, pack::<53>, pack::<54>, pack::<55>,
    pack::<56>, pack::<57>, pack::<58>, pack::<59>, pack::<60>, pack::<61>, pack::<62>, pack::<63>,
    pack::<64>,
];

fn pack<const WIDTH: usize>(values: &[u64; LOT], words: &mut [u64; LOT]) {
    for (index, value) in values.iter().enumerate() {
        let (word, shift) = (index * WIDTH / 64, index * WIDTH % 64);
        if WIDTH != 0 {
            words[word] |= value << shift;
        }
        if shift + WIDTH > 64 {
            words[word + 1] |= value >> (64 - shift);
        }
    }
}

/// Appends the values, `width` bits each: 4 * `width` bytes. No value is wider.
#[inline]
pub fn append_packed(values: &[u64; LOT], width: usize, out: &mut Vec<u8>) {
    let mut words = [0; LOT];
    PACKERS[width](values, &mut words);
    out.extend_from_slice(&bytemuck::bytes_of(&words.map(u64::to_le))[..width * LOT / 8]);
}

/// Bits of the largest of numbers that were joined by `|`.
#[inline]
pub fn width(joined: u64) -> usize {
    (u64::BITS - joined.leading_zeros()) as usize
}

/// Appends an unsigned number, seven bits a byte (ULEB128).
pub fn append_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number: small ones of either sign are short.
pub fn append_zigzag(value: i64, out: &mut Vec<u8>) {
    append_varint(((value << 1) ^ (value >> 63)) as u64, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(bytes: &[u8], width: usize) -> Vec<u64> {
        let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
        let value = |index: usize| (0..width).map(|at| bit(index * width + at) << at).sum();
        (0..LOT).map(value).collect()
    }

    proptest! {
        #[test]
        fn packed_values_come_back(values: [u64; LOT], bits in 0usize..=64) {
            let values = values.map(|value| if bits == 0 { 0 } else { value >> (64 - bits) });
            let mut out = vec![7];
            append_packed(&values, bits, &mut out);
            prop_assert_eq!(out.len(), 1 + 4 * bits);
            prop_assert_eq!(unpacked(&out[1..], bits), values.to_vec());
        }
    }

    #[test]
    fn widths_and_varints() {
        assert_eq!([0, 1, 255, 256, u64::MAX].map(width), [0, 1, 8, 9, 64]);
        let mut out = Vec::new();
        append_varint(300, &mut out);
        append_zigzag(-1, &mut out);
        append_zigzag(i64::MIN, &mut out);
        assert_eq!(out[..3], [0xac, 2, 1]);
        assert_eq!(out[3..], [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }
}
